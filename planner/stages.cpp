// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/stages.hpp"

#include <algorithm>

#include "lang/diagnostics.hpp"

namespace plimsoll {

bool folded(Schedule s) { return s == Schedule::zb_v || s == Schedule::dualpipe_v; }

std::vector<Piece> pieces(Schedule schedule, std::int64_t vpp, std::int64_t round_layers,
                          std::int64_t offset, std::int64_t count) {
  std::vector<Piece> out;
  out.reserve(static_cast<std::size_t>(vpp));
  for (std::int64_t k = 0; k < vpp; ++k) {
    const bool back = folded(schedule) && k % 2 == 1;
    out.push_back({k * round_layers + (back ? round_layers - offset - count : offset), count});
  }
  return out;
}

std::vector<std::vector<Piece>> pieces(const Program& program, const Layout& l) {
  PLIMSOLL_ASSERT(static_cast<std::int64_t>(l.stage_layers.size()) == l.pp);
  std::vector<std::vector<Piece>> out;
  out.reserve(l.stage_layers.size());
  std::int64_t offset = 0;
  for (const std::int64_t layers : l.stage_layers) {
    PLIMSOLL_ASSERT(layers % l.vpp == 0);
    out.push_back(pieces(l.schedule, l.vpp, std::int64_t{program.layer_count} / l.vpp, offset,
                         layers / l.vpp));
    offset += layers / l.vpp;
  }
  PLIMSOLL_ASSERT(offset * l.vpp == program.layer_count);
  return out;
}

std::int64_t recomputed_of_chunk(std::int64_t recomputed, std::int64_t vpp, std::int64_t chunk) {
  return recomputed / vpp + (chunk < recomputed % vpp ? 1 : 0);
}

LayerIndex::LayerIndex(const Program& program, const Inventory& inventory)
    : before_(program.class_count), roots_at_(program.layer_count) {
  for (auto& counts : before_) counts.assign(1, 0);
  for (const Segment& s : program.segments) {
    if (!s.is_layer) continue;
    class_of_.push_back(s.layer_class);
    for (std::uint32_t c = 0; c < program.class_count; ++c)
      before_[c].push_back(before_[c].back() + (c == s.layer_class ? 1 : 0));
  }
  for (std::uint32_t r = 0; r < inventory.root_segments.size(); ++r)
    roots_at_[program.segments[inventory.root_segments[r]].layer].push_back(r);
}

bool LayerIndex::uniform() const {
  if (before_.size() > 1) return false;
  for (std::size_t l = 1; l + 1 < roots_at_.size(); ++l)
    if (!roots_at_[l].empty()) return false;
  return true;
}

StageWork LayerIndex::work(const std::vector<Piece>& chunks, std::int64_t recomputed) const {
  StageWork out;
  out.layers.assign(before_.size(), 0);
  out.recomputed.assign(before_.size(), 0);
  const auto vpp = static_cast<std::int64_t>(chunks.size());
  for (std::int64_t k = 0; k < vpp; ++k) {
    const Piece& piece = chunks[static_cast<std::size_t>(k)];
    const auto from = static_cast<std::size_t>(piece.first);
    const auto to = static_cast<std::size_t>(piece.first + piece.count);
    const std::size_t again =
        from + static_cast<std::size_t>(recomputed_of_chunk(recomputed, vpp, k));
    for (std::size_t c = 0; c < before_.size(); ++c) {
      out.layers[c] += before_[c][to] - before_[c][from];
      out.recomputed[c] += before_[c][again] - before_[c][from];
    }
    for (std::size_t l = from; l < to; ++l)
      out.roots.insert(out.roots.end(), roots_at_[l].begin(), roots_at_[l].end());
  }
  std::sort(out.roots.begin(), out.roots.end());
  return out;
}

}  // namespace plimsoll
