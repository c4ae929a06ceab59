// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <vector>

#include "lang/inventory.hpp"
#include "lang/program.hpp"
#include "planner/layout.hpp"

namespace plimsoll {

/// What lies on a stage, as far as its time goes: how many layers of each class, how many of them
/// recomputed, which root segments. Stages that are alike are listed once.
struct StageKind {
  std::vector<std::int64_t> layers;      ///< by class
  std::vector<std::int64_t> recomputed;  ///< by class; of `layers`
  std::vector<std::uint32_t> roots;      ///< indices into Inventory::root_segments
  std::int64_t pool = 0;
  std::int64_t count = 1;

  friend bool operator==(const StageKind& a, const StageKind& b) {
    return a.layers == b.layers && a.recomputed == b.recomputed && a.roots == b.roots &&
           a.pool == b.pool;
  }
};

/// The stages of a resolved layout, alike ones together, in order of first appearance. Layers are
/// dealt chunk by chunk: chunk 0 of every stage, then chunk 1, …; a stage's first layers are those
/// that `recompute_layers` counts.
std::vector<StageKind> stage_kinds(const Program&, const Inventory&, const Layout&);

}  // namespace plimsoll
