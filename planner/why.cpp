// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/why.hpp"

#include <algorithm>
#include <utility>

#include "lang/diagnostics.hpp"
#include "planner/stage_cost.hpp"

namespace plimsoll {
namespace {

constexpr std::int64_t kBeyond = 2;  ///< faster layouts that are told

Rival rival(const Problem& problem, Pricer& pricer, Priced p) {
  Rival out;
  out.layout = describe(problem, p.layout);
  out.categories = pricer.lines(p.layout, true).categories;
  out.priced = std::move(p);
  out.priced.unmet.clear();
  return out;
}

Priced priced(const Problem& problem, Pricer& pricer, const Layout& l) {
  Priced p;
  p.layout = l;
  p.time = Clock(problem).step(l);
  const Pricer::Peak peak = pricer.exact(l);
  p.set_peak(peak);
  return p;
}

/// What would be faster if there were more memory.
std::vector<Rival> beyond_memory(const Problem& problem, Pricer& pricer, const Rival& own,
                                 PlanOptions options) {
  Problem larger = problem;
  Cluster cluster = *problem.cluster;
  for (Pool& pool : cluster.pools) pool.gpu.memory *= kMoreMemory;
  larger.cluster = &cluster;
  options.top = kBeyond;
  Diagnostics said;
  PlanResult r = plan(larger, options, said);
  std::vector<Rival> out;
  if (!r.best) return out;
  std::vector<Priced> all = std::move(r.alternatives);
  all.insert(all.begin(), std::move(*r.best));
  for (Priced& p : all) {
    if (p.time.nanoseconds >= own.priced.time.nanoseconds) continue;
    const Pricer::Peak peak = pricer.exact(p.layout);
    if (peak.fits) continue;
    p.set_peak(peak);
    out.push_back(rival(problem, pricer, std::move(p)));
  }
  return out;
}

}  // namespace

Why why(const Problem& problem, const Layout& layout, const PlanOptions& options) {
  Why out;
  out.growth = growth(problem, layout);
  Diagnostics said;
  if (problem.job->serve || !check_rates(*problem.module, *problem.job, said)) return out;
  Pricer pricer(problem);
  out.own = rival(problem, pricer, priced(problem, pricer, layout));
  PlanOptions more = options;
  ++more.top;  // the layout itself may be among them
  more.proof = false;
  PlanResult r = plan(problem, more, said);
  out.proven = r.status == PlanResult::optimal || r.status == PlanResult::infeasible;
  if (r.best) {
    std::vector<Priced> all = std::move(r.alternatives);
    all.insert(all.begin(), std::move(*r.best));
    for (Priced& p : all)
      if (p.layout != layout && std::ssize(out.others) < options.top)
        out.others.push_back(rival(problem, pricer, std::move(p)));
  }
  out.beyond = beyond_memory(problem, pricer, *out.own, more);
  return out;
}

}  // namespace plimsoll
