// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/dry/dry_device.hpp"

#include <algorithm>

#include "lang/diagnostics.hpp"

namespace plimsoll::runtime {

DryDevice::DryDevice(const StagePlan& plan, Allocator* allocator)
    : rows_(plan.problem.inventory.items.size() + 1, 0) {
  if (allocator) blocks_.emplace(plan, *allocator);
}

void DryDevice::add(const Tensor& t, std::int64_t bytes) {
  live_ += bytes;
  categories_[static_cast<std::size_t>(t.category)] += bytes;
  rows_[t.row == kNone ? rows_.size() - 1 : t.row] += bytes;
}

TensorId DryDevice::allocate(const TensorInfo& info) {
  PLIMSOLL_ASSERT(info.bytes > 0);
  settle();
  const BlockId block = blocks_ ? blocks_->make(info, live_) : kNoBlock;
  const Tensor t{info.bytes, info.row, info.category, block, info.stream};
  add(t, t.bytes);
  most_live_ = std::max(most_live_, live_);
  most_tensors_ = std::max(most_tensors_, ++tensors_);
  if (vacant_.empty()) {
    table_.push_back(t);
    return static_cast<TensorId>(table_.size() - 1);
  }
  const TensorId id = vacant_.back();
  vacant_.pop_back();
  table_[id] = t;
  return id;
}

void DryDevice::free(TensorId id) {
  settle();
  Tensor& t = table_.at(id);
  PLIMSOLL_ASSERT(t.bytes > 0);
  add(t, -t.bytes);
  if (t.block != kNoBlock) blocks_->free(t.block);
  t.block = kNoBlock;
  t.bytes = 0;
  --tensors_;
  vacant_.push_back(id);
}

void DryDevice::shrink(TensorId id, std::int64_t bytes) {
  settle();
  Tensor& t = table_.at(id);
  PLIMSOLL_ASSERT(bytes < t.bytes);
  add(t, -bytes);
  t.bytes -= bytes;
  if (t.block != kNoBlock) blocks_->shrink(t.block, t.bytes, t.row, t.stream, live_);
}

/// The bytes stay; the row that they count for is the new one's.
void DryDevice::hand_on(TensorId id, const TensorInfo& info) {
  settle();
  Tensor& t = table_.at(id);
  PLIMSOLL_ASSERT(t.bytes == info.bytes);
  add(t, -t.bytes);
  t.row = info.row;
  t.category = info.category;
  add(t, t.bytes);
}

void DryDevice::count(const StepPoint& at) {
  if (observer_) observer_(at, categories_);
  const auto step = static_cast<std::size_t>(std::max(at.step, 1));
  if (peaks_.size() < step) {
    settle();
    peaks_.resize(step);
  }
  LivePeak& peak = peaks_[step - 1];
  if (live_ <= peak.bytes) return;
  peak.bytes = live_;
  peak.at = at;
  unsettled_ = true;
}

/// Notes what the peak is made of, while it still is.
void DryDevice::settle() {
  if (!unsettled_) return;
  unsettled_ = false;
  peaks_.back().categories = categories_;
  peaks_.back().rows = rows_;
}

const LivePeak& DryDevice::peak(int step) {
  settle();
  return peaks_.at(static_cast<std::size_t>(step) - 1);
}

const LivePeak& DryDevice::peak() {
  settle();
  PLIMSOLL_ASSERT(!peaks_.empty());
  return *std::max_element(peaks_.begin(), peaks_.end(),
                           [](const LivePeak& a, const LivePeak& b) { return a.bytes < b.bytes; });
}

}  // namespace plimsoll::runtime
