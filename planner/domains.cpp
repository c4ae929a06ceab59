// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/domains.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "lang/diagnostics.hpp"

namespace plimsoll {

namespace {

constexpr std::int64_t kMaxMicroBatch = 128;
constexpr std::int64_t kMaxChunks = 8;
constexpr std::int64_t kMinTokens = 1024;  ///< of a sequence on a rank of a cp group
constexpr std::int64_t kOffloadUnit = 1000;

std::vector<std::int64_t> find_divisors(std::int64_t n) {
  std::vector<std::int64_t> small, large;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    small.push_back(d);
    if (d != n / d) large.push_back(n / d);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

/// Ascending; valid until the next call. The same few numbers are asked for at every core and leaf.
const std::vector<std::int64_t>& divisors(std::int64_t n) {
  constexpr std::size_t kMost = 4096;
  static thread_local std::unordered_map<std::int64_t, std::vector<std::int64_t>> known;
  if (const auto at = known.find(n); at != known.end()) return at->second;
  if (known.size() >= kMost) known.clear();
  return known.emplace(n, find_divisors(n)).first->second;
}

bool power_of_two(std::int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

std::int64_t gpus_left(std::int64_t gpus, const Layout& l) { return gpus / (l.tp * l.cp); }

std::optional<Schedule> schedule_named(std::string_view word) {
  for (const Schedule s : {Schedule::one_f_one_b, Schedule::interleaved, Schedule::gpipe,
                           Schedule::zb_h1, Schedule::zb_v, Schedule::dualpipe_v})
    if (name(s) == word) return s;
  return std::nullopt;
}

}  // namespace

Var variable(Knob knob) {
  switch (knob) {
    case Knob::nodes:
      return Var::nodes;
    case Knob::seq:
      return Var::seq;
    case Knob::batch:
      return Var::batch;
    case Knob::tp:
      return Var::tp;
    case Knob::cp:
      return Var::cp;
    case Knob::pp:
      return Var::pp;
    case Knob::ep:
      return Var::ep;
    case Knob::etp:
      return Var::etp;
    case Knob::vpp:
      return Var::vpp;
    case Knob::mbs:
      return Var::mbs;
    case Knob::sp:
      return Var::sp;
    case Knob::zero:
      return Var::zero;
    case Knob::shard:
      return Var::shard;
    case Knob::recompute:
      return Var::recompute;
    case Knob::schedule:
      return Var::schedule;
    case Knob::offload:
      return Var::offload;
  }
  throw InternalError("a knob without a variable");
}

void set(Layout& l, Knob knob, std::int64_t v) {
  switch (knob) {
    case Knob::nodes:
      l.nodes = v;
      break;
    case Knob::seq:
      l.seq = v;
      break;
    case Knob::batch:
      l.batch = v;
      break;
    case Knob::tp:
      l.tp = v;
      break;
    case Knob::cp:
      l.cp = v;
      break;
    case Knob::pp:
      l.pp = v;
      break;
    case Knob::ep:
      l.ep = v;
      break;
    case Knob::etp:
      l.etp = v;
      break;
    case Knob::vpp:
      l.vpp = v;
      break;
    case Knob::mbs:
      l.mbs = v;
      break;
    case Knob::sp:
      l.sp = v != 0;
      break;
    case Knob::zero:
      l.zero = static_cast<int>(v);
      break;
    case Knob::shard:
      l.shard = v;
      break;
    case Knob::recompute:
      l.recompute = static_cast<RecomputeMode>(v);
      break;
    case Knob::schedule:
      l.schedule = static_cast<Schedule>(v);
      break;
    case Knob::offload:
      l.offload = Rational::fraction(v, kOffloadUnit);
      break;
  }
}

Domains::Domains(const Problem& problem) : problem_(problem) {
  for (std::size_t k = 0; k < kKnobCount; ++k) {
    const auto at = problem.job->layout.find(std::string(name(variable(static_cast<Knob>(k)))));
    if (at != problem.job->layout.end() && !at->second.values.empty()) choices_[k] = &at->second;
  }
  for (const Op& op : problem.program->ops) {
    if (op.kind == OpKind::attention && op.heads > 0) heads_.push_back(op.heads);
    if (op.kind == OpKind::experts) experts_ = std::gcd(experts_, op.count);
  }
  std::sort(heads_.begin(), heads_.end());
  heads_.erase(std::unique(heads_.begin(), heads_.end()), heads_.end());
  const ExprPool& pool = problem.module->pool();
  const auto lists = [&](const char* variable) {
    std::vector<std::vector<std::int64_t>> out;
    const auto it = problem.job->layout.find(variable);
    if (it == problem.job->layout.end()) return out;
    for (const eval::Value& value : it->second.values) {
      const auto* list = value.as<eval::List>();
      if (list == nullptr) continue;
      auto& one = out.emplace_back();
      for (const eval::Value& item : list->items)
        if (const auto* n = item.as<eval::Number>(); n != nullptr && pool.is_constant(n->expr))
          one.push_back(pool.value(n->expr).to_int64());
    }
    return out;
  };
  stage_layers = lists("stage_layers");
  recompute_layers = lists("recompute_layers");
  if (const auto it = problem.job->layout.find("stage_pool"); it != problem.job->layout.end())
    for (const eval::Value& value : it->second.values)
      if (const auto* list = value.as<eval::List>()) {
        auto& one = stage_pool.emplace_back();
        for (const eval::Value& item : list->items)
          for (std::uint32_t p = 0; p < problem.cluster->pools.size(); ++p)
            if (const auto* w = item.as<eval::Word>();
                w != nullptr && problem.cluster->pools[p].name == w->text)
              one.push_back(p);
      }
}

bool Domains::settles_late() const {
  const ExprPool& pool = problem_.module->pool();
  for (const auto& [variable, choice] : problem_.job->layout) {
    if (variable == "dp") return true;
    for (const eval::Value& value : choice.values) {
      if (const auto* n = value.as<eval::Number>(); n && !pool.is_constant(n->expr)) return true;
      if (const auto* b = value.as<eval::Boolean>(); b && !pool.is_constant(b->expr)) return true;
      if (value.as<eval::OpenWord>() != nullptr) return true;
    }
  }
  return false;
}

std::int64_t Domains::gpus(const Layout& layout) const {
  const auto& pools = problem_.cluster->pools;
  if (pools.size() == 1 && layout.nodes > 0) return layout.nodes * pools[0].gpus_per_node;
  return problem_.cluster->gpus();
}

std::optional<std::int64_t> Domains::number(const eval::Value& value, Knob knob, const Env& env,
                                            std::uint64_t known) const {
  const ExprPool& pool = problem_.module->pool();
  std::optional<Expr> expr;
  if (const auto* n = value.as<eval::Number>()) expr = n->expr;
  if (const auto* b = value.as<eval::Boolean>()) expr = b->expr;
  if (const auto* w = value.as<eval::OpenWord>()) expr = w->expr;
  if (expr) {
    if ((pool.depends_on(*expr) & ~known) != 0) return std::nullopt;
    Rational r = pool.eval(*expr, env);
    if (knob == Knob::offload) r = r * Rational(kOffloadUnit);
    // A share of a thousandth is as fine as offload goes; fractions of ranks do not exist.
    return r.is_integer() ? r.to_int64() : std::int64_t{-1};
  }
  const auto* word = value.as<eval::Word>();
  const std::string text = word != nullptr ? word->text : value.is_none() ? "none" : "";
  if (knob == Knob::recompute) {
    const auto& modes = problem_.inventory.recompute_modes;
    const auto it = std::find(modes.begin(), modes.end(), text);
    if (it != modes.end()) return it - modes.begin();
  }
  if (knob == Knob::schedule)
    if (const auto s = schedule_named(text)) return static_cast<std::int64_t>(*s);
  return -1;
}

std::vector<std::int64_t> Domains::values(Knob knob, const Layout& layout, const Env& env,
                                          std::uint64_t known) const {
  const Choice* given = choice(knob);
  // Numbers of recomputed layers mean full recomputation.
  const bool counted = knob == Knob::recompute && !recompute_layers.empty();
  if (given == nullptr && counted) return {std::int64_t{kFullRecompute}};
  if (given == nullptr) return defaults(knob, layout);
  std::vector<std::int64_t> out;
  for (const eval::Value& value : given->values) {
    const auto v = number(value, knob, env, known);
    if (!v) return defaults(knob, layout);  // disagrees() settles it when all is known
    if (*v >= 0 && (!counted || *v == kFullRecompute)) out.push_back(*v);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

namespace {
constexpr std::uint64_t kAll = ~std::uint64_t{0};
}

std::vector<std::int64_t> Domains::sequences(const Env& env) const {
  std::vector<std::int64_t> out;
  const auto it = problem_.job->layout.find("sequences");
  if (it == problem_.job->layout.end()) return out;
  for (const eval::Value& value : it->second.values)
    if (const auto n = number(value, Knob::batch, env, kAll); n && *n > 0) out.push_back(*n);
  std::sort(out.begin(), out.end());
  return out;
}

std::optional<Var> Domains::disagrees(const Layout& layout, const Env& env) const {
  const auto among = [&](const Choice* given, Knob knob, std::int64_t is) {
    if (given == nullptr) return true;
    return std::any_of(given->values.begin(), given->values.end(),
                       [&](const eval::Value& v) { return number(v, knob, env, kAll) == is; });
  };
  for (std::size_t k = 0; k < kKnobCount; ++k) {
    const auto knob = static_cast<Knob>(k);
    const Choice* given = choice(knob);
    if (given == nullptr) continue;
    Rational is = env[variable(knob)];
    if (knob == Knob::offload) is = is * Rational(kOffloadUnit);
    if (!among(given, knob, is.to_int64())) return variable(knob);
  }
  const auto it = problem_.job->layout.find("dp");
  if (it == problem_.job->layout.end() || it->second.values.empty() ||
      among(&it->second, Knob::tp, layout.dp))
    return std::nullopt;
  return Var::dp;
}

std::vector<std::int64_t> Domains::defaults(Knob knob, const Layout& l) const {
  const Job& job = *problem_.job;
  const Cluster& cluster = *problem_.cluster;
  const std::int64_t all = gpus(l);
  std::vector<std::int64_t> out;
  switch (knob) {
    case Knob::nodes:
      if (cluster.pools.size() == 1) return cluster.pools[0].nodes;
      out.push_back(0);
      for (const Pool& pool : cluster.pools) out[0] += pool.nodes.empty() ? 0 : pool.nodes[0];
      return out;
    case Knob::seq:
      return {job.serve ? job.context.to_int64() : job.seq.to_int64()};
    case Knob::batch: {
      if (job.serve) return {1};
      const Rational batch = job.batch_in_tokens ? job.batch / Rational(l.seq) : job.batch;
      if (batch.is_integer()) out.push_back(batch.to_int64());
      return out;
    }
    case Knob::tp:
      for (const std::int64_t d : divisors(all)) {
        const bool of_heads =
            std::any_of(heads_.begin(), heads_.end(), [&](std::int64_t h) { return h % d == 0; });
        if (d <= cluster.nvlink_domain && (power_of_two(d) || of_heads)) out.push_back(d);
      }
      return out;
    case Knob::cp:
      for (const std::int64_t d : divisors(all / l.tp))
        if (d == 1 || (power_of_two(d) && !job.serve && l.seq / d >= kMinTokens)) out.push_back(d);
      return out;
    case Knob::pp:
      if (!stage_layers.empty()) {
        for (const auto& list : stage_layers) out.push_back(static_cast<std::int64_t>(list.size()));
        std::sort(out.begin(), out.end());
        out.erase(std::unique(out.begin(), out.end()), out.end());
        return out;
      }
      for (const std::int64_t d : divisors(gpus_left(all, l)))
        if (d <= std::max<std::int64_t>(problem_.program->layer_count, 1)) out.push_back(d);
      return out;
    case Knob::ep:
      if (experts_ == 0) return {1};
      for (const std::int64_t d : divisors(experts_))
        if ((all / l.pp) % d == 0) out.push_back(d);
      return out;
    case Knob::etp:
      out.push_back(1);
      if (experts_ > 0 && l.tp > 1) out.push_back(l.tp);
      return out;
    case Knob::vpp:
      out.push_back(1);
      if (l.pp > 1 && !job.serve)
        for (std::int64_t v = 2; v <= kMaxChunks; ++v)
          if (problem_.program->layer_count % v == 0 && problem_.program->layer_count / v >= l.pp)
            out.push_back(v);
      return out;
    case Knob::mbs: {
      if (job.serve) return {1};
      const std::int64_t replicas = gpus_left(all, l) / l.pp;
      if (l.batch % replicas != 0) return out;
      for (const std::int64_t b : divisors(l.batch / replicas))
        if (b <= kMaxMicroBatch) out.push_back(b);
      return out;
    }
    case Knob::sp:
      out.push_back(0);
      if (l.tp > 1 && !job.serve) out.push_back(1);
      return out;
    case Knob::zero:
      if (job.serve) return {0};
      if (l.dp * l.cp > 1) return {0, 1, 2, 3};
      // On one rank there is nothing to share, but some stacks run one stage of ZeRO only.
      out.push_back(0);
      for (const auto& [variable, value] : problem_.inventory.defaults)
        if (variable == Var::zero && problem_.module->pool().is_constant(value))
          out.push_back(problem_.module->pool().value(value).to_int64());
      std::sort(out.begin(), out.end());
      out.erase(std::unique(out.begin(), out.end()), out.end());
      return out;
    case Knob::shard:
      if (l.zero == 0) return {l.dp * l.cp};
      return divisors(l.dp * l.cp);
    case Knob::recompute:
      if (job.serve) return {0};
      out.resize(std::max<std::size_t>(problem_.inventory.recompute_modes.size(), 1));
      std::iota(out.begin(), out.end(), 0);
      return out;
    case Knob::schedule:
      // Not gpipe: as slow as 1f1b, and it holds every micro-batch.
      if (job.serve) return {static_cast<std::int64_t>(Schedule::one_f_one_b)};
      if (l.vpp == 1) {
        out.push_back(static_cast<std::int64_t>(Schedule::one_f_one_b));
        if (l.pp > 1) out.push_back(static_cast<std::int64_t>(Schedule::zb_h1));
        return out;
      }
      out.push_back(static_cast<std::int64_t>(Schedule::interleaved));
      if (l.vpp == 2) {
        out.push_back(static_cast<std::int64_t>(Schedule::zb_v));
        out.push_back(static_cast<std::int64_t>(Schedule::dualpipe_v));
      }
      return out;
    case Knob::offload:
      return {0};
  }
  return out;
}

void set_variables(const Problem& problem, const Layout& l, std::int64_t gpus, Env& env) {
  constexpr std::int64_t one = 1;
  env[Var::nodes] = l.nodes;
  env[Var::seq] = l.seq;
  env[Var::target] = problem.job->target.is_zero() ? Rational(l.seq) : problem.job->target;
  env[Var::batch] = l.batch;
  env[Var::tp] = l.tp;
  env[Var::cp] = l.cp;
  env[Var::pp] = l.pp;
  env[Var::ep] = l.ep;
  env[Var::etp] = l.etp;
  env[Var::vpp] = l.vpp;
  env[Var::dp] = l.dp;
  env[Var::mbs] = l.mbs;
  env[Var::microbatches] = l.microbatches;
  env[Var::sp] = l.sp ? 1 : 0;
  env[Var::zero] = l.zero;
  env[Var::shard] = l.shard;
  env[Var::recompute] = static_cast<std::int64_t>(l.recompute);
  env[Var::schedule] = static_cast<std::int64_t>(l.schedule);
  env[Var::offload] = l.offload;
  env[Var::gpus] = gpus;
  env[Var::gpus_per_node] = problem.cluster->pools.front().gpus_per_node;
  const std::int64_t expert_dp = std::max<std::int64_t>(l.tp * l.cp * l.dp / (l.etp * l.ep), 1);
  const std::int64_t replicas = std::max<std::int64_t>(l.dp * l.cp / std::max(l.shard, one), 1);
  env[Var::expert_dp] = expert_dp;
  env[Var::expert_shard] = std::max(expert_dp / replicas, one);
  env[Var::sequences] = l.sequences;
}

}  // namespace plimsoll
