// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <map>

#include "runtime/backing.hpp"
#include "runtime/cuda/machine.hpp"

/// A GPU's memory as the allocator's backing: the third kind. What the driver does stands behind an
/// interface, so that the bookkeeping is tested over a driver that is played.
namespace plimsoll::runtime::cuda {

/// What is asked of the driver. Addresses without memory and pages under them are its
/// virtual-memory API; a page is mapped and unmapped as a whole.
class Driver {
 public:
  virtual ~Driver() = default;
  virtual MemoryFacts memory() const = 0;
  virtual void* allocate(std::int64_t bytes) = 0;  ///< nullptr: there is none
  virtual void free(void*) = 0;
  virtual Address reserve(std::int64_t bytes) = 0;
  virtual void release(Address, std::int64_t bytes) = 0;
  /// A page of kPage bytes under \a at; false where there is no memory.
  virtual bool map(Address at) = 0;
  virtual void unmap(Address at) = 0;
  /// Lets the GPU at pages that were mapped.
  virtual void open(Address at, std::int64_t bytes) = 0;
  static constexpr std::int64_t kPage = std::int64_t{2} << 20;
};

class DriverBacking final : public Backing {
 public:
  /// \a driver outlives it. \a capacity: bytes that may be had at once.
  DriverBacking(Driver& driver, std::int64_t capacity) : driver_(driver), capacity_(capacity) {}
  ~DriverBacking() override;
  DriverBacking(const DriverBacking&) = delete;
  DriverBacking& operator=(const DriverBacking&) = delete;

  std::optional<Address> reserve(std::int64_t bytes) override;
  void release(Address, std::int64_t bytes) override;
  Address reserve_range(std::int64_t bytes) override;
  void release_range(Address, std::int64_t bytes) override;
  bool map(Address, std::int64_t bytes) override;
  void unmap(Address, std::int64_t bytes) override;
  std::int64_t total() const override { return driver_.memory().total; }
  std::int64_t used() const { return used_; }

 private:
  Driver& driver_;
  std::int64_t capacity_, used_ = 0;
  std::map<Address, std::int64_t> segments_, ranges_;
};

}  // namespace plimsoll::runtime::cuda
