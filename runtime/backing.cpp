// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/backing.hpp"

#include "lang/diagnostics.hpp"

namespace plimsoll::runtime {

std::optional<Address> CountingBacking::reserve(std::int64_t bytes) {
  PLIMSOLL_ASSERT(bytes > 0);
  if (bytes > capacity_ - used_) return std::nullopt;
  used_ += bytes;
  const Address at = next_;
  next_ += bytes;
  held_[at] = bytes;
  return at;
}

void CountingBacking::release(Address at, std::int64_t bytes) {
  const auto segment = held_.find(at);
  PLIMSOLL_ASSERT(segment != held_.end() && segment->second == bytes);
  held_.erase(segment);
  used_ -= bytes;
}

Address CountingBacking::reserve_range(std::int64_t bytes) {
  PLIMSOLL_ASSERT(bytes > 0);
  const Address at = next_;
  next_ += bytes;
  held_[at] = bytes;
  mapped_[at] = 0;
  return at;
}

void CountingBacking::release_range(Address at, std::int64_t bytes) {
  const auto range = held_.find(at);
  PLIMSOLL_ASSERT(range != held_.end() && range->second == bytes);
  PLIMSOLL_ASSERT(mapped_.at(at) == 0);
  held_.erase(range);
  mapped_.erase(at);
}

bool CountingBacking::map(Address at, std::int64_t bytes) {
  const auto range = std::prev(mapped_.upper_bound(at));
  PLIMSOLL_ASSERT(at + bytes <= range->first + held_.at(range->first));
  if (bytes > capacity_ - used_) return false;
  range->second += bytes;
  used_ += bytes;
  return true;
}

void CountingBacking::unmap(Address at, std::int64_t bytes) {
  const auto range = std::prev(mapped_.upper_bound(at));
  range->second -= bytes;
  PLIMSOLL_ASSERT(range->second >= 0);
  used_ -= bytes;
}

}  // namespace plimsoll::runtime
