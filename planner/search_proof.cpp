// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// What a solver certifies of a search that came to its end.

#include <cmath>

#include "lang/diagnostics.hpp"
#include "planner/core_claim.hpp"
#include "planner/search.hpp"

namespace plimsoll {

/// What the search knows of a core: looked at once more, by the evaluator.
Verdict Search::known(const Layout& core) {
  const Point point = space_.point(core);
  const auto met = cores_.find(core_key(point));
  if (met == cores_.end()) return Verdict::missing;
  const Rational& best = result_.best->score;
  const auto no_better = [&](double score) {
    return score >= best.to_double() - 1e-8 * std::abs(best.to_double());
  };
  Entry e;
  bound_core(core, space_.env(), e);
  if (no_better(e.score)) return Verdict::no_better;
  if (!met->second) return Verdict::better;
  Verdict verdict = Verdict::no_better;
  space_.leaves(point, [&](const Layout& l, Env& env) {
    if (verdict == Verdict::better || settled_.contains(key_of(space_.point(l)))) return;
    Entry leaf;
    bound_leaf(l, env, leaf);
    if (!no_better(leaf.score)) verdict = Verdict::better;
  });
  return verdict;
}

void Search::prove() {
  Proof proof;
  // One number of nodes at a time: a proof's tables are over few values.
  Problem one = problem_;
  Cluster cluster = *problem_.cluster;
  one.cluster = &cluster;
  const bool alike = problem_.cluster->pools.size() == 1;
  for (const std::int64_t nodes : problem_.cluster->pools.front().nodes) {
    if (alike) cluster.pools.front().nodes = {nodes};
    const std::optional<CoreClaim> claim = core_claim(one);
    if (!claim) return;
    CertificateBudget budget;
    budget.stop = options_.stop;
    const auto verdict = [&](ClaimValues point) {
      Layout core;
      const auto values = claim->core(point);
      for (std::size_t k = 0; k < values.size(); ++k) set(core, static_cast<Knob>(k), values[k]);
      core.dp = space_.domains().gpus(core) / (core.tp * core.cp * core.pp);
      core.microbatches = std::max<std::int64_t>(core.batch / (core.dp * core.mbs), 1);
      return known(core);
    };
    const Certificate c = certify(claim->claim, verdict, budget);
    result_.solver_queries += c.checks;
    if (c.status == Certificate::mismatch)
      throw InternalError(fmt::format("the search left something out: {}\n{}", c.why, c.smt2));
    if (c.status != Certificate::proven) return;
    proof.points += c.points;
    proof.rules += static_cast<std::int64_t>(claim->claim.rules.size());
    proof.nogoods += c.nogoods;
    proof.checks += c.checks;
    if (!alike) break;
  }
  result_.proof = proof;
}

}  // namespace plimsoll
