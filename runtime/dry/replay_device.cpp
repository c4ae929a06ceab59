// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/dry/replay_device.hpp"

#include "lang/diagnostics.hpp"

namespace plimsoll::runtime {

/// An entry for one more tensor.
void ReplayDevice::add_vacancy() {
  vacant_.push_back(static_cast<TensorId>(table_.size()));
  table_.emplace_back();
}

TensorId ReplayDevice::allocate(const TensorInfo& info) {
  const BlockId block = blocks_.make(info, live());
  if (vacant_.empty()) add_vacancy();
  const TensorId id = vacant_.back();
  vacant_.pop_back();
  table_[id] = {info.bytes, block, info.stream, info.row};
  return id;
}

void ReplayDevice::touch(const TensorInfo& info) {
  blocks_.touch(info, live());
  if (vacant_.empty()) add_vacancy();
}

void ReplayDevice::free(TensorId id) {
  const BlockId block = table_[id].block;
  if (block != kNoBlock) blocks_.free(block);
  vacant_.push_back(id);
}

void ReplayDevice::shrink(TensorId id, std::int64_t bytes) {
  Tensor& t = table_.at(id);
  PLIMSOLL_ASSERT(bytes < t.bytes);
  t.bytes -= bytes;
  blocks_.shrink(t.block, t.bytes, t.row, t.stream, live() - bytes);
}

}  // namespace plimsoll::runtime
