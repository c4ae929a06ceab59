// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <vector>

#include "lang/inventory.hpp"
#include "lang/program.hpp"
#include "planner/layout.hpp"

/// Which layers lie on which stage. The one place that says so: bill, time, search and run ask
/// here.
namespace plimsoll {

/// Consecutive layers: the chunk of a stage.
struct Piece {
  std::int64_t first = 0, count = 0;
};

/// In a folded schedule (zb_v, dualpipe_v) the second chunks run back from the last stage to the
/// first, which so holds both ends of the model.
bool folded(Schedule);

/// The chunks of a stage that takes \a count layers of each of vpp rounds of \a round_layers, from
/// \a offset of the round on.
std::vector<Piece> pieces(Schedule, std::int64_t vpp, std::int64_t round_layers,
                          std::int64_t offset, std::int64_t count);
/// By stage, of a resolved layout.
std::vector<std::vector<Piece>> pieces(const Program&, const Layout&);

/// How many of chunk \a chunk's layers are among the \a recomputed ones of a stage: its first ones.
/// They are spread evenly over the chunks, earlier chunks first.
std::int64_t recomputed_of_chunk(std::int64_t recomputed, std::int64_t vpp, std::int64_t chunk);

/// What lies on a stage, as far as its time goes.
struct StageWork {
  std::vector<std::int64_t> layers;      ///< by class
  std::vector<std::int64_t> recomputed;  ///< by class; of `layers`
  std::vector<std::uint32_t> roots;      ///< indices into Inventory::root_segments
  std::int64_t pool = 0;

  friend bool operator==(const StageWork&, const StageWork&) = default;
};

/// Layers of each class in front of each layer, and where root segments lie.
class LayerIndex {
 public:
  LayerIndex(const Program&, const Inventory&);

  /// \a recomputed: of the stage's layers; those of a layout with recompute none are 0, with a mode
  /// of the framework's all.
  StageWork work(const std::vector<Piece>&, std::int64_t recomputed) const;
  std::int64_t layers() const { return static_cast<std::int64_t>(class_of_.size()); }
  /// Are all layers alike, with nothing beside them but at both ends? Then it does not matter which
  /// ones a stage between holds.
  bool uniform() const;

 private:
  std::vector<std::uint32_t> class_of_;               ///< by layer
  std::vector<std::vector<std::int64_t>> before_;     ///< [class][layer]
  std::vector<std::vector<std::uint32_t>> roots_at_;  ///< [layer]
};

}  // namespace plimsoll
