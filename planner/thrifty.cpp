// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/thrifty.hpp"

#include <algorithm>
#include <vector>

namespace plimsoll {

void thrifty_layouts(Space& space, const std::function<bool(const Layout&)>& each) {
  std::vector<Point> cores;
  space.thrifty_cores([&](const Layout& l, Env&) { cores.push_back(space.point(l)); });
  for (const Point& core : cores)
    for (const Layout& l : space.thriftiest(core)) {
      space.set_env(l);
      if (!each(l)) return;
    }
}

bool set_within_memory(Inner& inner, const Problem& problem, const Layout& outer, Judge& judge,
                       Env& env) {
  const auto memory = static_cast<std::int64_t>(usable_memory(problem, outer, 0));
  const std::int64_t cap = judge.memory_cap(env, memory, 0);
  if (cap < 0) return false;
  // With unlike memories each stage has its own.
  inner.set(outer, outer.stage_pool.empty() ? cap : Inner::kNoLimit);
  return true;
}

std::optional<LeastPeak> least_peak(Inner& inner, const Problem& problem, const Layout& outer,
                                    std::int64_t cap) {
  const auto least = solve_for_peak(inner, problem, outer, cap);
  if (!least) return std::nullopt;
  LeastPeak out;
  out.layout = with_lists(outer, *least);
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < outer.pp; ++i) {
    const auto k = static_cast<std::size_t>(i);
    const std::int64_t count = least->stage_layers[k] / outer.vpp;
    const std::int64_t again = least->recompute_layers.empty() ? 0 : least->recompute_layers[k];
    out.bytes = std::max(out.bytes, inner.bytes(i, offset, count, again));
    offset += count;
  }
  return out;
}

std::optional<LeastPeak> least_of_all(Inner& inner, const Problem& problem, Space& space) {
  std::optional<LeastPeak> best;
  thrifty_layouts(space, [&](const Layout& l) {
    try {
      auto least =
          least_peak(inner, problem, l, best ? best->bytes - 1 : std::int64_t{Inner::kNoLimit});
      if (least) best = std::move(least);
    } catch (const ArithmeticError&) {
      // It has no price; another may.
    }
    return true;
  });
  return best;
}

}  // namespace plimsoll
