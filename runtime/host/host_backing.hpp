// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <atomic>
#include <map>

#include "runtime/backing.hpp"

/// Memory of this machine as the allocator's backing: pages by mmap, so that what is given back is
/// gone.
namespace plimsoll::runtime::host {

/// What all ranks may map together.
struct HostBudget {
  std::int64_t capacity = 0;
  std::atomic<std::int64_t> used = 0;

  bool take(std::int64_t bytes) {
    if (used.fetch_add(bytes) + bytes <= capacity) return true;
    used -= bytes;
    return false;
  }
};

class HostBacking final : public Backing {
 public:
  /// \a capacity: bytes that may be mapped at once, of a \a budget that outlives it.
  HostBacking(std::int64_t capacity, HostBudget& budget) : capacity_(capacity), budget_(budget) {}
  ~HostBacking() override;
  HostBacking(const HostBacking&) = delete;
  HostBacking& operator=(const HostBacking&) = delete;

  std::optional<Address> reserve(std::int64_t bytes) override;
  void release(Address, std::int64_t bytes) override;
  Address reserve_range(std::int64_t bytes) override;
  void release_range(Address, std::int64_t bytes) override;
  bool map(Address, std::int64_t bytes) override;
  void unmap(Address, std::int64_t bytes) override;
  /// Of this machine, or what of it may be had: so much is as large as a range need be.
  std::int64_t total() const override;

  std::int64_t used() const { return used_; }

 private:
  bool take(std::int64_t bytes);
  void give_back(std::int64_t bytes);

  std::int64_t capacity_;
  HostBudget& budget_;
  std::int64_t used_ = 0;
  std::map<Address, std::int64_t> held_;  ///< segments and ranges not given back
};

}  // namespace plimsoll::runtime::host
