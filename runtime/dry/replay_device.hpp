// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <iterator>
#include <vector>

#include "runtime/dry/tensor_blocks.hpp"

namespace plimsoll::runtime {

/// The device of a replay: gives tensors their blocks and looks at nothing else, so that playing
/// steps costs little more than the allocator does.
class ReplayDevice final : public Device {
 public:
  /// \a plan and \a allocator outlive it.
  ReplayDevice(const StagePlan& plan, Allocator& allocator) : blocks_(plan, allocator) {}

  TensorId allocate(const TensorInfo&) override;
  void free(TensorId) override;
  void touch(const TensorInfo&) override;
  void shrink(TensorId, std::int64_t bytes) override;
  void run(const OpRun&) override {}
  void moment(const StepPoint&) override {}
  bool computes() const override { return false; }
  bool only_serves() const override { return true; }

  /// Live now, and at most.
  std::int64_t tensors() const { return most_tensors() - std::ssize(vacant_); }
  std::int64_t most_tensors() const { return std::ssize(table_); }

 private:
  struct Tensor {
    std::int64_t bytes = 0;
    BlockId block = kNoBlock;
    StreamId stream = 0;
    std::uint32_t row = kNone;
  };
  std::int64_t live() const { return blocks_.allocator().stats().requested.now; }

  void add_vacancy();

  TensorBlocks blocks_;
  std::vector<Tensor> table_;
  std::vector<TensorId> vacant_;
};

}  // namespace plimsoll::runtime
