// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/segments.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/schedule.hpp"
#include "planner/stages.hpp"
#include "runtime/replay.hpp"

namespace plimsoll::runtime {

namespace {

/// All that tells two stages of one problem apart.
using Key = std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>;

/// What lies on a chunk: runs of equal layers (their class and their number), and what is beside
/// layers.
void add_layers(const Program& program, const Piece& chunk, std::vector<std::int64_t>& key) {
  const std::size_t begin = key.size();
  for (std::size_t i = 0; i < program.segments.size(); ++i) {
    const Segment& s = program.segments[i];
    if (s.layer < chunk.first || s.layer >= chunk.first + chunk.count) continue;
    const std::int64_t what = s.is_layer ? s.layer_class : -1 - static_cast<std::int64_t>(i);
    if (key.size() == begin || key[key.size() - 2] != what) key.insert(key.end(), {what, 0});
    ++key.back();
  }
}

/// Where a chunk begins, in a key.
constexpr std::int64_t kChunk = std::numeric_limits<std::int64_t>::min();

/// What the others hold does not matter, unless stages share items.
std::vector<std::int64_t> held_by(const Problem& p, const Layout& l, std::int64_t stage) {
  std::vector<std::int64_t> key;
  if (!p.inventory.shared.empty()) {
    key = l.stage_layers;
    key.insert(key.end(), l.recompute_layers.begin(), l.recompute_layers.end());
    return key;
  }
  if (!l.recompute_layers.empty())
    key.push_back(l.recompute_layers[static_cast<std::size_t>(stage)]);
  const std::vector<std::vector<Piece>> chunks = pieces(*p.program, l);
  for (const Piece& chunk : chunks[static_cast<std::size_t>(stage)]) {
    key.push_back(kChunk);
    add_layers(*p.program, chunk, key);
  }
  return key;
}

Key key_of(const Problem& p, const Layout& l, std::int64_t stage) {
  Key key;
  key.first = {stage,
               l.tp,
               l.pp,
               l.vpp,
               l.cp,
               l.ep,
               l.etp,
               l.dp,
               l.zero,
               l.shard,
               l.mbs,
               l.microbatches,
               l.sp ? 1 : 0,
               static_cast<std::int64_t>(l.recompute),
               static_cast<std::int64_t>(l.schedule),
               static_cast<std::int64_t>(l.offload.num()),
               static_cast<std::int64_t>(l.offload.den()),
               l.seq,
               l.batch,
               l.nodes};
  for (const std::uint32_t pool : l.stage_pool) key.first.push_back(pool);
  key.second = held_by(p, l, stage);
  return key;
}

/// Micro-batches played that find the pipeline full: of the first step, of the second.
constexpr std::int64_t kFirstFew = 1, kFew = 2;

/// Micro-batches of a step that are played: as many as fill the pipeline, and \a few that find it
/// full. Runs that were measured with 4, 8 and 32 of them reserve the same (S1).
std::int64_t played_micro_batches(const Layout& l, std::int64_t stage, std::int64_t few) {
  if (l.schedule == Schedule::gpipe) return l.microbatches;
  if (l.schedule == Schedule::one_f_one_b || l.schedule == Schedule::zb_h1)
    return std::min(l.microbatches, l.pp - stage + few);
  // Interleaved schedules take whole groups of pp, and hold those of two at most. The second step
  // plays every chunk once more with the pipeline full.
  const std::int64_t groups = few == kFirstFew ? 2 : 2 + (few + l.pp - 1) / l.pp;
  return std::min(l.microbatches, groups * l.pp);
}

std::vector<Slot> played(const Layout& l, std::int64_t stage, std::int64_t few) {
  return slots(l.schedule, l.pp, l.vpp, played_micro_batches(l, stage, few), stage);
}

class Replayed final : public Segments {
 public:
  std::int64_t reserved(const Problem& p, const Layout& l, std::int64_t stage) override {
    return *within(std::numeric_limits<std::int64_t>::max(), p, l, stage);
  }

  bool more_than(std::int64_t bytes, const Problem& p, const Layout& l,
                 std::int64_t stage) override {
    return !within(bytes, p, l, stage);
  }

  std::shared_ptr<Segments> fresh() const override { return std::make_shared<Replayed>(); }

 private:
  struct Known {
    std::optional<std::int64_t> bytes;
    std::int64_t more_than = -1;  ///< while bytes is not known
  };

  /// The bytes where they are \a limit at most.
  std::optional<std::int64_t> within(std::int64_t limit, const Problem& p, const Layout& l,
                                     std::int64_t stage) {
    const Key key = key_of(p, l, stage);
    {
      const std::lock_guard lock(mutex_);
      const Known& known = known_[key];
      if (known.bytes) return *known.bytes <= limit ? known.bytes : std::nullopt;
      if (known.more_than >= limit) return std::nullopt;
    }
    const std::optional<std::int64_t> bytes = replayed(limit, p, l, stage);
    const std::lock_guard lock(mutex_);
    Known& known = known_[key];
    if (bytes) known.bytes = bytes;
    known.more_than = std::max(known.more_than, limit);
    return bytes;
  }

  static std::optional<std::int64_t> replayed(std::int64_t limit, const Problem& p, const Layout& l,
                                              std::int64_t stage) {
    const AllocatorOptions options = allocator_options(p);
    StagePlan plan(p, l, rank_in_stage(l, 0, stage));
    plan.first_slots = played(l, stage, kFirstFew);
    plan.slots = played(l, stage, kFew);
    const std::optional<std::int64_t> most = reserved_within(limit, plan, options);
    const std::int64_t last_rank = rank_in_stage(l, l.tp * l.cp * l.dp - 1, stage);
    if (!most || last_rank == plan.place.rank) return most;
    const std::vector<PlannedState> states = plan.states;
    plan.set_rank(last_rank);
    if (same_pieces(states, plan.states)) return most;
    const std::optional<std::int64_t> other = reserved_within(limit, plan, options);
    return other ? std::max(most, other) : std::nullopt;
  }

  static bool same_pieces(const std::vector<PlannedState>& a, const std::vector<PlannedState>& b) {
    return std::equal(
        a.begin(), a.end(), b.begin(), b.end(),
        [](const PlannedState& x, const PlannedState& y) { return x.pieces == y.pieces; });
  }

  std::mutex mutex_;
  std::map<Key, Known> known_;
};

}  // namespace

std::shared_ptr<Segments> replayed_segments() { return std::make_shared<Replayed>(); }

}  // namespace plimsoll::runtime
