// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/free_list.hpp"

#include <algorithm>

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
template <class Shelf>
std::size_t blocks_above(Address address, const Shelf& shelf) {
  return count_before(shelf, [&](const auto& b) { return b.address > address; });
}

std::ptrdiff_t at(std::size_t place) { return static_cast<std::ptrdiff_t>(place); }

}  // namespace

std::size_t FreeList::place(std::int64_t bytes) const {
  return count_before(sizes_, [&](std::int64_t size) { return size < bytes; });
}

std::optional<FreeList::Entry> FreeList::best(std::int64_t bytes) const {
  const std::size_t i = place(bytes);
  if (i == sizes_.size()) return std::nullopt;
  const Block& b = shelves_[shelf_[i]].back();
  return Entry{sizes_[i], b.address, b.id};
}

std::optional<FreeList::Entry> FreeList::after(const Entry& e) const {
  const std::size_t i = place(e.bytes);
  const std::vector<Block>& shelf = shelves_[shelf_[i]];
  const std::size_t above = blocks_above(e.address, shelf);
  if (above == 0) return best(e.bytes + 1);
  return Entry{e.bytes, shelf[above - 1].address, shelf[above - 1].id};
}

std::vector<FreeList::Entry> FreeList::from(std::int64_t bytes) const {
  std::vector<Entry> found;
  for (std::size_t i = place(bytes); i < sizes_.size(); ++i) {
    const std::vector<Block>& shelf = shelves_[shelf_[i]];
    for (auto b = shelf.rbegin(); b != shelf.rend(); ++b)
      found.push_back({sizes_[i], b->address, b->id});
  }
  return found;
}

void FreeList::insert(const Entry& e) {
  const std::size_t i = place(e.bytes);
  if (i == sizes_.size() || sizes_[i] != e.bytes) {
    if (bare_.empty()) {
      bare_.push_back(static_cast<std::uint32_t>(shelves_.size()));
      shelves_.emplace_back();
    }
    sizes_.insert(sizes_.begin() + at(i), e.bytes);
    shelf_.insert(shelf_.begin() + at(i), bare_.back());
    bare_.pop_back();
  }
  std::vector<Block>& shelf = shelves_[shelf_[i]];
  const std::size_t above = blocks_above(e.address, shelf);
  shelf.insert(shelf.begin() + at(above), {e.address, e.id});
}

void FreeList::erase(const Entry& e) {
  const std::size_t i = place(e.bytes);
  PLIMSOLL_ASSERT(i < sizes_.size() && sizes_[i] == e.bytes);
  std::vector<Block>& shelf = shelves_[shelf_[i]];
  const std::size_t above = blocks_above(e.address, shelf);
  PLIMSOLL_ASSERT(above < shelf.size() && shelf[above].id == e.id);
  shelf.erase(shelf.begin() + at(above));
  if (!shelf.empty()) return;
  bare_.push_back(shelf_[i]);
  sizes_.erase(sizes_.begin() + at(i));
  shelf_.erase(shelf_.begin() + at(i));
}

}  // namespace plimsoll::runtime
