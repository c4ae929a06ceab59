// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/stages.hpp"

#include <algorithm>

#include "lang/diagnostics.hpp"

namespace plimsoll {

namespace {

/// The stage of each layer.
std::vector<std::int64_t> stage_of_layers(const Program& program, const Layout& layout) {
  std::vector<std::int64_t> out;
  out.reserve(program.layer_count);
  for (std::int64_t chunk = 0; chunk < layout.vpp; ++chunk)
    for (std::int64_t stage = 0; stage < layout.pp; ++stage) {
      const std::int64_t layers = layout.stage_layers[static_cast<std::size_t>(stage)];
      const std::int64_t here = layers / layout.vpp + (chunk < layers % layout.vpp ? 1 : 0);
      out.insert(out.end(), static_cast<std::size_t>(here), stage);
    }
  PLIMSOLL_ASSERT(out.size() == program.layer_count);
  return out;
}

}  // namespace

std::vector<StageKind> stage_kinds(const Program& program, const Inventory& inventory,
                                   const Layout& layout) {
  PLIMSOLL_ASSERT(static_cast<std::int64_t>(layout.stage_layers.size()) == layout.pp);
  const std::vector<std::int64_t> stage_of = stage_of_layers(program, layout);
  const auto stages = static_cast<std::size_t>(layout.pp);
  std::vector<StageKind> all(stages);
  for (std::size_t i = 0; i < stages; ++i) {
    all[i].layers.assign(program.class_count, 0);
    all[i].recomputed.assign(program.class_count, 0);
    if (!layout.stage_pool.empty()) all[i].pool = layout.stage_pool[i];
  }
  std::vector<std::int64_t> seen(stages, 0);
  for (const Segment& s : program.segments) {
    if (!s.is_layer) continue;
    const auto stage = static_cast<std::size_t>(stage_of[s.layer]);
    ++all[stage].layers[s.layer_class];
    const bool again = layout.recompute != 0 && (layout.recompute_layers.empty() ||
                                                 seen[stage] < layout.recompute_layers[stage]);
    if (again) ++all[stage].recomputed[s.layer_class];
    ++seen[stage];
  }
  for (std::uint32_t r = 0; r < inventory.root_segments.size(); ++r) {
    const Segment& s = program.segments[inventory.root_segments[r]];
    const std::size_t stage =
        program.layer_count == 0 ? 0 : static_cast<std::size_t>(stage_of[s.layer]);
    all[stage].roots.push_back(r);
  }
  std::vector<StageKind> kinds;
  for (StageKind& stage : all) {
    const auto it = std::find(kinds.begin(), kinds.end(), stage);
    if (it != kinds.end())
      ++it->count;
    else
      kinds.push_back(std::move(stage));
  }
  return kinds;
}

}  // namespace plimsoll
