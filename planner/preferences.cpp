// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/preferences.hpp"

#include <algorithm>
#include <cmath>

#include "lang/diagnostics.hpp"

namespace plimsoll {
namespace {

/// How much worse \a with is than \a without, as a share of \a chosen's.
double worse(const Priced& with, const Priced& without, const Priced& chosen, bool minimize) {
  const double a = without.value.to_double(), b = with.value.to_double();
  const double whole = std::abs(chosen.value.to_double());
  return whole == 0 ? 0 : std::max(0.0, (minimize ? b - a : a - b) / whole);
}

/// The job with one preference left out, and a requirement instead where \a required.
Job changed(const Job& job, std::size_t preference, bool required) {
  Job out = job;
  const Condition condition = out.prefer[preference];
  out.prefer.erase(out.prefer.begin() + static_cast<std::ptrdiff_t>(preference));
  if (required) out.require.push_back(condition);
  return out;
}

}  // namespace

std::vector<PreferenceCost> price_preferences(const Problem& problem, const PlanResult& result,
                                              const PlanOptions& options) {
  std::vector<PreferenceCost> out;
  if (!result.best) return out;
  PlanOptions one = options;
  one.top = 1;
  one.proof = false;
  for (std::size_t i = 0; i < problem.job->prefer.size(); ++i) {
    PreferenceCost cost;
    cost.preference = &problem.job->prefer[i];
    const auto& unmet = result.best->unmet;
    cost.met = std::find(unmet.begin(), unmet.end(), cost.preference) == unmet.end();
    const Job job = changed(*problem.job, i, !cost.met);
    Problem same = problem;
    same.job = &job;
    Diagnostics said;  // a preference without a value at any layout is one that none meets
    PlanResult other = plan(same, one, said);
    cost.proven = !said.has_errors() &&
                  (other.status == PlanResult::optimal || other.status == PlanResult::infeasible);
    if (said.has_errors()) cost.proven = !cost.met;
    if (other.best) {
      // Its conditions are of the changed job, which ends here.
      other.best->unmet.clear();
      cost.layout = describe(problem, other.best->layout);
      const Priced& best = *result.best;
      cost.cost = cost.met ? worse(best, *other.best, best, result.minimize)
                           : worse(*other.best, best, best, result.minimize);
      cost.other = std::move(*other.best);
    }
    out.push_back(std::move(cost));
  }
  return out;
}

}  // namespace plimsoll
