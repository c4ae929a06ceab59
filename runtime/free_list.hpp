// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "runtime/backing.hpp"

namespace plimsoll::runtime {

using BlockId = std::uint32_t;
inline constexpr BlockId kNoBlock = std::numeric_limits<BlockId>::max();

/// Free blocks in order of best fit: by size, of equals by address (ACCOUNTING.md D4). A replay
/// asks it at every tensor. Layers are alike, so a stage's hundred free blocks have some twenty
/// sizes: sizes are searched first, and the lowest address of one is at hand.
class FreeList {
 public:
  struct Entry {
    std::int64_t bytes = 0;
    Address address = 0;
    BlockId id = kNoBlock;
  };

  /// The first block of at least \a bytes.
  std::optional<Entry> best(std::int64_t bytes) const;
  /// The one behind a block of the list.
  std::optional<Entry> after(const Entry&) const;
  /// All blocks of at least \a bytes, in order.
  std::vector<Entry> from(std::int64_t bytes) const;
  std::vector<Entry> all() const { return from(0); }
  void insert(const Entry&);
  /// The block must be there.
  void erase(const Entry&);

 private:
  struct Block {
    Address address;
    BlockId id;
  };
  std::size_t place(std::int64_t bytes) const;

  std::vector<std::int64_t> sizes_;          ///< ascending
  std::vector<std::uint32_t> shelf_;         ///< by place in sizes_: number of its shelf
  std::vector<std::vector<Block>> shelves_;  ///< blocks of one size, the lowest address last
  std::vector<std::uint32_t> bare_;          ///< shelves without blocks
};

}  // namespace plimsoll::runtime
