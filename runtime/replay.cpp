// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/replay.hpp"

#include <algorithm>
#include <deque>
#include <map>

#include "lang/diagnostics.hpp"
#include "planner/stage_cost.hpp"
#include "runtime/state_pieces.hpp"

namespace plimsoll::runtime {

namespace {

/// A tensor in its block.
struct Held {
  BlockId block = kNoBlock;
  std::int64_t bytes = 0;
  StreamId stream = 0;
};

/// Ends the replay; never leaves this file.
struct OutOfMemory {
  ReplayFailure failure;
};

/// An item outside the traces.
struct Static {
  const Item* item = nullptr;
  Presence when;
  bool grows = false;  ///< gradients that the first backward makes segment by segment
  std::vector<std::int64_t> pieces;
  std::vector<Held> held;
};

/// What one micro-batch holds of one segment, by tensor of its trace.
using Tensors = std::vector<Held>;

enum class Part { forward, backward, update, between };

class Player {
 public:
  Player(const Problem& p, const Layout& l, std::int64_t stage, const AllocatorOptions& options,
         std::int64_t capacity)
      : problem_(p),
        layout_(l),
        model_(p),
        backing_(static_cast<std::int64_t>(p.cluster->pools.front().gpu.memory), capacity),
        allocator_(backing_, options) {
    model_.set(l);
    cost_ = model_.stage(stage);
    order_ = slots(l.schedule, l.pp, l.vpp, l.microbatches, stage);
    collect_statics();
  }

  ReplayResult play(int steps);

 private:
  StreamId stream(const Item& item) {
    return streams_.try_emplace(item.stream, static_cast<StreamId>(streams_.size())).first->second;
  }
  Held get(std::int64_t bytes, const Item* item);
  void drop(Held&);
  void collect_statics();
  bool wanted(const Static&, Part) const;
  void enter(Part);
  void grow(const Run&);
  void play_step();
  void forward_slot(std::size_t chunk);
  void backward_slot(std::size_t chunk);
  void pass(const ChunkCost&, std::size_t run, std::int64_t index, bool backward, Tensors&);
  ItemRows neighbours(const ChunkCost&, std::size_t run, std::int64_t index, bool backward);
  void flush();
  void share();
  const Item* item_of(std::uint32_t row) const {
    return row == kNone ? nullptr : &problem_.inventory.items[row];
  }

  const Problem& problem_;
  const Layout& layout_;
  CostModel model_;
  CountingBacking backing_;
  Allocator allocator_;
  StageCost cost_;
  std::vector<Slot> order_;
  std::map<std::string, StreamId> streams_{{"", 0}};
  std::vector<Static> statics_;
  std::vector<std::pair<std::int64_t, const Item*>> shared_;  ///< of each micro-batch
  std::vector<std::vector<Held>> shared_held_;
  /// By chunk, the micro-batches in flight, oldest first; each by segment in forward order.
  std::vector<std::deque<std::vector<Tensors>>> alive_;
  std::vector<Held> handed_;  ///< freed where a segment ended; the next one may go on with them
  Held shared_gradients_;
  int step_ = 0;
  bool any_backward_ = false, grown_ = false, updated_ = false, backward_ = false;
  std::int64_t blocks_ = 0, most_blocks_ = 0;
};

Held Player::get(std::int64_t bytes, const Item* item) {
  if (bytes == 0) return {};
  Held h{kNoBlock, bytes, item ? stream(*item) : 0};
  const std::optional<BlockId> block = allocator_.allocate(bytes, h.stream);
  if (!block) {
    const AllocatorStats& s = allocator_.stats();
    throw OutOfMemory{{item ? item->name : "values that several segments read", bytes, step_,
                       backward_, s.allocated.now, s.reserved.now}};
  }
  h.block = *block;
  most_blocks_ = std::max(most_blocks_, ++blocks_);
  return h;
}

void Player::drop(Held& h) {
  if (h.block != kNoBlock) {
    allocator_.free(h.block);
    --blocks_;
  }
  h = {};
}

void Player::collect_statics() {
  Bytes rest = cost_.shared;
  for (const StaticBytes& s : cost_.statics) {
    const Item& item = problem_.inventory.items[s.item];
    if (item.outside || s.bytes.live == 0) continue;
    if (item.lifetime.kind == LifetimeKind::microbatch) {
      shared_.push_back({s.bytes.live, &item});
      rest = rest - s.bytes;
      continue;
    }
    Static st;
    st.item = &item;
    st.when = presence(item.lifetime);
    st.grows = st.when.accumulates && item.place.kind != Place::stage;
    st.pieces = state_pieces(problem_, layout_, cost_, item, s.bytes.live, model_.env());
    statics_.push_back(std::move(st));
  }
  if (rest.live > 0) shared_.push_back({rest.live, nullptr});
  alive_.resize(cost_.chunks.size());
}

bool Player::wanted(const Static& s, Part part) const {
  if (!s.when.from_start && !updated_) return false;
  switch (part) {
    case Part::forward:
      return s.when.in_forward(any_backward_);
    case Part::backward:
      return s.when.backward;
    case Part::update:
      return s.when.update;
    case Part::between:
      return s.when.between;
  }
  return false;
}

/// Items come and go where a part of the step begins.
void Player::enter(Part part) {
  backward_ = part == Part::backward;
  for (Static& s : statics_)
    if (!wanted(s, part)) {
      for (Held& h : s.held) drop(h);
      s.held.clear();
    }
  for (Static& s : statics_) {
    if (!wanted(s, part) || !s.held.empty() || s.grows) continue;
    for (const std::int64_t bytes : s.pieces) s.held.push_back(get(bytes, s.item));
  }
}

/// Gradients that a step's first backward of a segment leaves.
void Player::grow(const Run& run) {
  for (const auto& [row, bytes] : cost_.growing[run.trace]) {
    const Item& item = problem_.inventory.items[row];
    for (Static& s : statics_)
      if (s.grows && s.item->name == item.name && s.item->category == item.category)
        s.held.push_back(get(bytes, &item));
  }
}

/// Rows of the segments before and after that live in this one's time, as CostModel counts them.
ItemRows Player::neighbours(const ChunkCost& chunk, std::size_t run, std::int64_t index,
                            bool backward) {
  ItemRows rows;
  if (problem_.inventory.spills.empty()) return rows;
  const auto add = [&](bool earlier, bool late) {
    const bool same = earlier ? index > 0 : index + 1 < chunk.runs[run].count;
    if (!same && (earlier ? run == 0 : run + 1 == chunk.runs.size())) return;
    const Run& there = chunk.runs[same ? run : earlier ? run - 1 : run + 1];
    for (const auto& row : model_.spilled(there.trace, backward, late)) rows.push_back(row);
  };
  add(!backward, true);
  add(backward, false);
  return rows;
}

void Player::flush() {
  for (Held& h : handed_) drop(h);
  handed_.clear();
}

/// One segment's turn. Nothing counts between a segment's last moment and the next one's first, so
/// what the one frees there and the other makes there, equal in size, is one block all along.
void Player::pass(const ChunkCost& chunk, std::size_t run, std::int64_t index, bool backward,
                  Tensors& tensors) {
  const Run& r = chunk.runs[run];
  const SegmentTrace& trace = problem_.inventory.traces[r.mode][r.trace];
  const std::vector<std::int64_t>& bytes = model_.tensors(r.mode, r.trace);
  const std::vector<TraceEvent>& events = backward ? trace.backward : trace.forward;
  tensors.resize(trace.tensors.size());
  std::size_t begin = 0, end = events.size();
  while (begin < end && events[begin].kind == TraceEvent::alloc) ++begin;
  while (end > begin && events[end - 1].kind == TraceEvent::free) --end;

  std::vector<std::pair<Held*, const Item*>> wanted;  // at the start
  std::vector<Held> extra;
  const ItemRows rows = neighbours(chunk, run, index, backward);
  extra.reserve(rows.size());
  const auto want = [&](Held& place, std::int64_t size, const Item* item) {
    if (size == 0) return;
    const StreamId pool = item ? stream(*item) : 0;
    const auto same = std::find_if(handed_.begin(), handed_.end(), [&](const Held& h) {
      return h.bytes == size && h.stream == pool;
    });
    if (same == handed_.end()) {
      place.bytes = size;
      wanted.push_back({&place, item});
      return;
    }
    place = *same;
    handed_.erase(same);
  };
  for (const auto& [row, size] : rows) {
    extra.emplace_back();
    want(extra.back(), size, item_of(row));
  }
  for (std::size_t i = 0; i < begin; ++i) {
    const std::uint32_t t = events[i].index;
    want(tensors[t], bytes[t], item_of(trace.tensors[t].item));
  }
  flush();
  for (const auto& [place, item] : wanted) *place = get(place->bytes, item);
  for (std::size_t i = begin; i < end; ++i) {
    const std::uint32_t t = events[i].index;
    if (events[i].kind == TraceEvent::alloc)
      tensors[t] = get(bytes[t], item_of(trace.tensors[t].item));
    else if (events[i].kind == TraceEvent::free)
      drop(tensors[t]);
  }
  const auto hand_on = [&](Held& h) {
    if (h.block != kNoBlock) handed_.push_back(h);
    h = {};
  };
  for (std::size_t i = end; i < events.size(); ++i) hand_on(tensors[events[i].index]);
  for (Held& h : extra) hand_on(h);
}

/// Values that several segments read: once for each micro-batch that any chunk holds.
void Player::share() {
  std::size_t micro_batches = 0;
  for (const auto& a : alive_) micro_batches = std::max(micro_batches, a.size());
  while (shared_held_.size() > micro_batches) {
    for (Held& h : shared_held_.front()) drop(h);
    shared_held_.erase(shared_held_.begin());
  }
  while (shared_held_.size() < micro_batches) {
    shared_held_.emplace_back();
    for (const auto& [bytes, item] : shared_) shared_held_.back().push_back(get(bytes, item));
  }
}

void Player::forward_slot(std::size_t c) {
  const ChunkCost& chunk = cost_.chunks[c];
  enter(Part::forward);
  alive_[c].emplace_back();
  share();
  std::vector<Tensors>& micro_batch = alive_[c].back();
  for (std::size_t run = 0; run < chunk.runs.size(); ++run)
    for (std::int64_t i = 0; i < chunk.runs[run].count; ++i) {
      micro_batch.emplace_back();
      pass(chunk, run, i, false, micro_batch.back());
    }
  flush();
}

void Player::backward_slot(std::size_t c) {
  const ChunkCost& chunk = cost_.chunks[c];
  any_backward_ = true;
  enter(Part::backward);
  shared_gradients_ = get(cost_.shared_gradients.live, nullptr);
  if (!grown_ && layout_.vpp > 1)
    for (const ChunkCost& each : cost_.chunks)
      for (const Run& run : each.runs)
        for (std::int64_t i = 0; i < run.count; ++i) grow(run);
  std::vector<Tensors>& micro_batch = alive_[c].front();
  for (std::size_t run = chunk.runs.size(); run-- > 0;)
    for (std::int64_t i = chunk.runs[run].count; i-- > 0;) {
      if (!grown_ && layout_.vpp == 1) grow(chunk.runs[run]);
      pass(chunk, run, i, true, micro_batch.back());
      for (const Held& h : micro_batch.back()) PLIMSOLL_ASSERT(h.block == kNoBlock);
      micro_batch.pop_back();
    }
  flush();
  grown_ = true;
  drop(shared_gradients_);
  alive_[c].pop_front();
  share();
}

void Player::play_step() {
  any_backward_ = grown_ = false;
  for (const Slot& slot : order_) {
    const auto chunk = static_cast<std::size_t>(slot.chunk);
    if (slot.backward)
      backward_slot(chunk);
    else
      forward_slot(chunk);
  }
  updated_ = true;  // moments are made as the first update begins
  enter(Part::update);
  enter(Part::between);
}

ReplayResult Player::play(int steps) {
  ReplayResult result;
  try {
    enter(Part::between);
    for (step_ = 1; step_ <= steps; ++step_) {
      play_step();
      if (step_ == 1) result.first_step_reserved = allocator_.stats().reserved.now;
    }
  } catch (const OutOfMemory& out) {
    result.failure = out.failure;
  }
  result.stats = allocator_.stats();
  result.peak_requested = result.stats.requested.peak;
  result.peak_allocated = result.stats.allocated.peak;
  result.peak_reserved = result.stats.reserved.peak;
  result.segments = result.stats.segments.now;
  result.blocks_at_end = blocks_;
  result.most_blocks = most_blocks_;
  return result;
}

}  // namespace

ReplayResult replay(const Problem& problem, const Layout& layout, std::int64_t stage,
                    const AllocatorOptions& options, int steps, std::int64_t capacity) {
  return Player(problem, layout, stage, options, capacity).play(steps);
}

}  // namespace plimsoll::runtime
