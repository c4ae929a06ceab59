// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/coupled_tables.hpp"

#include <algorithm>

namespace plimsoll {

namespace {

constexpr Int128 kNever = Int128{1} << 100;

Int128 step(const Composition& c, std::int64_t slowest, Int128 sum, std::int64_t tail) {
  const Int128 scaled = (Int128{c.microbatches} * c.of - c.idle) * slowest + c.idle * sum;
  return (scaled + c.of - 1) / c.of + c.sends + tail;
}

}  // namespace

/// The least that the stages on one side of an offset add, each number of its own.
struct StageTables::Reached {
  Int128 sum = kNever;
  std::int64_t slowest = 0, tail = 0;

  bool any() const { return sum < kNever; }
  void add(const Reached& from, const StageCell::Way& way) {
    const Int128 total = from.sum + way.pace;
    const std::int64_t pace = std::max(from.slowest, way.pace),
                       late = std::max(from.tail, way.tail);
    if (!any()) {
      *this = {total, pace, late};
      return;
    }
    sum = std::min(sum, total);
    slowest = std::min(slowest, pace);
    tail = std::min(tail, late);
  }
};

StageTables::StageTables(Inner& inner, bool by_recomputed, std::int64_t cutoff)
    : stages_(inner.stages()),
      round_(inner.round_layers()),
      cutoff_(cutoff),
      by_recomputed_(by_recomputed && inner.recomputes()),
      composition_(inner.composition()) {
  if (round_ < stages_) return;
  collect(inner);
  // What the stages on both sides add leaves out more, until nothing is left out any more.
  while (!cells_.empty() && prune()) {
  }
}

void StageTables::add(Inner& inner, std::int64_t stage, std::int64_t offset) {
  const std::int64_t left = stages_ - stage - 1;
  const std::int64_t first = left == 0 ? round_ - offset : 1;
  for (std::int64_t count = first; count <= round_ - offset - left; ++count) {
    const std::int64_t pace = inner.least_pace(stage, offset, count);
    if (step(composition_, pace, pace, 0) > cutoff_) break;  // more layers are no faster
    const StageChoice& least = inner.least(stage, offset, count);
    if (!least.fits) {
      const bool all = inner.hopeless(stage, offset, count);
      gaps_[static_cast<std::size_t>(stage)].push_back({offset, count, all ? round_ : count});
      if (all) break;
      continue;
    }
    StageCell cell{offset, count, {{least.recomputed, least.pace, least.tail}}};
    const std::int64_t most = by_recomputed_ ? count * inner.chunks() : least.recomputed;
    for (std::int64_t r = least.recomputed + 1; r <= most; ++r) {
      const StageChoice choice = inner.with(stage, offset, count, r);
      if (step(composition_, choice.pace, choice.pace, 0) > cutoff_) break;
      if (choice.fits) cell.ways.push_back({r, choice.pace, choice.tail});
    }
    cells_[static_cast<std::size_t>(stage)].push_back(std::move(cell));
  }
}

void StageTables::collect(Inner& inner) {
  cells_.assign(static_cast<std::size_t>(stages_), {});
  gaps_.assign(static_cast<std::size_t>(stages_), {});
  std::vector<char> reached(static_cast<std::size_t>(round_ + 1));
  reached[0] = 1;
  for (std::int64_t i = 0; i < stages_; ++i) {
    std::vector<char> next(reached.size());
    for (std::int64_t o = i; o <= round_ - (stages_ - i); ++o)
      if (reached[static_cast<std::size_t>(o)] != 0) add(inner, i, o);
    for (const StageCell& c : of(i)) next[static_cast<std::size_t>(c.offset + c.count)] = 1;
    reached = std::move(next);
  }
}

/// Leaves out the cells that no step within the cutoff has. True where there were any.
bool StageTables::prune() {
  const auto at = [&](std::int64_t stage, std::int64_t offset) {
    return static_cast<std::size_t>(stage * (round_ + 1) + offset);
  };
  std::vector<Reached> before(at(stages_, round_) + 1), behind(before.size());
  before[at(0, 0)].sum = 0;
  for (std::int64_t i = 0; i < stages_; ++i)
    for (const StageCell& c : of(i))
      if (const Reached& from = before[at(i, c.offset)]; from.any())
        before[at(i + 1, c.offset + c.count)].add(from, c.first());
  behind[at(stages_, round_)].sum = 0;
  for (std::int64_t i = stages_ - 1; i >= 0; --i)
    for (const StageCell& c : of(i))
      if (const Reached& from = behind[at(i + 1, c.offset + c.count)]; from.any())
        behind[at(i, c.offset)].add(from, c.first());
  bool pruned = false;
  for (std::int64_t i = 0; i < stages_; ++i) {
    std::vector<StageCell>& list = cells_[static_cast<std::size_t>(i)];
    for (StageCell& c : list) {
      const Reached& a = before[at(i, c.offset)];
      const Reached& b = behind[at(i + 1, c.offset + c.count)];
      const StageCell::Way& way = c.first();
      if (a.any() && b.any() &&
          step(composition_, std::max({a.slowest, b.slowest, way.pace}), a.sum + b.sum + way.pace,
               std::max({a.tail, b.tail, way.tail})) <= cutoff_)
        continue;
      c.ways.clear();
      pruned = true;
    }
    std::erase_if(list, [](const StageCell& c) { return c.ways.empty(); });
    if (list.empty()) {
      cells_.clear();
      return false;
    }
  }
  return pruned;
}

const StageCell* StageTables::find(std::int64_t stage, std::int64_t offset,
                                   std::int64_t count) const {
  const std::vector<StageCell>& list = of(stage);
  const auto it = std::lower_bound(
      list.begin(), list.end(), std::pair(offset, count),
      [](const StageCell& c, const auto& key) { return std::pair(c.offset, c.count) < key; });
  return it != list.end() && it->offset == offset && it->count == count ? &*it : nullptr;
}

Int128 StageTables::least_sum(std::int64_t slowest) const {
  std::vector<Int128> sums(static_cast<std::size_t>(round_ + 1), kNever);
  sums[0] = 0;
  for (std::int64_t i = 0; i < stages_; ++i) {
    std::vector<Int128> next(sums.size(), kNever);
    for (const StageCell& c : of(i)) {
      if (c.first().pace > slowest) continue;
      Int128& there = next[static_cast<std::size_t>(c.offset + c.count)];
      there = std::min(there, sums[static_cast<std::size_t>(c.offset)] + c.first().pace);
    }
    sums = std::move(next);
  }
  return sums.back() < kNever ? sums.back() : -1;
}

std::vector<std::int64_t> StageTables::paces() const {
  std::vector<std::int64_t> out;
  for (const auto& list : cells_)
    for (const StageCell& c : list)
      for (const StageCell::Way& way : c.ways) out.push_back(way.pace);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace plimsoll
