// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/core_claim.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "lang/conditions.hpp"
#include "lang/diagnostics.hpp"

namespace plimsoll {

namespace {

using Values = std::vector<std::int64_t>;

/// Rows of one table; more are not looked at.
constexpr std::size_t kMostRows = std::size_t{1} << 22;

constexpr std::uint64_t bit(Var v) { return std::uint64_t{1} << static_cast<unsigned>(v); }

struct TooLarge {};

Values sorted(const std::set<std::int64_t>& set) { return {set.begin(), set.end()}; }

bool power_of_two(std::int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

class Builder {
 public:
  explicit Builder(const Problem& problem) : p_(problem), job_(*problem.job) {
    for (const Op& op : p_.program->ops) {
      if (op.kind == OpKind::attention && op.heads > 0) heads_.insert(op.heads);
      if (op.kind == OpKind::experts) experts_ = std::gcd(experts_, op.count);
    }
  }

  CoreClaim build();

 private:
  std::size_t add(std::string name, Values values, Var var);
  std::size_t follow(std::string name, std::vector<std::size_t> from, Var var,
                     std::function<std::optional<std::int64_t>(ClaimValues)> how);
  void rule(std::string name, std::vector<std::size_t> over,
            std::function<bool(ClaimValues)> holds);
  void knob(Knob, const Values& usual, std::vector<std::size_t> over,
            std::function<bool(ClaimValues)> usual_rule);
  void choose(Knob, const Choice&, std::uint64_t reads);
  std::optional<std::uint64_t> reads(const Choice&) const;
  std::int64_t number(const eval::Value&, const Env&) const;
  void require_job();
  void require(const std::string& name, Expr);
  /// The claim's variables that some of a layout's are read from; the last holds for what follows.
  std::vector<std::size_t> sources(std::uint64_t variables) const;
  void set(Env&, std::size_t variable, std::int64_t value) const;
  void must_divide(Var by, std::size_t variable);
  void cut_model();
  void cut_batch();

  const Values& of(std::size_t v) const { return out_.claim.variables[v].values; }
  std::int64_t gpus(std::int64_t nodes) const {
    const auto& pools = p_.cluster->pools;
    if (pools.size() == 1 && nodes > 0) return nodes * pools[0].gpus_per_node;
    return p_.cluster->gpus();
  }
  std::size_t at(Knob k) const { return out_.at[static_cast<std::size_t>(k)]; }

  const Problem& p_;
  const Job& job_;
  std::set<std::int64_t> heads_;
  std::int64_t experts_ = 0;
  CoreClaim out_;
  std::map<Var, std::size_t> index_;  ///< the claim's variable for a layout's
  std::vector<Var> vars_;             ///< and back; Var::stage where it is of no name
  std::uint64_t known_ = 0;           ///< variables that are decided so far, as the search has it
};

std::size_t Builder::add(std::string name, Values values, Var var) {
  out_.claim.variables.push_back({std::move(name), std::move(values)});
  vars_.push_back(var);
  const std::size_t v = vars_.size() - 1;
  if (var != Var::stage) {
    index_[var] = v;
    known_ |= bit(var);
  }
  if (var == Var::nodes) known_ |= bit(Var::gpus) | bit(Var::gpus_per_node);
  if (var == Var::microbatches) known_ |= bit(Var::target);
  return v;
}

/// A variable that follows, with every value that it can take.
std::size_t Builder::follow(std::string name, std::vector<std::size_t> from, Var var,
                            std::function<std::optional<std::int64_t>(ClaimValues)> how) {
  std::set<std::int64_t> values;
  std::size_t rows = 1;
  for (const std::size_t v : from) rows *= std::max<std::size_t>(of(v).size(), 1);
  if (rows > kMostRows) throw TooLarge{};
  ClaimPoint point(from.size());
  const auto go = [&](auto&& self, std::size_t k) -> void {
    if (k == from.size()) {
      if (const std::optional<std::int64_t> is = how(point)) values.insert(*is);
      return;
    }
    for (const std::int64_t value : of(from[k])) {
      point[k] = value;
      self(self, k + 1);
    }
  };
  go(go, 0);
  const std::size_t v = add(std::move(name), sorted(values), var);
  out_.claim.variables[v].from = std::move(from);
  out_.claim.variables[v].follows = std::move(how);
  return v;
}

void Builder::rule(std::string name, std::vector<std::size_t> over,
                   std::function<bool(ClaimValues)> holds) {
  std::size_t rows = 1;
  for (const std::size_t v : over) rows *= std::max<std::size_t>(of(v).size(), 1);
  if (rows > kMostRows) throw TooLarge{};
  out_.claim.rules.push_back({std::move(name), std::move(over), std::move(holds)});
}

std::vector<std::size_t> Builder::sources(std::uint64_t variables) const {
  std::set<std::size_t> out;
  if ((variables & bit(Var::gpus)) != 0) out.insert(index_.at(Var::nodes));
  if ((variables & bit(Var::target)) != 0) out.insert(index_.at(Var::seq));
  for (const auto& [var, v] : index_)
    if ((variables & bit(var)) != 0) out.insert(v);
  return {out.begin(), out.end()};
}

void Builder::set(Env& env, std::size_t variable, std::int64_t value) const {
  const Var var = vars_[variable];
  env[var] = value;
  if (var == Var::nodes) env[Var::gpus] = gpus(value);
  if (var == Var::seq) env[Var::target] = job_.target.is_zero() ? Rational(value) : job_.target;
  env[Var::gpus_per_node] = p_.cluster->pools.front().gpus_per_node;
}

/// What the values of a choice read; nullopt where that is not all decided yet.
std::optional<std::uint64_t> Builder::reads(const Choice& choice) const {
  const ExprPool& pool = p_.module->pool();
  std::uint64_t out = 0;
  for (const eval::Value& value : choice.values) {
    if (const auto* n = value.as<eval::Number>()) out |= pool.depends_on(n->expr);
    if (const auto* b = value.as<eval::Boolean>()) out |= pool.depends_on(b->expr);
    if (const auto* w = value.as<eval::OpenWord>()) out |= pool.depends_on(w->expr);
  }
  return (out & ~known_) == 0 ? std::optional(out) : std::nullopt;
}

/// -1: no number of things.
std::int64_t Builder::number(const eval::Value& value, const Env& env) const {
  const auto* n = value.as<eval::Number>();
  if (n == nullptr) return -1;
  try {
    const Rational r = p_.module->pool().eval(n->expr, env);
    return r.is_integer() ? r.to_int64() : -1;
  } catch (const ArithmeticError&) {
    return -1;
  }
}

/// A knob with the values that the job gives it.
void Builder::choose(Knob k, const Choice& choice, std::uint64_t reads) {
  const std::vector<std::size_t> from = sources(reads);
  const auto given = [this, &choice, from](ClaimValues point) {
    Env env;
    env[Var::gpus_per_node] = p_.cluster->pools.front().gpus_per_node;
    for (std::size_t i = 0; i < from.size(); ++i) set(env, from[i], point[i]);
    std::set<std::int64_t> out;
    for (const eval::Value& value : choice.values)
      if (const std::int64_t is = number(value, env); is > 0) out.insert(is);
    return out;
  };
  std::set<std::int64_t> all;
  ClaimPoint point(from.size());
  const auto go = [&](auto&& self, std::size_t i) -> void {
    if (i == from.size()) {
      all.merge(given(point));
      return;
    }
    for (const std::int64_t value : of(from[i])) {
      point[i] = value;
      self(self, i + 1);
    }
  };
  go(go, 0);
  const std::string name(plimsoll::name(variable(k)));
  const std::size_t v = add(name, sorted(all), variable(k));
  if (from.empty()) return;
  std::vector<std::size_t> over = from;
  over.push_back(v);
  rule(name + " as the job gives it", over, [given](ClaimValues values) {
    return given(values.first(values.size() - 1)).contains(values.back());
  });
}

/// A knob: the job's values where it gives them, else the usual ones, which must meet a rule over
/// \a over and the knob itself.
void Builder::knob(Knob k, const Values& usual, std::vector<std::size_t> over,
                   std::function<bool(ClaimValues)> usual_rule) {
  const std::string name(plimsoll::name(variable(k)));
  const auto given = job_.layout.find(name);
  std::optional<std::uint64_t> read;
  if (given != job_.layout.end() && !given->second.values.empty()) read = reads(given->second);
  if (read) {
    choose(k, given->second, *read);
  } else {
    const std::size_t v = add(name, usual, variable(k));
    over.push_back(v);
    if (usual_rule) rule("values of " + name, over, std::move(usual_rule));
  }
  out_.at[static_cast<std::size_t>(k)] = vars_.size() - 1;
}

void Builder::must_divide(Var by, std::size_t variable) {
  for (const Divisible& d : p_.divisible)
    if (d.by == by)
      rule(d.what, {variable}, [d](ClaimValues v) {
        return d.number % v[0] == 0 || (d.may_replicate && v[0] % d.number == 0);
      });
}

/// nodes, seq, batch, tp, cp, pp and what they leave.
void Builder::cut_model() {
  const Cluster& cluster = *p_.cluster;
  Values nodes;
  if (cluster.pools.size() == 1) {
    nodes = cluster.pools[0].nodes;
    std::sort(nodes.begin(), nodes.end());
  } else {
    nodes.push_back(0);
    for (const Pool& pool : cluster.pools) nodes[0] += pool.nodes.empty() ? 0 : pool.nodes[0];
  }
  knob(Knob::nodes, nodes, {}, {});
  knob(Knob::seq, {job_.serve ? job_.context.to_int64() : job_.seq.to_int64()}, {}, {});
  std::set<std::int64_t> batches;
  if (job_.serve) batches.insert(1);
  for (const std::int64_t seq : of(at(Knob::seq))) {
    if (job_.serve || seq == 0) continue;
    const Rational batch = job_.batch_in_tokens ? job_.batch / Rational(seq) : job_.batch;
    if (batch.is_integer()) batches.insert(batch.to_int64());
  }
  knob(Knob::batch, sorted(batches), {at(Knob::seq)}, [this](ClaimValues v) {
    if (job_.serve) return true;
    return Rational(v[1]) * (job_.batch_in_tokens ? Rational(v[0]) : Rational(1)) == job_.batch;
  });

  std::set<std::int64_t> tps, cps, pps;
  for (const std::int64_t n : of(at(Knob::nodes)))
    for (std::int64_t d = 1; d * d <= gpus(n); ++d) {
      if (gpus(n) % d != 0) continue;
      for (const std::int64_t e : {d, gpus(n) / d}) {
        tps.insert(e);
        if (power_of_two(e)) cps.insert(e);
        if (e <= std::int64_t{p_.program->layer_count}) pps.insert(e);
      }
    }
  std::erase_if(tps, [&](std::int64_t tp) {
    return tp > cluster.nvlink_domain ||
           !(power_of_two(tp) || std::any_of(heads_.begin(), heads_.end(),
                                             [&](std::int64_t h) { return h % tp == 0; }));
  });
  knob(Knob::tp, sorted(tps), {}, {});
  must_divide(Var::tp, at(Knob::tp));
  knob(Knob::cp, sorted(cps), {at(Knob::seq)},
       [this](ClaimValues v) { return v[1] == 1 || (!job_.serve && v[0] / v[1] >= 1024); });
  rule("a sequence in 2 cp parts", {at(Knob::seq), at(Knob::cp)},
       [](ClaimValues v) { return v[1] == 1 || v[0] % (2 * v[1]) == 0; });
  const std::size_t tp_cp = follow("tp*cp", {at(Knob::tp), at(Knob::cp)}, Var::stage,
                                   [](ClaimValues v) { return std::optional(v[0] * v[1]); });
  rule("tp*cp divides the GPUs", {at(Knob::nodes), tp_cp},
       [this](ClaimValues v) { return gpus(v[0]) % v[1] == 0; });
  const Domains domains(p_);
  if (!domains.stage_layers.empty()) {
    pps.clear();
    for (const auto& list : domains.stage_layers)
      pps.insert(static_cast<std::int64_t>(list.size()));
  }
  knob(Knob::pp, sorted(pps), {}, {});
  rule("a layer a stage", {at(Knob::pp)},
       [this](ClaimValues v) { return v[0] <= std::int64_t{p_.program->layer_count}; });
  const std::size_t model = follow("tp*cp*pp", {tp_cp, at(Knob::pp)}, Var::stage,
                                   [](ClaimValues v) { return std::optional(v[0] * v[1]); });
  follow("dp", {at(Knob::nodes), model}, Var::dp, [this](ClaimValues v) {
    return gpus(v[0]) % v[1] == 0 ? std::optional(gpus(v[0]) / v[1]) : std::nullopt;
  });
}

/// ep, etp, vpp, mbs.
void Builder::cut_batch() {
  const std::size_t dp = index_.at(Var::dp), pp = at(Knob::pp);
  const std::size_t ranks =
      follow("ranks of a stage", {at(Knob::nodes), pp}, Var::stage, [this](ClaimValues v) {
        return gpus(v[0]) % v[1] == 0 ? std::optional(gpus(v[0]) / v[1]) : std::nullopt;
      });
  std::set<std::int64_t> eps = {1}, etps = {1};
  for (std::int64_t e = 1; e <= experts_; ++e)
    if (experts_ % e == 0) eps.insert(e);
  if (experts_ > 0) etps.insert(of(at(Knob::tp)).begin(), of(at(Knob::tp)).end());
  knob(Knob::ep, sorted(eps), {}, {});
  must_divide(Var::ep, at(Knob::ep));
  knob(Knob::etp, sorted(etps), {at(Knob::tp)},
       [](ClaimValues v) { return v[1] == 1 || v[1] == v[0]; });
  must_divide(Var::etp, at(Knob::etp));
  const std::size_t expert = follow("ep*etp", {at(Knob::ep), at(Knob::etp)}, Var::stage,
                                    [](ClaimValues v) { return std::optional(v[0] * v[1]); });
  follow("expert_dp", {ranks, expert}, Var::expert_dp, [](ClaimValues v) {
    return v[0] % v[1] == 0 ? std::optional(v[0] / v[1]) : std::nullopt;
  });

  const std::int64_t layers = p_.program->layer_count;
  Values chunks(8);
  std::iota(chunks.begin(), chunks.end(), 1);
  knob(Knob::vpp, chunks, {}, {});
  rule("chunks", {pp, at(Knob::vpp)}, [this, layers](ClaimValues v) {
    return v[1] == 1 ? layers >= v[0]
                     : v[0] > 1 && !job_.serve && layers % v[1] == 0 && layers / v[1] >= v[0];
  });

  Values at_most(128);
  std::iota(at_most.begin(), at_most.end(), 1);
  std::erase_if(at_most, [this](std::int64_t b) {
    const Values& batches = of(at(Knob::batch));
    return std::none_of(batches.begin(), batches.end(),
                        [b](std::int64_t batch) { return batch % b == 0; });
  });
  knob(Knob::mbs, job_.serve ? Values{1} : at_most, {}, {});
  const std::size_t at_once = follow("dp*mbs", {dp, at(Knob::mbs)}, Var::stage,
                                     [](ClaimValues v) { return std::optional(v[0] * v[1]); });
  const std::size_t microbatches =
      follow("microbatches", {at(Knob::batch), at_once}, Var::microbatches,
             [this](ClaimValues v) -> std::optional<std::int64_t> {
               if (job_.serve) return 1;
               if (v[0] < v[1] || v[0] % v[1] != 0) return std::nullopt;
               return v[0] / v[1];
             });
  // Two chunks may be folded, which any number of micro-batches suits.
  rule("interleaving", {pp, at(Knob::vpp), microbatches},
       [](ClaimValues v) { return v[1] <= 2 || v[2] % v[0] == 0; });
}

/// The job's requirements that read nothing else: of "a and b" each on its own.
void Builder::require_job() {
  Diagnostics ignored;  // compile() has reported what is wrong with conditions
  for (const Condition& c : job_.require) {
    const std::optional<Lowered> lowered = lower_condition(*p_.module, job_, *c.expr, ignored);
    if (lowered && lowered->expr) require(c.name, *lowered->expr);
  }
}

void Builder::require(const std::string& name, Expr e) {
  const ExprPool& pool = p_.module->pool();
  if (pool.node(e) == ExprPool::Node::min && pool.is_boolean(e)) {
    for (const Expr operand : pool.operands(e)) require(name, operand);
    return;
  }
  const std::uint64_t reads = pool.depends_on(e);
  if ((reads & ~known_) != 0) return;
  const std::vector<std::size_t> over = sources(reads);
  const auto holds = [this, over, e](ClaimValues v) {
    Env env;
    env[Var::gpus_per_node] = p_.cluster->pools.front().gpus_per_node;
    for (std::size_t i = 0; i < over.size(); ++i) set(env, over[i], v[i]);
    try {
      return !p_.module->pool().eval(e, env).is_zero();
    } catch (const ArithmeticError&) {
      return false;  // without a value it is not met
    }
  };
  if (!over.empty())
    rule(name, over, holds);
  else if (!holds({}))
    rule(name, {at(Knob::nodes)}, [](ClaimValues) { return false; });
}

CoreClaim Builder::build() {
  cut_model();
  cut_batch();
  require_job();
  out_.claim.apart = {at(Knob::tp), at(Knob::pp)};
  return std::move(out_);
}

}  // namespace

std::optional<CoreClaim> core_claim(const Problem& problem) {
  try {
    // The rules look back at the builder.
    const auto builder = std::make_shared<Builder>(problem);
    CoreClaim out = builder->build();
    for (ClaimVariable& v : out.claim.variables)
      if (v.follows)
        v.follows = [builder, how = std::move(v.follows)](ClaimValues values) {
          return how(values);
        };
    for (ClaimRule& rule : out.claim.rules)
      rule.holds = [builder, holds = std::move(rule.holds)](ClaimValues v) { return holds(v); };
    return out;
  } catch (const TooLarge&) {
    return std::nullopt;
  }
}

}  // namespace plimsoll
