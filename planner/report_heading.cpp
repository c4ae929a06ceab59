// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <fmt/format.h>

#include "lang/units.hpp"
#include "planner/report_bill.hpp"
#include "planner/segments.hpp"
#include "planner/time.hpp"

namespace plimsoll::report {
namespace {

/// "8 × 8 h100_sxm": nodes times GPUs a node.
std::string pool_text(const Pool& pool, std::int64_t nodes) {
  const std::string prefix = pool.name.empty() ? "" : pool.name + ": ";
  if (nodes == 1) return fmt::format("{}{} × {}", prefix, pool.gpus_per_node, pool.gpu.name);
  return fmt::format("{}{} × {} ({} nodes)", prefix, nodes * pool.gpus_per_node, pool.gpu.name,
                     nodes);
}

}  // namespace

Heading heading(const Problem& problem, const Layout& layout) {
  Heading out;
  out.job = problem.job->name;
  out.model = problem.job->model;
  out.framework = problem.job->framework;
  for (const Pool& pool : problem.cluster->pools) {
    // Only a cluster of one kind leaves its nodes to the layout.
    const bool chosen = problem.cluster->pools.size() == 1 && layout.nodes > 0;
    const std::int64_t nodes = chosen || pool.nodes.empty() ? layout.nodes : pool.nodes.front();
    out.cluster += (out.cluster.empty() ? "" : ", ") + pool_text(pool, nodes);
  }
  out.layout = describe(problem, layout);
  out.serve = problem.job->serve;
  out.imbalance = problem.job->imbalance.to_double();
  if (out.serve) out.context = problem.job->context.to_int64();
  if (replays(problem)) {
    out.reserved_note = "two steps replayed through the caching allocator";
  } else if (problem.inventory.reserved_factor == Rational(1)) {
    out.reserved_note = "as allocated: no segments are counted";
  } else {
    out.reserved_note =
        fmt::format("allocated × {}", human({problem.inventory.reserved_factor, kCount}));
    if (!problem.inventory.reserved_source.empty())
      out.reserved_note += ", " + problem.inventory.reserved_source;
  }
  out.recompute_modes = problem.inventory.recompute_modes;
  for (const Pool& pool : problem.cluster->pools) out.pools.push_back(pool.name);
  if (!out.serve) {
    try {
      out.step_seconds = static_cast<double>(Clock(problem).step(layout).nanoseconds) * 1e-9;
    } catch (const ArithmeticError&) {
      // Longer than can be told: the bill stands without it.
    }
  }
  return out;
}

std::string on_host(const Problem& problem, const Layout& layout) {
  const bool states = layout.offload.sign() != 0, kept = problem.inventory.offloads_activations;
  return states && kept ? "optimizer states and activations"
         : kept         ? "activations"
                        : "optimizer states";
}

}  // namespace plimsoll::report
