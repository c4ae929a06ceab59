// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

/// Where the allocator's segments come from: one policy, several kinds of memory.
namespace plimsoll::runtime {

using Address = std::int64_t;

/// Gives and takes back memory in large pieces. Failure is a value: nothing here throws for want of
/// memory.
class Backing {
 public:
  virtual ~Backing() = default;

  /// Memory of \a bytes, or nullopt where there is not enough.
  virtual std::optional<Address> reserve(std::int64_t bytes) = 0;
  virtual void release(Address, std::int64_t bytes) = 0;

  /// Addresses without memory, for an expandable segment, and whole pages of memory under them.
  virtual Address reserve_range(std::int64_t bytes) = 0;
  virtual void release_range(Address, std::int64_t bytes) = 0;
  /// All of \a bytes or, returning false, nothing.
  virtual bool map(Address, std::int64_t bytes) = 0;
  virtual void unmap(Address, std::int64_t bytes) = 0;

  /// Memory of the device; the size of an expandable segment's range follows from it.
  virtual std::int64_t total() const = 0;
};

/// Counts, and owns no memory. Addresses grow and are never given twice, so a run is the same
/// wherever it is made.
class CountingBacking : public Backing {
 public:
  static constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;

  /// \a total: what the device has; \a capacity: what can be had of it.
  CountingBacking(std::int64_t total, std::int64_t capacity) : total_(total), capacity_(capacity) {}
  explicit CountingBacking(std::int64_t capacity) : CountingBacking(capacity, capacity) {}

  std::optional<Address> reserve(std::int64_t bytes) override;
  void release(Address, std::int64_t bytes) override;
  Address reserve_range(std::int64_t bytes) override;
  void release_range(Address, std::int64_t bytes) override;
  bool map(Address, std::int64_t bytes) override;
  void unmap(Address, std::int64_t bytes) override;
  std::int64_t total() const override { return total_; }

  std::int64_t used() const { return used_; }
  /// Segments and ranges not given back.
  std::size_t held() const { return held_.size() - given_back_; }

 private:
  /// A segment, or a range.
  struct Held {
    Address at = 0;
    std::int64_t bytes = 0;   ///< 0: given back
    std::int64_t mapped = 0;  ///< of a range
  };
  Held& holding(Address);
  void give_back(Held&);

  std::int64_t total_, capacity_;
  std::int64_t used_ = 0;
  Address next_ = Address{1} << 21;  ///< no segment lies at 0
  std::vector<Held> held_;           ///< by address, as they are born
  std::size_t given_back_ = 0;       ///< of those
};

}  // namespace plimsoll::runtime
