// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/backing.hpp"

#include <algorithm>

#include "lang/diagnostics.hpp"

namespace plimsoll::runtime {

/// The segment or range in which an address lies.
CountingBacking::Held& CountingBacking::holding(Address at) {
  const auto behind = std::upper_bound(held_.begin(), held_.end(), at,
                                       [](Address a, const Held& h) { return a < h.at; });
  PLIMSOLL_ASSERT(behind != held_.begin());
  return *std::prev(behind);
}

void CountingBacking::give_back(Held& h) {
  h.bytes = 0;
  if (2 * ++given_back_ <= held_.size()) return;
  std::erase_if(held_, [](const Held& each) { return each.bytes == 0; });
  given_back_ = 0;
}

std::optional<Address> CountingBacking::reserve(std::int64_t bytes) {
  PLIMSOLL_ASSERT(bytes > 0);
  if (bytes > capacity_ - used_) return std::nullopt;
  used_ += bytes;
  return reserve_range(bytes);
}

void CountingBacking::release(Address at, std::int64_t bytes) {
  release_range(at, bytes);
  used_ -= bytes;
}

Address CountingBacking::reserve_range(std::int64_t bytes) {
  PLIMSOLL_ASSERT(bytes > 0);
  const Address at = next_;
  next_ += bytes;
  held_.push_back({at, bytes, 0});
  return at;
}

void CountingBacking::release_range(Address at, std::int64_t bytes) {
  Held& h = holding(at);
  PLIMSOLL_ASSERT(h.at == at && h.bytes == bytes && h.mapped == 0);
  give_back(h);
}

bool CountingBacking::map(Address at, std::int64_t bytes) {
  Held& range = holding(at);
  PLIMSOLL_ASSERT(at + bytes <= range.at + range.bytes);
  if (bytes > capacity_ - used_) return false;
  range.mapped += bytes;
  used_ += bytes;
  return true;
}

void CountingBacking::unmap(Address at, std::int64_t bytes) {
  Held& range = holding(at);
  range.mapped -= bytes;
  PLIMSOLL_ASSERT(range.mapped >= 0);
  used_ -= bytes;
}

}  // namespace plimsoll::runtime
