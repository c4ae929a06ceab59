// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/free_list.hpp"

#include <bit>

#include "lang/diagnostics.hpp"

namespace plimsoll::runtime {

namespace {

/// How many of the first elements \a is_before, which holds for none behind them: a binary search
/// without jumps that depend on what it finds.
template <class T, class IsBefore>
std::size_t count_before(const std::vector<T>& sorted, IsBefore is_before) {
  const T* first = sorted.data();
  for (std::size_t n = sorted.size(); n > 0;) {
    const std::size_t half = (n + 1) / 2;
    const bool before = is_before(first[half - 1]);
    first += before ? half : 0;
    n = before ? n - half : half - 1;
  }
  return static_cast<std::size_t>(first - sorted.data());
}

/// How many blocks of a shelf lie at higher addresses.
template <class Block>
std::size_t blocks_above(Address address, const std::vector<Block>& blocks) {
  if (blocks.empty() || address < blocks.back().address) return blocks.size();
  return count_before(blocks, [&](const Block& b) { return b.address > address; });
}

std::ptrdiff_t at(std::size_t place) { return static_cast<std::ptrdiff_t>(place); }

}  // namespace

std::size_t FreeList::place(std::int64_t bytes) const {
  return count_before(sizes_, [&](std::int64_t size) { return size < bytes; });
}

FreeList::Entry FreeList::after(const Entry& e) const {
  const std::vector<Block>& blocks = shelves_[shelf_of(e.bytes)].blocks;
  const std::size_t above = blocks_above(e.address, blocks);
  if (above == 0) return best(e.bytes + 1);
  return {e.bytes, blocks[above - 1].address, blocks[above - 1].id};
}

std::vector<FreeList::Entry> FreeList::from(std::int64_t bytes) const {
  std::vector<Entry> found;
  for (std::size_t i = place(bytes); i < sizes_.size(); ++i) {
    const std::vector<Block>& blocks = shelves_[order_[i]].blocks;
    for (auto b = blocks.rbegin(); b != blocks.rend(); ++b)
      found.push_back({sizes_[i], b->address, b->id});
  }
  return found;
}

void FreeList::insert_among(std::vector<Block>& blocks, const Block& b) {
  constexpr std::size_t kFew = 16;
  if (blocks.size() > kFew) {
    blocks.insert(blocks.begin() + at(blocks_above(b.address, blocks)), b);
    return;
  }
  blocks.push_back(b);
  std::size_t i = blocks.size() - 1;
  for (; i > 0 && blocks[i - 1].address < b.address; --i) blocks[i] = blocks[i - 1];
  blocks[i] = b;
}

void FreeList::erase_among(std::vector<Block>& blocks, Address address) {
  const std::size_t i = blocks_above(address, blocks);
  PLIMSOLL_ASSERT(i < blocks.size() && blocks[i].address == address);
  blocks.erase(blocks.begin() + at(i));
}

FreeList::ShelfId FreeList::add_shelf(std::int64_t bytes) {
  if (2 * (sizes_.size() + 1) > slots_.size()) drop_bare();
  if (spare_.empty()) {
    spare_.push_back(static_cast<ShelfId>(shelves_.size()));
    shelves_.emplace_back();
    places_.push_back(0);
  }
  const ShelfId id = spare_.back();
  spare_.pop_back();
  shelves_[id].bytes = bytes;
  enter(id);
  const std::size_t i = place(bytes);
  sizes_.insert(sizes_.begin() + at(i), bytes);
  order_.insert(order_.begin() + at(i), id);
  number(i);
  // Those behind it move up by a bit.
  filled_.resize(sizes_.size() / kWord + 1);
  std::size_t word = filled_.size() - 1;
  for (; word > i / kWord; --word) filled_[word] = filled_[word] << 1 | filled_[word - 1] >> 63;
  const std::uint64_t below = (std::uint64_t{1} << i % kWord) - 1;
  filled_[word] = (filled_[word] & below) | (filled_[word] & ~below) << 1;
  return id;
}

/// Forgets the sizes without blocks, and makes room for more than twice those that are left.
void FreeList::drop_bare() {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    if (shelves_[order_[i]].blocks.empty()) {
      spare_.push_back(order_[i]);
      continue;
    }
    sizes_[kept] = sizes_[i];
    order_[kept++] = order_[i];
  }
  sizes_.resize(kept);
  order_.resize(kept);
  slots_.assign(std::bit_ceil(4 * kept + 256), kNoShelf);
  last_slot_ = slots_.size() - 1;
  filled_.assign(kept / kWord + 1, 0);
  number(0);
  for (const ShelfId id : order_) {
    enter(id);
    mark_filled(id);
  }
}

/// Puts a shelf where shelf_of() looks for it.
void FreeList::enter(ShelfId id) {
  std::size_t i = slot(shelves_[id].bytes);
  while (slots_[i] != kNoShelf) i = (i + 1) & last_slot_;
  slots_[i] = id;
}

/// Tells the shelves from a place on where they are.
void FreeList::number(std::size_t from) {
  for (std::size_t i = from; i < order_.size(); ++i)
    places_[order_[i]] = static_cast<std::uint32_t>(i);
}

}  // namespace plimsoll::runtime
