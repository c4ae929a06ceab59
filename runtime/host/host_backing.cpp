// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/host/host_backing.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "lang/diagnostics.hpp"

namespace plimsoll::runtime::host {

namespace {

void* pointer(Address a) { return reinterpret_cast<void*>(a); }  // NOLINT

/// nullptr where the system has no more.
void* pages(std::int64_t bytes, int protection) {
  void* at = ::mmap(nullptr, static_cast<std::size_t>(bytes), protection,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

}  // namespace

HostBacking::~HostBacking() {
  for (const auto& [at, bytes] : held_) ::munmap(pointer(at), static_cast<std::size_t>(bytes));
  budget_.used -= used_;
}

std::int64_t HostBacking::total() const {
  const std::int64_t memory =
      static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE);
  return std::min({memory, capacity_, budget_.capacity});
}

bool HostBacking::take(std::int64_t bytes) {
  if (bytes > capacity_ - used_ || !budget_.take(bytes)) return false;
  used_ += bytes;
  return true;
}

void HostBacking::give_back(std::int64_t bytes) {
  used_ -= bytes;
  budget_.used -= bytes;
}

std::optional<Address> HostBacking::reserve(std::int64_t bytes) {
  if (!take(bytes)) return std::nullopt;
  void* at = pages(bytes, PROT_READ | PROT_WRITE);
  if (!at) {
    give_back(bytes);
    return std::nullopt;
  }
  const auto address = reinterpret_cast<Address>(at);  // NOLINT
  held_.emplace(address, bytes);
  return address;
}

void HostBacking::release(Address at, std::int64_t bytes) {
  PLIMSOLL_ASSERT(held_.erase(at) == 1);
  ::munmap(pointer(at), static_cast<std::size_t>(bytes));
  give_back(bytes);
}

Address HostBacking::reserve_range(std::int64_t bytes) {
  void* at = pages(bytes, PROT_NONE);
  PLIMSOLL_ASSERT(at != nullptr);
  const auto address = reinterpret_cast<Address>(at);  // NOLINT
  held_.emplace(address, bytes);
  return address;
}

void HostBacking::release_range(Address at, std::int64_t bytes) {
  PLIMSOLL_ASSERT(held_.erase(at) == 1);
  ::munmap(pointer(at), static_cast<std::size_t>(bytes));
}

bool HostBacking::map(Address at, std::int64_t bytes) {
  if (!take(bytes)) return false;
  if (::mprotect(pointer(at), static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE) == 0)
    return true;
  give_back(bytes);
  return false;
}

void HostBacking::unmap(Address at, std::int64_t bytes) {
  ::madvise(pointer(at), static_cast<std::size_t>(bytes), MADV_DONTNEED);
  ::mprotect(pointer(at), static_cast<std::size_t>(bytes), PROT_NONE);
  give_back(bytes);
}

}  // namespace plimsoll::runtime::host
