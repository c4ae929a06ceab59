// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/schedule.hpp"
#include "planner/stage_cost.hpp"
#include "runtime/device.hpp"
#include "runtime/ranks.hpp"

/// Everything that a rank's steps need to know, in numbers: made once, read by the executor.
namespace plimsoll::runtime {

/// A segment on the stage.
struct PlannedSegment {
  std::uint32_t segment = 0;  ///< of the program
  std::uint32_t trace_index = 0;
  RecomputeMode mode = 0;
  const SegmentTrace* trace = nullptr;
  /// By tensor of the trace, whatever the micro-batch; values and ops are the program's own.
  std::vector<TensorInfo> tensors;
  OpId class_op = 0, first_op = 0;  ///< first op of the trace's segment, and of this one
  /// Forward events that free a value which the next op to run reads, and that op.
  std::vector<std::pair<std::size_t, OpId>> early_frees;
  /// Events between the allocations that a pass begins with and the frees that it ends with.
  std::size_t begin[2] = {}, end[2] = {};  ///< [backward]
  bool successors = false;  ///< is a gradient added to another one, and takes its place?
  OpId op(OpId of_class) const { return of_class - class_op + first_op; }
};

struct PlannedChunk {
  std::int64_t piece = 0;  ///< of the model: piece_of()
  std::vector<PlannedSegment> segments;
  std::vector<ValueId> received, sent;  ///< values that cross its ends, by storage, ascending
  std::vector<ValueId> received_gradients, sent_gradients;  ///< those of them with a gradient
};

/// A row outside the traces.
struct PlannedState {
  const Item* item = nullptr;
  std::uint32_t row = kNone;
  Presence when;
  bool grows = false;  ///< gradients that a step's first backward makes segment by segment
  std::int64_t total = 0;
  std::vector<std::int64_t> pieces;
};

/// What the stage holds once for each micro-batch in flight.
struct PlannedShared {
  ValueId value = kNone;  ///< kNone: a row with the lifetime of a micro-batch
  std::uint32_t row = kNone;
  std::int64_t bytes = 0, gradient_bytes = 0;
};

struct StagePlan {
  /// Throws ArithmeticError on overflow. \a problem and \a layout outlive the plan.
  StagePlan(const Problem& problem, const Layout& layout, std::int64_t rank);
  StagePlan(const StagePlan&) = delete;
  StagePlan& operator=(const StagePlan&) = delete;
  /// The plan becomes that of another rank of the stage.
  void set_rank(std::int64_t rank);

  const Problem& problem;
  const Layout& layout;
  RankPlace place;
  CostModel model;  ///< at this layout and stage
  StageCost cost;
  std::vector<Slot> slots;
  /// Of the first step, where it is played shorter than the others; empty: as them.
  std::vector<Slot> first_slots;
  std::vector<PlannedChunk> chunks;
  std::vector<PlannedState> states;
  std::vector<PlannedShared> shared;
  /// By row of the gradients that a segment's backward makes: its state.
  std::map<std::uint32_t, std::size_t> grown_state;
  /// By trace: rows that stay (late) or come early while the neighbour runs; [backward][late].
  std::vector<ItemRows> spilled[2][2];
  std::map<std::string, StreamId> streams;

  /// A tensor of a row of the inventory (kNone: of none), whatever the micro-batch.
  TensorInfo row_info(TensorInfo::Kind, std::uint32_t row, std::int64_t bytes) const;
  const Item& item(std::uint32_t row) const { return problem.inventory.items[row]; }
  StreamId stream(std::uint32_t row) const { return row == kNone ? 0 : row_streams_[row]; }

 private:
  void plan_chunks();
  void plan_states();
  void plan_shared();
  class OwnValues;
  PlannedSegment plan_segment(const Run&, std::uint32_t segment, OwnValues&);
  std::vector<StreamId> row_streams_;
};

}  // namespace plimsoll::runtime
