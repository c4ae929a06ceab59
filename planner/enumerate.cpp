// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/enumerate.hpp"

#include <algorithm>

#include "lang/diagnostics.hpp"
#include "planner/judge.hpp"
#include "planner/search.hpp"
#include "planner/time_constants.hpp"

namespace plimsoll {

void Priced::set_peak(const Pricer::Peak& peak) {
  peak_bytes = peak.bytes;
  hbm_bytes = peak.bytes + peak.headroom_bytes;
  peak_stage = peak.stage;
  host_bytes = peak.host_bytes;
  host_share = peak.host_share;
}

double Priced::headroom() const {
  return hbm_bytes > 0
             ? static_cast<double>(hbm_bytes - peak_bytes) / static_cast<double>(hbm_bytes)
             : 0;
}

std::string_view name(PlanResult::Status status) {
  switch (status) {
    case PlanResult::optimal:
      return "optimal";
    case PlanResult::feasible:
      return "feasible";
    case PlanResult::infeasible:
      return "infeasible";
    case PlanResult::unknown:
      break;
  }
  return "unknown";
}

namespace {

/// What the time model assumes where the cluster is silent.
void warn_of_assumed_links(const Problem& problem, Diagnostics& diags) {
  const Cluster& cluster = *problem.cluster;
  const auto& nodes = cluster.pools.front().nodes;
  const bool several = cluster.pools.size() > 1 ||
                       (!nodes.empty() && *std::max_element(nodes.begin(), nodes.end()) > 1);
  for (const Pool& pool : cluster.pools) {
    const auto warn = [&](const char* field, double assumed) {
      diags
          .warning(cluster.span, fmt::format("gpu '{}' has no {}; step times assume {:.0f} GB/s a "
                                             "GPU",
                                             pool.gpu.name, field, assumed / 1e9))
          .with_help(fmt::format("add a line such as {} = {:.0f} GB/s", field, assumed / 1e9));
    };
    if (several && pool.gpu.nic.sign() <= 0) warn("nic", kTimeConstants.default_nic);
    if (pool.gpus_per_node > 1 && pool.gpu.nvlink.sign() <= 0) warn("nvlink", kTimeConstants.pcie);
  }
}

}  // namespace

PlanResult plan(const Problem& problem, const PlanOptions& options, Diagnostics& diags) {
  const std::size_t errors = diags.error_count();
  try {
    if (!problem.job->serve) {
      if (!check_rates(*problem.module, *problem.job, diags)) return {};
      warn_of_assumed_links(problem, diags);
    }
    check_offload(problem, nullptr, diags);
    if (diags.error_count() > errors) return {};
    Search search(problem, options, diags);
    if (diags.error_count() > errors) return {};
    return search.run();
  } catch (const ArithmeticError& e) {
    diags
        .error(problem.job->span,
               fmt::format("'{}' cannot be planned: {}", problem.job->name, e.what()))
        .with_help("a number of the job, its model or its cluster is too large or too small");
    return {};
  }
}

}  // namespace plimsoll
