// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// What a solver certifies of a search that came to its end.

#include <cmath>

#include "lang/diagnostics.hpp"
#include "planner/claim.hpp"
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
  for (const std::int64_t on_nodes : claimed_nodes(problem_)) {
    const std::optional<Claim> claim = claim_of(problem_, judge_, on_nodes);
    if (!claim) return;
    CertificateBudget budget;
    budget.stop = options_.stop;
    const Certificate c = certify(
        *claim, [&](ClaimValues v) { return known(core_of(problem_, v)); }, budget);
    result_.solver_queries += c.checks;
    if (c.status == Certificate::mismatch)
      throw InternalError(fmt::format("the search left something out: {}\n{}", c.why, c.smt2));
    if (c.status != Certificate::proven) return;
    proof.points += c.points;
    proof.rules += static_cast<std::int64_t>(claim->rules.size());
    proof.nogoods += c.nogoods;
    proof.checks += c.checks;
  }
  result_.proof = proof;
}

}  // namespace plimsoll
