// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Expandable segments (D10), giving memory back (D7), and the books as others see them.

#include <algorithm>
#include <map>

#include "lang/diagnostics.hpp"
#include "runtime/allocator.hpp"

namespace plimsoll::runtime {

namespace {

std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

}  // namespace

/// Maps pages until some stretch of an expandable segment is long enough.
BlockId Allocator::grow(std::int64_t size, std::uint32_t cache) {
  BlockId id = room_to_grow(size, cache);
  if (!at(id).mapped && !map(id, std::min(at(id).bytes, size))) {
    if (!is_split(at(id))) release_range(id);  // a range that never held anything
    return kNoBlock;
  }
  // What is mapped joins the free block before it, so the stretch grows from its front.
  while (at(id).bytes < size) {
    const std::int64_t missing = size - at(id).bytes;
    const BlockId tail = at(id).next;
    if (!map(tail, std::min(missing, at(tail).bytes))) return kNoBlock;
    id = tail;
  }
  erase_free(id);
  return id;
}

/// The first stretch, by address, of unmapped and free blocks in which \a size fits; it may begin
/// with the free block before an unmapped one. A new segment's range where there is none.
BlockId Allocator::room_to_grow(std::int64_t size, std::uint32_t cache) {
  Cache& from = caches_[cache];
  for (const auto& [address, unmapped] : from.unmapped) {
    BlockId first = unmapped;
    if (const BlockId before = at(first).previous; before != kNoBlock && is_idle(at(before)))
      first = before;
    std::int64_t room = 0;
    for (BlockId id = first; room < size && id != kNoBlock && is_idle(at(id)); id = at(id).next)
      room += at(id).bytes;
    if (room >= size) return first;
  }
  // 9/8 of the device's memory in whole pages; longer where one block is: a backing may give more
  // than the device has.
  const std::int64_t total = backing_.total();
  Block b;
  b.bytes = round_up(std::max(total + total / 8, size), page(from.small));
  b.address = backing_.reserve_range(b.bytes);
  b.cache = cache;
  b.expandable = true;
  b.mapped = false;
  b.segment = next_segment_++;
  stats_.segments.add(1);
  const BlockId id = new_block(b);
  from.unmapped.insert({b.address, id});
  return id;
}

/// Maps whole pages at the front of an unmapped block, at least \a bytes, and makes them free.
bool Allocator::map(BlockId id, std::int64_t bytes) {
  Cache& to = cache_of(at(id));
  const std::int64_t mapped = round_up(bytes, page(to.small));
  PLIMSOLL_ASSERT(!at(id).mapped && mapped <= at(id).bytes);
  if (!backing_.map(at(id).address, mapped)) return false;
  to.unmapped.erase({at(id).address, id});
  if (mapped < at(id).bytes) {
    const BlockId rest = split(id, mapped);
    to.unmapped.insert({at(rest).address, rest});
  }
  at(id).mapped = true;
  stats_.reserved.add(mapped);
  for (const BlockId neighbour : {at(id).previous, at(id).next}) {
    if (neighbour == kNoBlock || !at(neighbour).cached) continue;
    erase_free(neighbour);
    absorb(id, neighbour);
  }
  insert_free(id);
  return true;
}

/// Gives back the whole pages within a free block of an expandable segment, and the segment's range
/// where nothing of it is left in use.
void Allocator::unmap(BlockId id) {
  const Block whole = at(id);
  Cache& from = cache_of(whole);
  const std::int64_t step = page(from.small);
  BlockId front = id;  // pages are counted from the start of the range
  while (at(front).previous != kNoBlock) front = at(front).previous;
  const Address base = at(front).address;
  const Address begin = base + round_up(whole.address - base, step);
  const Address end = base + (whole.address + whole.bytes - base) / step * step;
  if (begin >= end) return;
  backing_.unmap(begin, end - begin);
  stats_.reserved.add(begin - end);
  erase_free(id);
  if (begin > whole.address) {
    Block before = whole;
    before.bytes = begin - whole.address;
    before.next = id;
    const BlockId before_id = new_block(before);
    if (before.previous != kNoBlock) at(before.previous).next = before_id;
    at(id).previous = before_id;
    insert_free(before_id);
  }
  if (end < whole.address + whole.bytes) {
    Block after = whole;
    after.address = end;
    after.bytes = whole.address + whole.bytes - end;
    after.previous = id;
    const BlockId after_id = new_block(after);
    if (after.next != kNoBlock) at(after.next).previous = after_id;
    at(id).next = after_id;
    insert_free(after_id);
  }
  at(id).address = begin;
  at(id).bytes = end - begin;
  at(id).mapped = false;
  for (const BlockId neighbour : {at(id).previous, at(id).next}) {
    if (neighbour == kNoBlock || at(neighbour).mapped) continue;
    from.unmapped.erase({at(neighbour).address, neighbour});
    absorb(id, neighbour);
  }
  from.unmapped.insert({at(id).address, id});
  if (!is_split(at(id))) release_range(id);
}

/// The one block of an expandable segment of which nothing is mapped.
void Allocator::release_range(BlockId id) {
  const Block b = at(id);
  cache_of(b).unmapped.erase({b.address, id});
  backing_.release_range(b.address, b.bytes);
  stats_.segments.add(-1);
  at(id).alive = false;
  vacant_.push_back(id);
}

void Allocator::release_segment(BlockId id) {
  const Block b = at(id);
  erase_free(id);
  backing_.release(b.address, b.bytes);
  stats_.reserved.add(-b.bytes);
  stats_.segments.add(-1);
  at(id).alive = false;
  vacant_.push_back(id);
}

void Allocator::release_cached() {
  for (const Cache& cache : caches_)
    for (const FreeList::Entry& e : cache.free.all()) {
      if (at(e.id).expandable)
        unmap(e.id);
      else if (!is_split(at(e.id)))
        release_segment(e.id);
    }
}

/// D7a: where blocks above max_split_size exist, one that is large enough goes back, or else the
/// largest ones until they come to the request. False where that is not enough.
bool Allocator::release_oversized(std::int64_t size, std::uint32_t cache) {
  if (options_.max_split_size == AllocatorOptions::kNever) return false;
  const FreeList& free = caches_[cache].free;
  const std::int64_t wanted = std::max(size, options_.max_split_size);
  if (const BlockId above = free.best(wanted).id; above != kNoBlock) {
    if (at(above).expandable || is_split(at(above))) return false;
    release_segment(above);
    return true;
  }
  std::vector<FreeList::Entry> oversized = free.from(options_.max_split_size);
  std::reverse(oversized.begin(), oversized.end());
  std::vector<BlockId> largest;  // downwards
  for (const FreeList::Entry& e : oversized)
    if (!at(e.id).expandable && !is_split(at(e.id))) largest.push_back(e.id);
  std::int64_t released = 0;
  for (const BlockId id : largest) {
    if (released >= wanted) break;
    released += at(id).bytes;
    release_segment(id);
  }
  return released >= wanted;
}

std::vector<Allocator::Stretch> Allocator::snapshot() const {
  std::vector<Stretch> all;
  for (const Block& b : blocks_) {
    if (!b.alive) continue;
    const Stretch::State state = !b.mapped ? Stretch::unmapped
                                 : b.used  ? Stretch::used
                                 : b.waits ? Stretch::pending
                                           : Stretch::idle;
    const Cache& cache = cache_of(b);
    all.push_back({state, b.address, b.bytes, cache.stream, cache.small, b.segment});
  }
  std::sort(all.begin(), all.end(),
            [](const Stretch& a, const Stretch& b) { return a.address < b.address; });
  return all;
}

void Allocator::check() const {
  std::int64_t used = 0, pending = 0, free = 0, split = 0;
  std::map<std::int64_t, std::int64_t> blocks_in;  // by segment
  const std::vector<Stretch> all = snapshot();
  for (const Stretch& s : all) ++blocks_in[s.segment];
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Stretch& s = all[i];
    PLIMSOLL_ASSERT(s.bytes > 0);
    if (s.state == Stretch::used) used += s.bytes;
    if (s.state == Stretch::pending) pending += s.bytes;
    if (s.state == Stretch::idle) free += s.bytes;
    if (s.state == Stretch::idle && blocks_in[s.segment] > 1 && !options_.expandable_segments)
      split += s.bytes;
    if (i == 0) continue;
    const Stretch& before = all[i - 1];
    PLIMSOLL_ASSERT(before.address + before.bytes <= s.address);  // nothing overlaps
    if (before.segment != s.segment) continue;
    PLIMSOLL_ASSERT(before.address + before.bytes == s.address);  // and nothing is lost
    PLIMSOLL_ASSERT(before.stream == s.stream && before.small == s.small);
    PLIMSOLL_ASSERT(before.state != s.state || s.state == Stretch::used ||
                    s.state == Stretch::pending);  // equal neighbours are one
  }
  PLIMSOLL_ASSERT(used == stats_.allocated.now);
  PLIMSOLL_ASSERT(used + pending == stats_.active.now);
  PLIMSOLL_ASSERT(used + pending + free == stats_.reserved.now);
  PLIMSOLL_ASSERT(split == stats_.inactive_split.now);
  PLIMSOLL_ASSERT(stats_.requested.now <= stats_.allocated.now);
  PLIMSOLL_ASSERT(static_cast<std::int64_t>(blocks_in.size()) == stats_.segments.now);
}

}  // namespace plimsoll::runtime
