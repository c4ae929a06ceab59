// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/dry/tensor_blocks.hpp"

#include <string>

namespace plimsoll::runtime {

/// Begins before the first tensor, and is over before the first that is no buffer of weights or
/// gradients.
void TensorBlocks::construct(const TensorInfo& next) {
  if (phase_ == Phase::before) construction_.begin();
  phase_ = Phase::construction;
  if (next.kind == TensorInfo::state &&
      (next.category == Category::weights || next.category == Category::gradients))
    return;
  construction_.end();
  phase_ = Phase::steps;
}

void TensorBlocks::shrink(BlockId& block, std::int64_t bytes, std::uint32_t row, StreamId stream,
                          std::int64_t live) {
  free(block);
  block = kNoBlock;
  TensorInfo rest;
  rest.bytes = bytes;
  rest.row = row;
  rest.stream = stream;
  block = make(rest, live);
}

void TensorBlocks::fail(const TensorInfo& info, std::int64_t live) const {
  const std::string name =
      info.row == kNone ? "a value that several segments read" : plan_.item(info.row).name;
  throw OutOfMemory(info, name, live, allocator_.stats().reserved.now);
}

}  // namespace plimsoll::runtime
