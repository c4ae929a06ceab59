// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/construction.hpp"
#include "runtime/device.hpp"
#include "runtime/stage_plan.hpp"

namespace plimsoll::runtime {

/// An allocator's blocks for a rank's tensors, behind those of its construction.
class TensorBlocks {
 public:
  /// \a plan and \a allocator outlive it.
  TensorBlocks(const StagePlan& plan, Allocator& allocator)
      : plan_(plan), allocator_(allocator), construction_(plan, &allocator) {}

  /// A tensor's block; where there is no memory for it an OutOfMemory, which says that \a live
  /// bytes were.
  BlockId make(const TensorInfo& info, std::int64_t live) {
    if (phase_ != Phase::steps) construct(info);
    if (const std::optional<BlockId> block = allocator_.allocate(info.bytes, info.stream))
      return *block;
    fail(info, live);
  }
  void free(BlockId block) { allocator_.free(block); }
  /// The two at once.
  void touch(const TensorInfo& info, std::int64_t live) {
    if (phase_ != Phase::steps) construct(info);
    if (!allocator_.borrow(info.bytes, info.stream)) fail(info, live);
  }
  /// Blocks do not shrink: the rest of a tensor, \a bytes of the same row, is made anew. kNoBlock
  /// where there is no memory for it.
  void shrink(BlockId& block, std::int64_t bytes, std::uint32_t row, StreamId stream,
              std::int64_t live);
  const Allocator& allocator() const { return allocator_; }

 private:
  void construct(const TensorInfo& next);
  [[noreturn]] void fail(const TensorInfo&, std::int64_t live) const;

  const StagePlan& plan_;
  Allocator& allocator_;
  Construction construction_;
  enum class Phase { before, construction, steps } phase_ = Phase::before;
};

}  // namespace plimsoll::runtime
