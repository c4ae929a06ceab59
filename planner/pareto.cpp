// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/pareto.hpp"

#include <algorithm>

#include "lang/diagnostics.hpp"

namespace plimsoll {
namespace {

constexpr std::int64_t kSteps = 10;  ///< of the whole memory

Rational headroom(const Priced& p) {
  return p.hbm_bytes > 0 ? Rational::fraction(p.hbm_bytes - p.peak_bytes, p.hbm_bytes)
                         : Rational(0);
}

bool dominates(const Priced& a, const Priced& b) {
  return a.score <= b.score && headroom(a) >= headroom(b) &&
         (a.score < b.score || headroom(a) > headroom(b));
}

}  // namespace

void find_pareto(const Problem& problem, PlanResult& result, const PlanOptions& options) {
  result.pareto.clear();
  result.pareto_proven = result.status == PlanResult::optimal;
  if (!result.best) return;
  std::vector<Priced> all = {*result.best};
  PlanOptions one = options;
  one.top = 1;
  one.proof = false;
  while (all.size() < kMostPareto) {
    // The next tenth above what the last one leaves.
    const std::int64_t tenth = (headroom(all.back()) * Rational(kSteps)).floor().to_int64() + 1;
    if (tenth >= kSteps) break;
    one.min_headroom = Rational::fraction(tenth, kSteps);
    Diagnostics said;
    PlanResult next = plan(problem, one, said);
    if (next.status != PlanResult::optimal && next.status != PlanResult::infeasible)
      result.pareto_proven = false;
    if (!next.best || headroom(*next.best) < *one.min_headroom) break;
    all.push_back(std::move(*next.best));
  }
  for (const Priced& p : all)
    if (std::none_of(all.begin(), all.end(), [&](const Priced& q) { return dominates(q, p); }))
      result.pareto.push_back(p);
}

}  // namespace plimsoll
