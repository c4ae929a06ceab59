// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <map>

#include "runtime/backing.hpp"

/// Memory of this machine as the allocator's backing: pages by mmap, so that what is given back is
/// gone.
namespace plimsoll::runtime::host {

class HostBacking final : public Backing {
 public:
  /// \a capacity: bytes that may be mapped at once.
  explicit HostBacking(std::int64_t capacity) : capacity_(capacity) {}
  ~HostBacking() override;
  HostBacking(const HostBacking&) = delete;
  HostBacking& operator=(const HostBacking&) = delete;

  std::optional<Address> reserve(std::int64_t bytes) override;
  void release(Address, std::int64_t bytes) override;
  Address reserve_range(std::int64_t bytes) override;
  void release_range(Address, std::int64_t bytes) override;
  bool map(Address, std::int64_t bytes) override;
  void unmap(Address, std::int64_t bytes) override;
  std::int64_t total() const override { return capacity_; }

  std::int64_t used() const { return used_; }

 private:
  std::int64_t capacity_;
  std::int64_t used_ = 0;
  std::map<Address, std::int64_t> held_;  ///< segments and ranges not given back
};

}  // namespace plimsoll::runtime::host
