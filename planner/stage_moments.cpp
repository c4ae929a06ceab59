// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Which segments a stage's chunks hold, and the most that they hold at once.

#include <algorithm>

#include "planner/stage_cost.hpp"

namespace plimsoll {

StageRuns CostModel::runs(const std::vector<Piece>& chunks) const {
  const std::vector<Segment>& segments = problem_.program->segments;
  StageRuns all;
  for (const Piece& piece : chunks) {
    std::vector<Run>& out = all.emplace_back();
    // Root segments lie with the layer in front of them, those before layer 0 with that.
    const std::uint32_t end = begin_[static_cast<std::size_t>(piece.first + piece.count)];
    for (std::uint32_t i = begin_[static_cast<std::size_t>(piece.first)]; i < end; ++i) {
      const std::uint32_t trace = inventory_.trace_of(i);
      if (!out.empty() && segments[i].is_layer && out.back().trace == trace)
        ++out.back().count;
      else
        out.push_back({trace, 0, 1, i});
    }
  }
  return all;
}

namespace {

/// Appends the runs of a chunk with \a mode on its layers: where it is full, on \a recomputed of
/// them, the first ones.
void recompute_chunk(const std::vector<Run>& runs, RecomputeMode mode, std::int64_t recomputed,
                     std::size_t classes, std::vector<Run>& out) {
  std::int64_t left = recomputed;
  for (Run r : runs) {
    const bool layer = r.trace < classes;
    const std::int64_t again = mode == 0 || !layer      ? 0
                               : mode == kFullRecompute ? std::min(left, r.count)
                                                        : r.count;
    if (again > 0) out.push_back({r.trace, mode, again, r.first_segment});
    left -= again;
    r.first_segment += static_cast<std::uint32_t>(again);
    r.count -= again;
    if (r.count > 0) out.push_back(r);
  }
}

bool same_segments(const std::vector<Run>& a, const std::vector<Run>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Run& m, const Run& n) {
    return m.trace == n.trace && m.mode == n.mode && m.count == n.count;
  });
}

}  // namespace

StageRuns CostModel::recompute(const StageRuns& runs, RecomputeMode mode, std::int64_t recomputed,
                               const Inventory& inventory) {
  if (mode == 0) return runs;
  const auto vpp = static_cast<std::int64_t>(runs.size());
  StageRuns all;
  for (std::int64_t k = 0; k < vpp; ++k)
    recompute_chunk(runs[static_cast<std::size_t>(k)], mode,
                    recomputed_of_chunk(recomputed, vpp, k), inventory.program->class_count,
                    all.emplace_back());
  return all;
}

void CostModel::lay_out_chunks() {
  runs_.clear();
  const auto on_stages = pieces(*problem_.program, layout_);
  for (std::size_t i = 0; i < on_stages.size(); ++i) {
    const std::int64_t full =
        layout_.recompute_layers.empty() ? layout_.stage_layers[i] : layout_.recompute_layers[i];
    runs_.push_back(recompute(runs(on_stages[i]), layout_.recompute, full, inventory_));
  }
}

ChunkPeak CostModel::peak_of(const StaticSums& stage, const std::vector<Run>& runs,
                             const std::vector<const SegmentCost*>& costs, bool backward,
                             bool gradients_grow) const {
  ChunkPeak best;
  best.bytes = {-1, -1};
  std::int64_t grown_after = 0;
  if (gradients_grow)
    for (const Run& r : runs) grown_after += r.count * stage.grown[r.trace];
  // What lies over from a neighbour differs at the ends of a run; the rest grows or falls evenly.
  const bool even = inventory_.spills.empty();
  Bytes before;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Run& r = runs[i];
    const SegmentCost& c = *costs[i];
    const Bytes& own = backward ? c.backward : c.forward;
    const std::int64_t grown_each = gradients_grow ? stage.grown[r.trace] : 0;
    // What spills over to it: of what ran just before and stays, of what runs next and comes early.
    const auto spilled_to = [&](std::int64_t at) {
      const auto of = [&](bool earlier, bool late) -> std::int64_t {
        const bool same = earlier ? at > 0 : at + 1 < r.count;
        if (!same && (earlier ? i == 0 : i + 1 == runs.size())) return 0;
        return spill(same ? r.trace : runs[earlier ? i - 1 : i + 1].trace, backward, late);
      };
      return std::array<std::int64_t, 2>{of(!backward, true), of(backward, false)};
    };
    const auto consider = [&](std::int64_t at) {
      // Gradients of the layers that this backward has passed, and of the one it is in.
      const std::int64_t grown = grown_after - at * grown_each;
      std::array<std::int64_t, 2> extra = {0, 0};
      if (!even) extra = spilled_to(at);
      const Int128 live =
          Int128{before.live} + Int128{at} * c.saved.live + own.live + extra[0] + extra[1] + grown;
      if (live <= best.bytes.live) return;
      Bytes here = before + at * c.saved + own;
      for (const std::int64_t e : extra) here += {e, in_blocks(e)};
      here += {grown, grown};
      best = {here, i, at};
    };
    consider(0);
    if (!even && r.count > 1) consider(1);
    if (!even && r.count > 3) consider(r.count - 2);
    if (r.count > 1 && (even || r.count > 2)) consider(r.count - 1);
    before += r.count * c.saved;
    grown_after -= r.count * grown_each;
  }
  if (best.bytes.live < 0) best.bytes = {};
  return best;
}

void CostModel::price_chunk(const StaticSums& stage, ChunkCost& c, bool alone) const {
  c.saved = {};
  run_costs_.clear();
  for (const Run& r : c.runs) {
    run_costs_.push_back(&cost(r));
    c.saved += r.count * run_costs_.back()->saved;
  }
  c.forward = peak_of(stage, c.runs, run_costs_, false, false);
  c.backward = peak_of(stage, c.runs, run_costs_, true, false);
  c.first_backward = alone ? peak_of(stage, c.runs, run_costs_, true, true) : c.backward;
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

/// Do two stages hold the same segments, so that only the micro-batches in flight tell them apart?
bool CostModel::alike(std::int64_t a, std::int64_t b) const {
  const std::int64_t last = layout_.pp - 1;
  if (role(a) < 0 || role(a) != role(b) || !inventory_.shared.empty() || (a == 0) != (b == 0) ||
      (a == last) != (b == last))
    return false;
  const auto& x = runs_[static_cast<std::size_t>(a)];
  const auto& y = runs_[static_cast<std::size_t>(b)];
  for (std::size_t k = 0; k < x.size(); ++k)
    if (!same_segments(x[k], y[k])) return false;
  return true;
}

const std::vector<Holding>& CostModel::holdings_of(std::int64_t stage) {
  const std::vector<Holding>*& here = holdings_here_[static_cast<std::size_t>(stage)];
  if (here != nullptr) return *here;
  const std::int64_t few = std::min(
      layout_.microbatches, enough_microbatches(layout_.schedule, layout_.pp, layout_.vpp, stage));
  const std::array<std::int64_t, 5> key{static_cast<std::int64_t>(layout_.schedule), layout_.pp,
                                        layout_.vpp, few, stage};
  const auto [at, is_new] = holdings_.try_emplace(key);
  if (is_new) at->second = holdings(layout_.schedule, layout_.pp, layout_.vpp, few, stage);
  here = &at->second;
  return at->second;
}

Bytes CostModel::moment_bytes(const StaticSums& s, const std::vector<ChunkCost>& chunks,
                              const Holding& h, bool first_step) const {
  const int g = h.gradients == 2;
  Bytes bytes = h.backward ? (first_step ? s.backward_first[g] : s.backward[g])
                           : (first_step ? s.forward_first[g] : s.forward[g]);
  std::int64_t micro_batches = 0;
  for (std::size_t k = 0; k < h.alive.size(); ++k) {
    bytes += h.alive[k] * chunks[k].saved;
    micro_batches = std::max<std::int64_t>(micro_batches, h.alive[k]);
  }
  const ChunkCost& c = chunks[static_cast<std::size_t>(h.chunk)];
  bytes = bytes - c.saved;
  bytes += (!h.backward ? c.forward : h.gradients == 1 ? c.first_backward : c.backward).bytes;
  bytes += micro_batches * s.shared;
  if (h.backward) bytes += s.shared_gradients;
  return bytes;
}

Bytes CostModel::most(std::int64_t stage, const StaticSums& s,
                      const std::vector<ChunkCost>& chunks) {
  Bytes best{-1, -1};
  for (const Holding& h : holdings_of(stage)) {
    const int g = h.gradients == 2;
    const ChunkCost& c = chunks[static_cast<std::size_t>(h.chunk)];
    Int128 live = (h.backward ? s.backward[g] : s.forward[g]).live;
    std::int64_t micro_batches = 0;
    for (std::size_t k = 0; k < h.alive.size(); ++k) {
      live += Int128{h.alive[k]} * chunks[k].saved.live;
      micro_batches = std::max<std::int64_t>(micro_batches, h.alive[k]);
    }
    live += (!h.backward        ? c.forward
             : h.gradients == 1 ? c.first_backward
                                : c.backward)
                .bytes.live -
            c.saved.live;
    live += Int128{micro_batches} * s.shared.live;
    if (h.backward) live += s.shared_gradients.live;
    if (live > best.live) best = moment_bytes(s, chunks, h, false);
  }
  for (const Bytes& b : {s.update, s.between})
    if (b.live > best.live) best = b;
  return best;
}

Bytes CostModel::most(std::int64_t stage, std::int64_t& outside) {
  const StageCost& s = kept_stage(stage);
  outside = s.outside;
  return most(stage, s, s.chunks);  // as moments() orders them
}

Constructed CostModel::constructed(std::int64_t stage) {
  Constructed c;
  if (layout_.zero != 1 && layout_.zero != 2) return c;
  for (const StaticBytes& s : kept_stage(stage).statics) {
    const Item& item = inventory_.items[s.item];
    if (item.lifetime.kind != LifetimeKind::always || item.category > Category::gradients) continue;
    c.together += s.bytes.blocks;
    if (item.category != Category::weights || item.place.kind == Place::stage) continue;
    c.parameters += s.bytes.blocks;
    c.together += s.bytes.blocks;
  }
  return c;
}

void CostModel::price_chunks(std::int64_t stage, const StaticSums& sums, const StageRuns& runs,
                             RecomputeMode mode, std::int64_t recomputed,
                             std::vector<ChunkCost>& out) {
  trace_stage(stage, runs);
  const auto vpp = static_cast<std::int64_t>(runs.size());
  out.resize(runs.size());
  for (std::size_t k = 0; k < runs.size(); ++k) {
    out[k].runs.clear();
    recompute_chunk(runs[k], mode,
                    recomputed_of_chunk(recomputed, vpp, static_cast<std::int64_t>(k)),
                    problem_.program->class_count, out[k].runs);
    // Chunks of equal segments cost the same, and most are.
    if (k > 0 && same_segments(out[k].runs, out[k - 1].runs)) {
      out[k].saved = out[k - 1].saved;
      out[k].forward = out[k - 1].forward;
      out[k].backward = out[k - 1].backward;
      out[k].first_backward = out[k - 1].first_backward;
    } else {
      price_chunk(sums, out[k], vpp == 1);
    }
  }
}

CostModel::Dropped CostModel::most_dropped(std::int64_t stage, const StageRuns& runs) {
  Dropped out;
  for (const Holding& h : holdings_of(stage)) {
    std::int64_t all = 0;
    for (const std::int64_t alive : h.alive) {
      out.held = std::max(out.held, alive);
      all += alive;
    }
    out.held_by_all = std::max(out.held_by_all, all);
  }
  for (const std::vector<Run>& chunk : runs)
    for (const Run& r : chunk) {
      if (r.trace >= problem_.program->class_count) continue;
      const SegmentCost& none = cost({r.trace, 0, 1, 0});
      const SegmentCost& full = cost({r.trace, kFullRecompute, 1, 0});
      out.saved = std::max(out.saved, none.saved.live - full.saved.live);
      out.once = std::max({out.once, none.forward.live - full.forward.live,
                           none.backward.live - full.backward.live});
    }
  return out;
}

std::int64_t CostModel::host_bytes(std::int64_t stage) {
  const StageCost& s = kept_stage(stage);
  if (!inventory_.offloads_activations) return s.host;
  std::vector<std::int64_t> away;  // by chunk
  for (const ChunkCost& c : s.chunks) {
    std::int64_t sum = 0;
    for (const Run& r : c.runs)
      for (const TraceEvent& e : inventory_.traces[r.mode][r.trace].forward)
        if (e.host) sum += r.count * tensors(r.mode, r.trace)[e.index];
    away.push_back(sum);
  }
  std::int64_t most = 0;
  for (const Holding& h : holdings_of(stage)) {
    std::int64_t sum = 0;
    for (std::size_t k = 0; k < h.alive.size(); ++k) sum += h.alive[k] * away[k];
    most = std::max(most, sum);
  }
  return s.host + most;
}

Bytes CostModel::forward_alone(const StageCost& s) const {
  Bytes most;
  // A recomputed layer's forward keeps its input alone.
  const RecomputeMode mode = inventory_.traces.size() > kFullRecompute ? kFullRecompute : 0;
  for (const ChunkCost& c : s.chunks)
    for (Run r : c.runs) {
      r.mode = r.trace < problem_.program->class_count ? mode : 0;
      const Bytes& here = cost(r).forward;
      if (here.live > most.live) most = here;
    }
  return most;
}

std::vector<Moment> CostModel::moments(const StageCost& s, bool first_step) const {
  std::vector<Moment> list;
  for (std::size_t i = 0; i < s.holdings.size(); ++i)
    list.push_back({s.holdings[i].backward ? Moment::backward : Moment::forward, i,
                    moment_bytes(s, s.chunks, s.holdings[i], first_step)});
  list.push_back({Moment::update, 0, s.update});
  list.push_back({Moment::between, 0, s.between});
  std::stable_sort(list.begin(), list.end(),
                   [](const Moment& a, const Moment& b) { return a.bytes.live > b.bytes.live; });
  return list;
}

}  // namespace plimsoll
