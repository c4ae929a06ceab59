// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/claim.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "planner/domains.hpp"

namespace plimsoll {

namespace {

enum Index : std::size_t { nodes, seq, batch, tp, cp, pp, dp, ep, etp, vpp, mbs, kCount };
constexpr const char* kNames[kCount] = {"nodes", "seq", "batch", "tp",  "cp", "pp",
                                        "dp",    "ep",  "etp",   "vpp", "mbs"};

constexpr std::int64_t kShortestPart = 1024;  ///< tokens of a sequence on a rank of a cp group
constexpr std::int64_t kMostChunks = 8, kMostSequences = 32;

bool divides(std::int64_t a, std::int64_t b) { return a > 0 && b % a == 0; }
bool power_of_two(std::int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

std::vector<std::int64_t> up_to(std::int64_t most) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(most));
  std::iota(out.begin(), out.end(), 1);
  return out;
}

class Statement {
 public:
  Statement(const Problem& problem, const Judge& judge, std::int64_t on_nodes)
      : problem_(problem), judge_(judge), on_nodes_(on_nodes) {}

  std::optional<Claim> made() {
    for (std::size_t i = 0; i < kCount; ++i) claim_.variables.push_back({kNames[i], {}});
    if (!values()) return std::nullopt;
    degrees();
    experts();
    batches();
    widths();
    requirements();
    claim_.apart = {nodes, seq, batch};
    return std::move(claim_);
  }

 private:
  std::vector<std::int64_t>& of(Index i) { return claim_.variables[i].values; }
  std::int64_t gpus(std::int64_t of_nodes) const { return this_gpus_of(problem_, of_nodes); }
  void rule(std::string name, std::vector<std::size_t> over,
            std::function<bool(ClaimValues)> holds) {
    claim_.rules.push_back({std::move(name), std::move(over), std::move(holds)});
  }

  /// What the job gives a variable; empty where it is free. Sets stated_ to false where a value
  /// follows from something else.
  std::vector<std::int64_t> given(const char* name) {
    std::vector<std::int64_t> out;
    const auto at = problem_.job->layout.find(name);
    if (at == problem_.job->layout.end()) return out;
    const ExprPool& pool = problem_.module->pool();
    for (const eval::Value& value : at->second.values) {
      const auto* n = value.as<eval::Number>();
      if (n == nullptr || !pool.is_constant(n->expr)) {
        stated_ = false;
        continue;
      }
      const Rational r = pool.value(n->expr);
      if (r.is_integer() && r.sign() > 0) out.push_back(r.to_int64());
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  bool values() {
    const Job& job = *problem_.job;
    const auto take = [&](Index i, std::vector<std::int64_t> usual) {
      std::vector<std::int64_t> own = given(kNames[i]);
      free_[i] = own.empty();
      of(i) = own.empty() ? std::move(usual) : std::move(own);
    };
    of(nodes) = {on_nodes_};
    const std::int64_t most = gpus(on_nodes_);
    take(seq, {job.seq.is_integer() ? job.seq.to_int64() : 0});
    std::vector<std::int64_t> batches;
    for (const std::int64_t s : of(seq)) {
      const Rational b = job.batch_in_tokens ? job.batch / Rational(s) : job.batch;
      if (b.is_integer()) batches.push_back(b.to_int64());
    }
    std::sort(batches.begin(), batches.end());
    batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
    take(batch, batches);
    std::vector<std::int64_t> degrees;
    for (const std::int64_t d : up_to(std::min<std::int64_t>(most, kMostGpus)))
      if (divides(d, most)) degrees.push_back(d);
    // A table has an entry for every four degrees.
    if (most > kMostGpus || degrees.size() > kMostDegrees) stated_ = false;
    if (!stated_) return false;
    take(tp, degrees);
    take(cp, degrees);
    take(pp, degrees);
    take(dp, degrees);
    for (const Op& op : problem_.program->ops)
      if (op.kind == OpKind::experts) experts_ = std::gcd(experts_, op.count);
    std::vector<std::int64_t> of_experts{1};
    if (experts_ > 0) {
      of_experts.clear();
      for (const std::int64_t d : up_to(experts_))
        if (divides(d, experts_)) of_experts.push_back(d);
    }
    take(ep, of_experts);
    take(etp, experts_ > 0 ? degrees : std::vector<std::int64_t>{1});
    take(vpp, up_to(kMostChunks));
    take(mbs, {1, 2, 4, 8, 16, kMostSequences});
    for (const auto& variable : claim_.variables)
      if (variable.values.empty()) stated_ = false;
    return stated_;
  }

  void degrees() {
    const Program& program = *problem_.program;
    const std::int64_t layers = program.layer_count;
    claim_.variables[dp].from = {nodes, tp, cp, pp};
    claim_.variables[dp].follows = [this_gpus = gpus_of()](ClaimValues v) {
      const std::int64_t all = this_gpus(v[0]), model = v[1] * v[2] * v[3];
      return divides(model, all) ? std::optional(all / model) : std::nullopt;
    };
    if (free_[tp]) {
      std::vector<std::int64_t> heads;
      for (const Op& op : program.ops)
        if (op.kind == OpKind::attention && op.heads > 0) heads.push_back(op.heads);
      rule("tp lies inside an NVLink domain and is a power of two or divides heads", {tp},
           [heads, domain = problem_.cluster->nvlink_domain](ClaimValues v) {
             return v[0] <= domain && (power_of_two(v[0]) ||
                                       std::any_of(heads.begin(), heads.end(), [&](std::int64_t h) {
                                         return divides(v[0], h);
                                       }));
           });
    }
    if (free_[cp])
      rule("cp is a power of two with 1,024 tokens a rank", {seq, cp}, [](ClaimValues v) {
        return v[1] == 1 || (power_of_two(v[1]) && v[0] / v[1] >= kShortestPart);
      });
    rule("a sequence divides into 2 cp parts", {seq, cp},
         [](ClaimValues v) { return v[1] == 1 || divides(2 * v[1], v[0]); });
    rule("pp <= layers", {pp}, [layers](ClaimValues v) { return v[0] <= layers; });
    const Domains domains(problem_);
    if (!domains.stage_layers.empty() && free_[pp])
      rule("stage_layers has an entry a stage", {pp},
           [lists = domains.stage_layers](ClaimValues v) {
             return std::any_of(lists.begin(), lists.end(), [&](const auto& list) {
               return static_cast<std::int64_t>(list.size()) == v[0];
             });
           });
    rule("chunks", {pp, vpp}, [layers](ClaimValues v) {
      return v[1] == 1 || (v[0] > 1 && divides(v[1], layers) && layers / v[1] >= v[0]);
    });
  }

  void experts() {
    if (free_[etp])
      rule("etp is 1 or tp", {tp, etp}, [](ClaimValues v) { return v[1] == 1 || v[1] == v[0]; });
    rule("ep etp divides tp cp dp", {tp, cp, dp, ep, etp},
         [](ClaimValues v) { return divides(v[3] * v[4], v[0] * v[1] * v[2]); });
  }

  void batches() {
    if (problem_.job->batch_in_tokens && free_[batch])
      rule("the batch is that many tokens", {seq, batch},
           [tokens = problem_.job->batch](ClaimValues v) {
             return Rational(v[0]) * Rational(v[1]) == tokens;
           });
    rule("mbs dp divides the batch", {batch, dp, mbs},
         [](ClaimValues v) { return divides(v[1] * v[2], v[0]); });
    rule("interleaving takes micro-batches by pp", {batch, pp, dp, vpp, mbs}, [](ClaimValues v) {
      return v[3] == 1 || !divides(v[2] * v[4], v[0]) || divides(v[1], v[0] / (v[2] * v[4]));
    });
  }

  void widths() {
    for (const Divisible& d : problem_.divisible) {
      const Index by = d.by == Var::tp ? tp : d.by == Var::etp ? etp : ep;
      rule(d.what, {by}, [d](ClaimValues v) {
        return divides(v[0], d.number) || (d.may_replicate && divides(d.number, v[0]));
      });
    }
  }

  /// Of the user's requirements, those that a core decides.
  void requirements() {
    const std::map<Var, std::vector<std::size_t>> by = {{Var::nodes, {nodes}},
                                                        {Var::gpus, {nodes}},
                                                        {Var::gpus_per_node, {}},
                                                        {Var::seq, {seq}},
                                                        {Var::target, {seq}},
                                                        {Var::batch, {batch}},
                                                        {Var::tp, {tp}},
                                                        {Var::cp, {cp}},
                                                        {Var::pp, {pp}},
                                                        {Var::dp, {dp}},
                                                        {Var::ep, {ep}},
                                                        {Var::etp, {etp}},
                                                        {Var::vpp, {vpp}},
                                                        {Var::mbs, {mbs}},
                                                        {Var::microbatches, {batch, dp, mbs}},
                                                        {Var::expert_dp, {tp, cp, dp, ep, etp}}};
    const ExprPool& pool = problem_.module->pool();
    for (const Expr e : judge_.outer_requirements()) {
      std::vector<std::size_t> over;
      bool stated = true;
      for (std::size_t v = 0; v < kVarCount; ++v) {
        if ((pool.depends_on(e) >> v & 1) == 0) continue;
        const auto at = by.find(static_cast<Var>(v));
        if (at == by.end())
          stated = false;
        else
          over.insert(over.end(), at->second.begin(), at->second.end());
      }
      std::sort(over.begin(), over.end());
      over.erase(std::unique(over.begin(), over.end()), over.end());
      if (!stated || over.empty()) continue;
      rule(pool.str(e), over, [this_problem = &problem_, over, e, &pool](ClaimValues v) {
        ClaimPoint all(kCount, 1);
        for (std::size_t k = 0; k < over.size(); ++k) all[over[k]] = v[k];
        const Layout l = core_of(*this_problem, all);
        Env env;
        set_variables(*this_problem, l, this_gpus_of(*this_problem, l.nodes), env);
        env[Var::microbatches] = l.microbatches;
        try {
          return !pool.eval(e, env).is_zero();
        } catch (const ArithmeticError&) {
          return false;  // it has no value here, so it is not met
        }
      });
    }
  }

  static std::int64_t this_gpus_of(const Problem& problem, std::int64_t of_nodes) {
    const auto& pools = problem.cluster->pools;
    return pools.size() == 1 ? of_nodes * pools.front().gpus_per_node : problem.cluster->gpus();
  }
  std::function<std::int64_t(std::int64_t)> gpus_of() const {
    return
        [problem = &problem_](std::int64_t of_nodes) { return this_gpus_of(*problem, of_nodes); };
  }

  static constexpr std::int64_t kMostGpus = 1 << 20;
  static constexpr std::size_t kMostDegrees = 36;
  const Problem& problem_;
  const Judge& judge_;
  std::int64_t on_nodes_;
  Claim claim_;
  bool stated_ = true;
  bool free_[kCount] = {};
  std::int64_t experts_ = 0;
};

}  // namespace

std::vector<std::int64_t> claimed_nodes(const Problem& problem) {
  const auto& pools = problem.cluster->pools;
  if (pools.size() == 1) return pools.front().nodes;
  std::int64_t all = 0;
  for (const Pool& pool : pools) all += pool.nodes.empty() ? 0 : pool.nodes.front();
  return {all};
}

std::optional<Claim> claim_of(const Problem& problem, const Judge& judge, std::int64_t on_nodes) {
  if (problem.job->serve) return std::nullopt;
  return Statement(problem, judge, on_nodes).made();
}

Layout core_of(const Problem& problem, ClaimValues v) {
  Layout l;
  l.nodes = v[nodes];
  l.seq = v[seq];
  l.batch = v[batch];
  l.tp = v[tp];
  l.cp = v[cp];
  l.pp = v[pp];
  l.dp = v[dp];
  l.ep = v[ep];
  l.etp = v[etp];
  l.vpp = v[vpp];
  l.mbs = v[mbs];
  l.microbatches = problem.job->serve ? 1 : std::max<std::int64_t>(1, l.batch / (l.dp * l.mbs));
  return l;
}

}  // namespace plimsoll
