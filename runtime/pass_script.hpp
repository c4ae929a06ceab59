// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/executor.hpp"

/// Private to runtime/executor*.cpp.
namespace plimsoll::runtime {

/// What one micro-batch's two passes over a chunk ask the device for, noted down as the first one
/// is played. Those that follow ask for the same in the same order: which tensors come, go and are
/// handed on follows from the chunk's traces alone. Only gradients that grow come once a step.
class Executor::Script {
 public:
  struct Line {
    enum class Kind : std::uint8_t { allocate, free, touch, grow } kind = Kind::allocate;
    std::uint32_t place = 0;        ///< grow: index of the segment
    std::uint32_t segment = kNone;  ///< where the executor is
    OpId op = kNone;
  };
  struct Pass {
    std::vector<Line> lines;
    std::vector<TensorInfo> infos;  ///< of the lines that allocate or touch, in order
    Line end;                       ///< where it leaves the executor
    bool is_complete = false;
  };

  Pass& pass(bool backward) { return passes_[backward]; }
  /// A micro-batch's tensors have places, as many as are live at once.
  std::size_t places() const { return places_; }

  // While the first micro-batch is played, of one pass after the other.
  void begins(std::size_t most_lines);
  void allocates(TensorId, const TensorInfo&, const StepPoint&);
  void frees(TensorId, const StepPoint&);
  void grows(std::size_t segment, const StepPoint&);
  void ends(const StepPoint&);

 private:
  Pass& written() { return passes_[passes_[0].is_complete]; }

  Pass passes_[2];  ///< [backward]
  std::uint32_t places_ = 0;
  std::vector<std::uint32_t> vacant_;    ///< places
  std::vector<std::uint32_t> place_of_;  ///< by tensor of the first micro-batch
};

}  // namespace plimsoll::runtime
