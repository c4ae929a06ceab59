// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "planner/inner.hpp"

/// What each stage could hold and what that takes, for solve_coupled(). Private to it.
namespace plimsoll {

/// A stage that takes `count` layers of each round from `offset` on.
struct StageCell {
  /// A number of recomputed layers with which it fits.
  struct Way {
    std::int64_t recomputed = 0, pace = 0, tail = 0;
    friend bool operator==(const Way&, const Way&) = default;
  };
  std::int64_t offset = 0, count = 0;
  std::vector<Way> ways;  ///< ascending by recomputed, and so by pace; never empty

  const Way& first() const { return ways.front(); }
};

/// Counts of a stage at an offset that do not fit.
struct StageGap {
  std::int64_t offset = 0, first = 0, last = 0;
};

/// The cells of each stage that may be part of a step of at most `cutoff` nanoseconds.
class StageTables {
 public:
  /// \a by_recomputed: every number of recomputed layers, not the least only.
  StageTables(Inner&, bool by_recomputed, std::int64_t cutoff);

  bool empty() const { return cells_.empty(); }  ///< no way within the cutoff
  std::int64_t stages() const { return stages_; }
  std::int64_t round() const { return round_; }
  bool by_recomputed() const { return by_recomputed_; }
  const std::vector<StageCell>& of(std::int64_t stage) const {
    return cells_[static_cast<std::size_t>(stage)];
  }
  const std::vector<StageGap>& gaps(std::int64_t stage) const {
    return gaps_[static_cast<std::size_t>(stage)];
  }
  /// nullptr where there is none.
  const StageCell* find(std::int64_t stage, std::int64_t offset, std::int64_t count) const;
  /// The least sum of paces of any way whose stages are all at most that slow; -1: there is none.
  Int128 least_sum(std::int64_t slowest) const;
  /// Every pace of a cell, ascending.
  std::vector<std::int64_t> paces() const;

 private:
  struct Reached;
  void collect(Inner&);
  void add(Inner&, std::int64_t stage, std::int64_t offset);
  bool prune();

  std::int64_t stages_, round_, cutoff_;
  bool by_recomputed_;
  Composition composition_;
  std::vector<std::vector<StageCell>> cells_;  ///< by stage; by offset, then count
  std::vector<std::vector<StageGap>> gaps_;
};

/// Cells of one count that say the same, on neighbouring offsets but for those that hold no cell.
struct CellGroup {
  std::int64_t first = 0, last = 0;  ///< offsets
  const StageCell* cell = nullptr;
};

/// By count, the groups of a stage's cells. \a same: do two cells say the same?
template <class Same>
std::map<std::int64_t, std::vector<CellGroup>> grouped(
    const std::vector<StageCell>& cells, std::pair<std::int64_t, std::int64_t> offsets, Same same) {
  std::map<std::int64_t, std::vector<CellGroup>> out;
  for (const StageCell& c : cells) {
    std::vector<CellGroup>& list = out[c.count];
    if (list.empty())
      list.push_back({offsets.first, offsets.second, &c});
    else if (!same(*list.back().cell, c)) {
      list.back().last = c.offset - 1;
      list.push_back({c.offset, offsets.second, &c});
    }
  }
  return out;
}

}  // namespace plimsoll
