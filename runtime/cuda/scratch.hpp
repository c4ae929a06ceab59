// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <stdexcept>
#include <utility>

#include "runtime/allocator.hpp"
#include "runtime/cuda/machine.hpp"

/// Memory that kernels need and the run does not count: what a framework declares no tensor for. It
/// is kept apart, and the report says what it came to.
namespace plimsoll::runtime::cuda {

class Scratch {
 public:
  Scratch(Machine& machine, std::int64_t capacity)
      : backing_(machine.backing(capacity)), allocator_(*backing_, {}) {}

  Allocator& allocator() { return allocator_; }
  const AllocatorStats& stats() const { return allocator_.stats(); }

 private:
  std::unique_ptr<Backing> backing_;
  Allocator allocator_;
};

/// There is no memory for scratch.
class ScratchExhausted : public std::runtime_error {
 public:
  explicit ScratchExhausted(std::int64_t wanted)
      : std::runtime_error("no memory for a kernel's scratch"), bytes(wanted) {}
  std::int64_t bytes;
};

/// A piece of scratch, given back where its scope ends; work that reads it is in order before
/// whatever comes next.
class Room {
 public:
  Room() = default;
  Room(Scratch& scratch, std::int64_t bytes) : scratch_(&scratch) {
    if (bytes <= 0) return;
    const auto block = scratch.allocator().allocate(bytes);
    if (!block) throw ScratchExhausted(bytes);
    block_ = *block;
  }
  Room(Room&& other) noexcept { swap(other); }
  Room& operator=(Room&& other) noexcept {
    swap(other);
    return *this;
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room() {
    if (block_ != kNoBlock) scratch_->allocator().free(block_);
  }
  void* at() const {
    return block_ == kNoBlock
               ? nullptr
               : reinterpret_cast<void*>(scratch_->allocator().address(block_));  // NOLINT
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(at());
  }

 private:
  void swap(Room& other) {
    std::swap(scratch_, other.scratch_);
    std::swap(block_, other.block_);
  }
  Scratch* scratch_ = nullptr;
  BlockId block_ = kNoBlock;
};

}  // namespace plimsoll::runtime::cuda
