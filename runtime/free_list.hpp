// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/backing.hpp"

namespace plimsoll::runtime {

using BlockId = std::uint32_t;
inline constexpr BlockId kNoBlock = std::numeric_limits<BlockId>::max();

/// Free blocks in order of best fit: by size, of equals by address (ACCOUNTING.md D4). A replay
/// asks it at every tensor. Layers are alike, so a stage's hundred free blocks have some twenty
/// sizes, and those that come and go are some more. Each size has a shelf, which it keeps for a
/// while after its last block went: most blocks that are asked for, and most that come back, are of
/// a size that has one, and are found by it at once.
class FreeList {
 public:
  struct Entry {
    std::int64_t bytes = 0;
    Address address = 0;
    BlockId id = kNoBlock;  ///< kNoBlock: there is none
  };
  using ShelfId = std::uint32_t;

  /// The first block of at least \a bytes.
  Entry best(std::int64_t bytes) const;
  /// The one behind a block of the list.
  Entry after(const Entry&) const;
  /// All blocks of at least \a bytes, in order.
  std::vector<Entry> from(std::int64_t bytes) const;
  std::vector<Entry> all() const { return from(0); }
  /// Returns the shelf, which erase() wants to know.
  ShelfId insert(const Entry&);
  /// The block must be there.
  void erase(ShelfId, Address);

 private:
  struct Block {
    Address address;
    BlockId id;
  };
  struct Shelf {
    std::int64_t bytes = 0;
    std::size_t place = 0;      ///< in order_
    std::vector<Block> blocks;  ///< the lowest address last
  };
  static constexpr ShelfId kNoShelf = ~ShelfId{0};

  ShelfId shelf_of(std::int64_t bytes) const;
  ShelfId next_filled(std::size_t place) const;
  std::size_t place(std::int64_t bytes) const;
  void mark(const Shelf&);
  ShelfId add_shelf(std::int64_t bytes);
  void drop_bare();
  void enter(ShelfId);
  void number(std::size_t from);

  std::vector<Shelf> shelves_;
  std::vector<ShelfId> spare_;         ///< shelves without a size
  std::vector<std::int64_t> sizes_;    ///< ascending
  std::vector<ShelfId> order_;         ///< by place in sizes_
  std::vector<std::uint64_t> filled_;  ///< a bit for each place: does its shelf hold blocks?
  std::vector<ShelfId> slots_;         ///< by hash of a size, or in a slot behind it
};

}  // namespace plimsoll::runtime
