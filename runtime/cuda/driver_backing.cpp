// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/driver_backing.hpp"

#include "lang/diagnostics.hpp"

namespace plimsoll::runtime::cuda {

DriverBacking::~DriverBacking() {
  for (const auto& [at, bytes] : segments_) driver_.free(reinterpret_cast<void*>(at));  // NOLINT
  for (const auto& [at, bytes] : ranges_) driver_.release(at, bytes);
}

std::optional<Address> DriverBacking::reserve(std::int64_t bytes) {
  PLIMSOLL_ASSERT(bytes > 0);
  if (bytes > capacity_ - used_) return std::nullopt;
  void* at = driver_.allocate(bytes);
  if (!at) return std::nullopt;
  used_ += bytes;
  const auto address = reinterpret_cast<Address>(at);  // NOLINT
  segments_[address] = bytes;
  return address;
}

void DriverBacking::release(Address at, std::int64_t bytes) {
  const auto segment = segments_.find(at);
  PLIMSOLL_ASSERT(segment != segments_.end() && segment->second == bytes);
  segments_.erase(segment);
  used_ -= bytes;
  driver_.free(reinterpret_cast<void*>(at));  // NOLINT
}

Address DriverBacking::reserve_range(std::int64_t bytes) {
  const std::int64_t whole = (bytes + Driver::kPage - 1) / Driver::kPage * Driver::kPage;
  const Address at = driver_.reserve(whole);
  ranges_[at] = whole;
  return at;
}

void DriverBacking::release_range(Address at, std::int64_t /*bytes*/) {
  const auto range = ranges_.find(at);
  PLIMSOLL_ASSERT(range != ranges_.end());
  driver_.release(at, range->second);
  ranges_.erase(range);
}

bool DriverBacking::map(Address at, std::int64_t bytes) {
  PLIMSOLL_ASSERT(bytes % Driver::kPage == 0);
  if (bytes > capacity_ - used_) return false;
  for (std::int64_t done = 0; done < bytes; done += Driver::kPage) {
    if (driver_.map(at + done)) continue;
    while (done > 0) driver_.unmap(at + (done -= Driver::kPage));
    return false;
  }
  driver_.open(at, bytes);
  used_ += bytes;
  return true;
}

void DriverBacking::unmap(Address at, std::int64_t bytes) {
  for (std::int64_t done = 0; done < bytes; done += Driver::kPage) driver_.unmap(at + done);
  used_ -= bytes;
}

}  // namespace plimsoll::runtime::cuda
