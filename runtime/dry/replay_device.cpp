// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/dry/replay_device.hpp"

#include "lang/diagnostics.hpp"

namespace plimsoll::runtime {

TensorId ReplayDevice::allocate(const TensorInfo& info) {
  const Tensor t{info.bytes, blocks_.make(info, live()), info.stream, info.row};
  if (vacant_.empty()) {
    table_.push_back(t);
    return static_cast<TensorId>(table_.size() - 1);
  }
  const TensorId id = vacant_.back();
  vacant_.pop_back();
  table_[id] = t;
  return id;
}

void ReplayDevice::free(TensorId id) {
  const BlockId block = table_[id].block;
  if (block != kNoBlock) blocks_.free(block);
  vacant_.push_back(id);
}

/// Blocks do not shrink; the rest is made anew.
void ReplayDevice::shrink(TensorId id, std::int64_t bytes) {
  Tensor& t = table_.at(id);
  PLIMSOLL_ASSERT(bytes < t.bytes);
  blocks_.free(t.block);
  t.block = kNoBlock;
  TensorInfo rest;
  rest.bytes = t.bytes -= bytes;
  rest.row = t.row;
  rest.stream = t.stream;
  t.block = blocks_.make(rest, live());
}

}  // namespace plimsoll::runtime
