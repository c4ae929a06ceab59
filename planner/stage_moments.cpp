// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Which segments a stage's chunks hold, and the most that they hold at once.

#include <algorithm>

#include "planner/stage_cost.hpp"

namespace plimsoll {

/// The segments of each chunk of each stage in order, equal neighbours together. Chunk k of stage r
/// is the (k * pp + r)-th piece of the model; the fully recomputed layers of a stage are the first
/// of its chunks.
void CostModel::lay_out_chunks() {
  const Program& program = *problem_.program;
  const std::int64_t v = layout_.vpp;
  runs_.assign(static_cast<std::size_t>(layout_.pp),
               std::vector<std::vector<Run>>(static_cast<std::size_t>(v)));
  std::uint32_t segment = 0;
  for (std::int64_t piece = 0; piece < v * layout_.pp; ++piece) {
    const auto r = static_cast<std::size_t>(piece % layout_.pp);
    const std::int64_t k = piece / layout_.pp;
    const std::int64_t layers = layout_.stage_layers[r] / v;
    std::int64_t full = 0;
    if (layout_.recompute == 1) {
      const std::int64_t on_stage =
          layout_.recompute_layers.empty() ? layout_.stage_layers[r] : layout_.recompute_layers[r];
      full = on_stage / v + (k < on_stage % v ? 1 : 0);
    }
    const bool last_piece = piece == v * layout_.pp - 1;
    std::vector<Run>& runs = runs_[r][static_cast<std::size_t>(k)];
    std::int64_t seen = 0;  // layers of this piece so far
    for (; segment < program.segments.size(); ++segment) {
      const Segment& s = program.segments[segment];
      // Root segments after a piece's last layer lie with it; those in front of layer 0 with that.
      if (s.is_layer && seen == layers && !last_piece) break;
      const RecomputeMode mode = !s.is_layer              ? 0
                                 : layout_.recompute == 1 ? (seen < full ? 1 : 0)
                                                          : layout_.recompute;
      if (s.is_layer) ++seen;
      const std::uint32_t trace = inventory_.trace_of(segment);
      if (!runs.empty() && s.is_layer && runs.back().trace == trace && runs.back().mode == mode)
        ++runs.back().count;
      else
        runs.push_back({trace, mode, 1, segment});
    }
  }
}

ChunkPeak CostModel::peak_of(const StageCost& stage, const ChunkCost& chunk, bool backward,
                             bool gradients_grow) const {
  ChunkPeak best;
  best.bytes = {-1, -1};
  std::int64_t grown_after = 0;
  if (gradients_grow)
    for (const Run& r : chunk.runs) grown_after += r.count * stage.grown[r.trace];
  Bytes before;
  for (std::size_t i = 0; i < chunk.runs.size(); ++i) {
    const Run& r = chunk.runs[i];
    const SegmentCost& c = cost(r);
    const std::int64_t grown_each = gradients_grow ? stage.grown[r.trace] : 0;
    const std::int64_t candidates[] = {0, 1, r.count - 2, r.count - 1};
    for (std::int64_t at : candidates) {
      if (at < 0 || at >= r.count) continue;
      Bytes here = before + at * c.saved + (backward ? c.backward : c.forward);
      const auto neighbour = [&](bool earlier, bool late) {
        const bool same = earlier ? at > 0 : at + 1 < r.count;
        if (!same && (earlier ? i == 0 : i + 1 == chunk.runs.size())) return;
        const std::int64_t extra =
            spill(same ? r.trace : chunk.runs[earlier ? i - 1 : i + 1].trace, backward, late);
        here += {extra, in_blocks(extra)};
      };
      if (!inventory_.spills.empty()) {
        neighbour(!backward, true);  // what ran just before and stays
        neighbour(backward, false);  // what runs next and comes early
      }
      // Gradients of the layers that this backward has passed, and of the one it is in.
      const std::int64_t grown = grown_after - at * grown_each;
      here += {grown, grown};
      if (here.live > best.bytes.live) best = {here, i, at};
    }
    before += r.count * c.saved;
    grown_after -= r.count * grown_each;
  }
  if (best.bytes.live < 0) best.bytes = {};
  return best;
}

void CostModel::price_chunk(const StageCost& stage, ChunkCost& c) const {
  for (const Run& r : c.runs) c.saved += r.count * cost(r).saved;
  c.forward = peak_of(stage, c, false, false);
  c.backward = peak_of(stage, c, true, false);
  c.first_backward = peak_of(stage, c, true, true);
}

ItemRows CostModel::spilled(std::uint32_t trace, bool backward, bool late) const {
  ItemRows rows;
  for (std::size_t i = 0; i < inventory_.spills.size(); ++i) {
    const Spill& s = inventory_.spills[i];
    if (s.backward != backward || s.late != late) continue;
    const std::uint32_t at =
        s.place.kind == Place::layer_class ? s.place.index : inventory_.trace_of(s.place.index);
    if (at == trace) rows.push_back({s.item, shape_->spills[i]});
  }
  return rows;
}

std::int64_t CostModel::spill(std::uint32_t trace, bool backward, bool late) const {
  std::int64_t sum = 0;
  for (const auto& [row, bytes] : spilled(trace, backward, late)) sum += bytes;
  return sum;
}

/// Do two stages hold the same segments, so that only the micro-batches in flight tell them apart?
bool CostModel::alike(std::int64_t a, std::int64_t b) const {
  const std::int64_t last = layout_.pp - 1;
  if (by_stage_ || !inventory_.shared.empty() || (a == 0) != (b == 0) || (a == last) != (b == last))
    return false;
  const auto& x = runs_[static_cast<std::size_t>(a)];
  const auto& y = runs_[static_cast<std::size_t>(b)];
  for (std::size_t k = 0; k < x.size(); ++k)
    if (!std::equal(x[k].begin(), x[k].end(), y[k].begin(), y[k].end(),
                    [](const Run& m, const Run& n) {
                      return m.trace == n.trace && m.mode == n.mode && m.count == n.count;
                    }))
      return false;
  return true;
}

const std::vector<Holding>& CostModel::holdings_of(std::int64_t stage) {
  const std::array<std::int64_t, 5> key{static_cast<std::int64_t>(layout_.schedule), layout_.pp,
                                        layout_.vpp, layout_.microbatches, stage};
  const auto [at, is_new] = holdings_.try_emplace(key);
  if (is_new)
    at->second = holdings(layout_.schedule, layout_.pp, layout_.vpp, layout_.microbatches, stage);
  return at->second;
}

Bytes CostModel::moment_bytes(const StageCost& s, const Holding& h, bool first_step) const {
  const int g = h.gradients == 2;
  Bytes bytes = h.backward ? (first_step ? s.backward_first[g] : s.backward[g])
                           : (first_step ? s.forward_first[g] : s.forward[g]);
  std::int64_t micro_batches = 0;
  for (std::size_t k = 0; k < h.alive.size(); ++k) {
    bytes += h.alive[k] * s.chunks[k].saved;
    micro_batches = std::max<std::int64_t>(micro_batches, h.alive[k]);
  }
  const ChunkCost& c = s.chunks[static_cast<std::size_t>(h.chunk)];
  bytes = bytes - c.saved;
  bytes += (!h.backward ? c.forward : h.gradients == 1 ? c.first_backward : c.backward).bytes;
  bytes += micro_batches * s.shared;
  if (h.backward) bytes += s.shared_gradients;
  return bytes;
}

Bytes CostModel::most(std::int64_t stage, std::int64_t& outside) {
  const StageCost& s = kept_stage(stage);
  outside = s.outside;
  // The same order as moments(): of equal ones the first.
  Bytes best{-1, -1};
  const auto consider = [&](const Bytes& b) {
    if (b.live > best.live) best = b;
  };
  for (const Holding& h : holdings_of(stage)) consider(moment_bytes(s, h, false));
  consider(s.update);
  consider(s.between);
  return best;
}

std::vector<Moment> CostModel::moments(const StageCost& s, bool first_step) const {
  std::vector<Moment> list;
  for (std::size_t i = 0; i < s.holdings.size(); ++i)
    list.push_back({s.holdings[i].backward ? Moment::backward : Moment::forward, i,
                    moment_bytes(s, s.holdings[i], first_step)});
  list.push_back({Moment::update, 0, s.update});
  list.push_back({Moment::between, 0, s.between});
  std::stable_sort(list.begin(), list.end(),
                   [](const Moment& a, const Moment& b) { return a.bytes.live > b.bytes.live; });
  return list;
}

}  // namespace plimsoll
