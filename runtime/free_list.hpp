// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <bit>
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
    std::vector<Block> blocks;  ///< the lowest address last
  };
  static constexpr ShelfId kNoShelf = ~ShelfId{0};
  static constexpr std::size_t kWord = 64;  ///< bits

  ShelfId shelf_of(std::int64_t bytes) const;
  ShelfId next_filled(std::size_t place) const;
  std::size_t place(std::int64_t bytes) const;
  void mark_filled(ShelfId id) { filled_[places_[id] / kWord] |= bit(places_[id]); }
  void mark_bare(ShelfId id) { filled_[places_[id] / kWord] &= ~bit(places_[id]); }
  static std::uint64_t bit(std::size_t place) { return std::uint64_t{1} << place % kWord; }
  /// The slot of a size where no other has it.
  std::size_t slot(std::int64_t bytes) const {
    const std::uint64_t spread = static_cast<std::uint64_t>(bytes) * 0x9E3779B97F4A7C15;
    return static_cast<std::size_t>(spread >> 32) & last_slot_;
  }
  void insert_among(std::vector<Block>&, const Block&);
  void erase_among(std::vector<Block>&, Address);
  ShelfId add_shelf(std::int64_t bytes);
  void drop_bare();
  void enter(ShelfId);
  void number(std::size_t from);

  std::vector<Shelf> shelves_;
  std::vector<std::uint32_t> places_;     ///< theirs in order_
  std::vector<ShelfId> spare_;            ///< shelves without a size
  std::vector<std::int64_t> sizes_;       ///< ascending
  std::vector<ShelfId> order_;            ///< by place in sizes_
  std::vector<std::uint64_t> filled_;     ///< a bit for each place: does its shelf hold blocks?
  std::vector<ShelfId> slots_{kNoShelf};  ///< by hash of a size, or in a slot behind it
  std::size_t last_slot_ = 0;             ///< their number is a power of two
};

// What is asked at every tensor is small, and best part of the allocator's own code.

inline FreeList::ShelfId FreeList::shelf_of(std::int64_t bytes) const {
  for (std::size_t i = slot(bytes);; i = (i + 1) & last_slot_) {
    const ShelfId id = slots_[i];
    if (id == kNoShelf || shelves_[id].bytes == bytes) return id;
  }
}

/// The first shelf from a place on that holds blocks.
inline FreeList::ShelfId FreeList::next_filled(std::size_t place) const {
  std::size_t word = place / kWord;
  std::uint64_t above = ~std::uint64_t{0} << place % kWord;
  for (; word < filled_.size(); ++word, above = ~std::uint64_t{0})
    if (const std::uint64_t bits = filled_[word] & above; bits != 0)
      return order_[word * kWord + static_cast<std::size_t>(std::countr_zero(bits))];
  return kNoShelf;
}

inline FreeList::Entry FreeList::best(std::int64_t bytes) const {
  ShelfId id = shelf_of(bytes);
  if (id == kNoShelf)
    id = next_filled(place(bytes));
  else if (shelves_[id].blocks.empty())
    id = next_filled(places_[id]);
  if (id == kNoShelf) return {};
  const Shelf& shelf = shelves_[id];
  const Block& b = shelf.blocks.back();
  return {shelf.bytes, b.address, b.id};
}

inline FreeList::ShelfId FreeList::insert(const Entry& e) {
  ShelfId id = shelf_of(e.bytes);
  if (id == kNoShelf) id = add_shelf(e.bytes);
  Shelf& shelf = shelves_[id];
  if (shelf.blocks.empty())
    mark_filled(id);
  else if (shelf.blocks.back().address < e.address) {
    insert_among(shelf.blocks, {e.address, e.id});
    return id;
  }
  shelf.blocks.push_back({e.address, e.id});
  return id;
}

inline void FreeList::erase(ShelfId id, Address address) {
  Shelf& shelf = shelves_[id];
  if (shelf.blocks.back().address != address) {
    erase_among(shelf.blocks, address);
    return;
  }
  shelf.blocks.pop_back();  // as the best fit is
  if (shelf.blocks.empty()) mark_bare(id);
}

}  // namespace plimsoll::runtime
