// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "runtime/device.hpp"
#include "runtime/stage_plan.hpp"

/// One rank's optimizer steps, from the tensor program: the one piece of code that says in which
/// order things happen, whatever the device. Rung 2 of the ladder is this over `dry`.
namespace plimsoll::runtime {

/// Plays start(), then step() as often as one likes (the second is the first with the moments that
/// the first update makes), then finish(). An OutOfMemory of the device leaves the executor where
/// at() says; only finish() may follow, which frees all.
class Executor {
 public:
  /// \a plan and \a device outlive the executor.
  Executor(const StagePlan& plan, Device& device);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void start();
  void step();
  void finish();
  const StepPoint& at() const { return at_; }

 private:
  class SegmentFrame;
  class Script;
  /// A tensor that a segment freed where it ended.
  struct Handed {
    TensorId tensor = kNoTensor;
    TensorInfo info;
    std::vector<ValueId> also;  ///< gradients that it stands for besides its own
    bool taken = false;
  };
  struct MicroBatch {
    std::int64_t number = 0;
    std::vector<SegmentFrame> frames;  ///< by segment, forward order
    std::vector<TensorId> places;      ///< instead, where it is played from a script
  };
  struct SharedTensors {
    std::int64_t micro_batch = 0;
    std::vector<TensorId> tensors;  ///< by StagePlan::shared
  };

  // The step: executor.cpp.
  void enter(StepPart);
  bool wanted(const PlannedState&) const;
  void make(std::size_t state);
  void make_piece(std::size_t state, std::size_t piece);
  void drop(std::size_t state);
  void grow(const PlannedSegment&);
  void settle_grown();
  void share(std::int64_t micro_batch);
  void unshare(std::int64_t micro_batch);
  void forward_slot(std::int32_t chunk);
  void backward_slot(std::int32_t chunk);
  void update();
  void exchange(Exchange::Kind, std::uint32_t segment);

  // One segment's turn: executor_pass.cpp.
  void pass(const PlannedChunk&, std::size_t index, MicroBatch&);
  void begin_pass(const PlannedChunk&, std::size_t index, MicroBatch&);
  void play(const PlannedSegment&, SegmentFrame&);
  void end_pass(const PlannedChunk&, std::size_t index, SegmentFrame&);
  void run(const TraceEvent&, SegmentFrame&);
  void announce_early_free(std::size_t event, const SegmentFrame&);
  void transfer(const PlannedChunk&, bool sends, const SegmentFrame&);
  bool take_over(TensorId& place, const TensorInfo&);
  void fill_copies(const PlannedChunk&, std::size_t index, MicroBatch&,
                   const std::vector<std::uint32_t>& made);
  ItemRows neighbours(const PlannedChunk&, std::size_t index) const;
  void flush();
  TensorId allocate(const TensorInfo&);
  void free(TensorId);

  // Passes that are as those before: executor_script.cpp.
  bool play_script(MicroBatch&);
  void write_script();
  void end_script();

  TensorInfo tensor_info(const PlannedSegment&, std::uint32_t tensor) const;
  TensorInfo row_info(TensorInfo::Kind, std::uint32_t row, std::int64_t bytes) const;
  const std::vector<TraceEvent>& events(const PlannedSegment& s) const {
    return backward() ? s.trace->backward : s.trace->forward;
  }
  bool backward() const { return at_.part == StepPart::backward; }

  const StagePlan& plan_;
  Device& device_;
  StepPoint at_;
  std::vector<std::vector<TensorId>> states_;  ///< by StagePlan::states
  std::vector<std::int64_t> grown_bytes_;      ///< likewise: what grew in this step
  std::vector<std::deque<MicroBatch>> alive_;  ///< by chunk, oldest first
  std::vector<std::int64_t> begun_;            ///< by chunk: micro-batches of this step
  std::deque<SharedTensors> shared_;           ///< oldest first
  std::vector<TensorId> shared_gradients_;     ///< by StagePlan::shared
  std::vector<Handed> handed_;                 ///< the next segment may go on with them
  std::uint64_t stored_ = 0;                   ///< keys of Device::store
  std::vector<std::pair<TensorId, TensorInfo>> neighbours_;  ///< rows of other layers, this pass
  std::vector<Script> scripts_;  ///< by chunk; none where the device looks at more than requests
  Script* written_ = nullptr;    ///< the one that this pass is noted down in
  bool any_backward_ = false, grown_ = false, updated_ = false;
  const bool computes_;
};

}  // namespace plimsoll::runtime
