// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/allocator.hpp"

#include <algorithm>
#include <bit>
#include <map>

#include "lang/diagnostics.hpp"

namespace plimsoll::runtime {

namespace {

/// Most steps are powers of two, and a division costs more than all else here.
std::int64_t round_up(std::int64_t n, std::int64_t step) {
  const std::int64_t last = n + step - 1;
  return (step & (step - 1)) == 0 ? last & -step : last / step * step;
}

/// No device is larger: above it sums of sizes could overflow.
constexpr std::int64_t kLargestRequest = std::int64_t{1} << 60;

constexpr std::uint32_t kNoCache = ~std::uint32_t{0};

}  // namespace

Allocator::Allocator(Backing& backing, const AllocatorOptions& options)
    : backing_(backing),
      options_(options),
      plain_sizes_(std::all_of(options.roundup_power2_divisions.begin(),
                               options.roundup_power2_divisions.end(),
                               [](std::int64_t divisions) { return divisions <= 1; })),
      any_fit_(!options.expandable_segments && options.max_split_size == AllocatorOptions::kNever) {
  const AllocatorOptions& o = options_;
  PLIMSOLL_ASSERT(o.min_block > 0 && o.min_block <= o.small_size);
  PLIMSOLL_ASSERT(o.small_size <= o.small_segment && o.small_segment % o.min_block == 0);
  PLIMSOLL_ASSERT(o.min_large_segment <= o.large_segment && o.large_segment % o.min_block == 0);
  PLIMSOLL_ASSERT(o.round_large % o.min_block == 0);
  // PyTorch refuses smaller ones: a fresh segment could not be split.
  PLIMSOLL_ASSERT(o.max_split_size > o.large_segment);
  for (const std::int64_t d : o.roundup_power2_divisions)
    PLIMSOLL_ASSERT(d >= 0 && (d == 0 || std::has_single_bit(static_cast<std::uint64_t>(d))));
}

Allocator::~Allocator() {
  std::map<std::int64_t, std::pair<Address, Address>> ranges;  // of expandable segments
  for (const Block& b : blocks_) {
    if (!b.alive) continue;
    if (b.expandable) {
      const auto [range, is_new] =
          ranges.try_emplace(b.segment, std::pair{b.address, b.address + b.bytes});
      range->second.first = std::min(range->second.first, b.address);
      range->second.second = std::max(range->second.second, b.address + b.bytes);
      if (b.mapped) backing_.unmap(b.address, b.bytes);
    } else if (b.previous == kNoBlock) {
      std::int64_t bytes = b.bytes;
      for (BlockId n = b.next; n != kNoBlock; n = blocks_[n].next) bytes += blocks_[n].bytes;
      backing_.release(b.address, bytes);
    }
  }
  for (const auto& [segment, range] : ranges)
    backing_.release_range(range.first, range.second - range.first);
}

Address Allocator::address(BlockId id) const {
  PLIMSOLL_ASSERT(is_used(id));
  return at(id).address;
}

std::int64_t Allocator::bytes(BlockId id) const {
  PLIMSOLL_ASSERT(is_used(id));
  return at(id).bytes;
}

std::int64_t Allocator::page(bool small) const {
  return small ? options_.small_segment : options_.large_segment;
}

std::int64_t Allocator::rounded(std::int64_t bytes) const {
  if (plain_sizes_ || bytes <= options_.min_block) return round_up(bytes, options_.min_block);
  const auto size = static_cast<std::uint64_t>(bytes);
  const int power = std::bit_width(size) - 1;
  const auto size_class = static_cast<std::size_t>(std::clamp(power - 20, 0, 15));
  const std::int64_t divisions = options_.roundup_power2_divisions[size_class];
  if (divisions > 1 && bytes > options_.min_block * divisions)
    return round_up(bytes, static_cast<std::int64_t>(std::bit_floor(size)) / divisions);
  return round_up(bytes, options_.min_block);
}

/// D3.
std::int64_t Allocator::segment_size(std::int64_t rounded) const {
  if (rounded <= options_.small_size) return options_.small_segment;
  if (rounded < options_.min_large_segment) return options_.large_segment;
  return round_up(rounded, options_.round_large);
}

// --- blocks of a segment

/// An entry for one more block.
BlockId Allocator::vacancy() {
  if (vacant_.empty()) {
    blocks_.emplace_back();
    return static_cast<BlockId>(blocks_.size() - 1);
  }
  const BlockId id = vacant_.back();
  vacant_.pop_back();
  return id;
}

BlockId Allocator::new_block(const Block& b) {
  const BlockId id = vacancy();
  at(id) = b;
  at(id).alive = true;
  return id;
}

void Allocator::insert_free(BlockId id) {
  Block& b = at(id);
  b.cached = true;
  b.shelf = cache_of(b).free.insert({b.bytes, b.address, id});
  if (is_split(b) && !b.expandable) stats_.inactive_split.add(b.bytes);
}

/// Before anything of the block or its links changes.
void Allocator::erase_free(BlockId id) {
  Block& b = at(id);
  b.cached = false;
  cache_of(b).free.erase(b.shelf, b.address);
  if (is_split(b) && !b.expandable) stats_.inactive_split.take(b.bytes);
}

/// \a neighbour, next to \a into and in no list, becomes part of it.
void Allocator::absorb(BlockId into, BlockId neighbour) {
  Block& a = at(into);
  Block& b = at(neighbour);
  PLIMSOLL_ASSERT(a.mapped == b.mapped && a.segment == b.segment);
  if (a.previous == neighbour) {
    a.address = b.address;
    a.previous = b.previous;
    if (a.previous != kNoBlock) at(a.previous).next = into;
  } else {
    PLIMSOLL_ASSERT(a.next == neighbour);
    a.next = b.next;
    if (a.next != kNoBlock) at(a.next).previous = into;
  }
  a.bytes += b.bytes;
  b.alive = false;
  vacant_.push_back(neighbour);
}

// --- handing out and taking back

std::optional<BlockId> Allocator::allocate(std::int64_t bytes, StreamId stream) {
  PLIMSOLL_ASSERT(bytes > 0);
  if (bytes > kLargestRequest) {
    ++stats_.refusals;
    return std::nullopt;
  }
  const std::int64_t size = rounded(bytes);
  const std::uint32_t from = cache(stream, size <= options_.small_size);  // D2
  BlockId id = find_free(size, caches_[from].free);
  if (id != kNoBlock)
    erase_free(id);
  else
    id = make_at_any_cost(size, from);
  if (id == kNoBlock) {
    ++stats_.refusals;
    return std::nullopt;
  }
  hand_out(id, bytes, size);
  return id;
}

/// D6; where there is no memory, what is cached is given back for it.
BlockId Allocator::make_at_any_cost(std::int64_t size, std::uint32_t from) {
  BlockId made = make(size, from);
  if (made == kNoBlock && release_oversized(size, from)) made = make(size, from);  // D7a
  if (made != kNoBlock) return made;
  ++stats_.retries;  // D7b
  std::set<StreamId> busy;
  for (const BlockId id : pending_)
    busy.insert(other_uses_.at(id).begin(), other_uses_.at(id).end());
  for (const StreamId use : busy) finished(use);  // the events are waited for
  release_cached();
  return make(size, from);
}

inline std::uint32_t Allocator::cache(StreamId stream, bool small) {
  const std::size_t key = 2 * static_cast<std::size_t>(stream) + (small ? 1 : 0);
  if (key < cache_numbers_.size() && cache_numbers_[key] != kNoCache) return cache_numbers_[key];
  return add_cache(stream, small);
}

std::uint32_t Allocator::add_cache(StreamId stream, bool small) {
  PLIMSOLL_ASSERT(stream >= 0);
  const std::size_t key = 2 * static_cast<std::size_t>(stream) + (small ? 1 : 0);
  if (cache_numbers_.size() <= key) cache_numbers_.resize(key + 1, kNoCache);
  cache_numbers_[key] = static_cast<std::uint32_t>(caches_.size());
  caches_.push_back({stream, small, {}, {}});
  return cache_numbers_[key];
}

/// What a free block could become: with the unmapped tail behind it, where it has one (D4).
std::int64_t Allocator::reach(const Block& b) const {
  if (b.next == kNoBlock || blocks_[b.next].mapped) return b.bytes;
  return b.bytes + blocks_[b.next].bytes;
}

/// The best fit, D4.
inline BlockId Allocator::find_free(std::int64_t size, const FreeList& free) const {
  const FreeList::Entry found = free.best(size);
  return found.id == kNoBlock || any_fit_ ? found.id : pick(found, size, free);
}

/// The same where the options look at what was found, or further.
BlockId Allocator::pick(FreeList::Entry found, std::int64_t size, const FreeList& free) const {
  if (options_.expandable_segments) {
    // Only downhill: the walk ends at the first block that reaches as far as the one in hand.
    for (FreeList::Entry next = free.after(found);
         next.id != kNoBlock && reach(at(next.id)) < reach(at(found.id)); next = free.after(found))
      found = next;
  }
  if (size < options_.max_split_size && found.bytes >= options_.max_split_size) return kNoBlock;
  if (size >= options_.max_split_size && found.bytes >= size + options_.max_non_split_rounding)
    return kNoBlock;
  return found.id;
}

/// D6.
BlockId Allocator::make(std::int64_t size, std::uint32_t cache) {
  if (segment_size(size) > options_.limit - stats_.reserved.now) return kNoBlock;
  return options_.expandable_segments ? grow(size, cache) : make_segment(size, cache);
}

BlockId Allocator::make_segment(std::int64_t size, std::uint32_t cache) {
  const std::int64_t bytes = segment_size(size);
  const std::optional<Address> address = backing_.reserve(bytes);
  if (!address) return kNoBlock;
  stats_.reserved.add(bytes);
  stats_.segments.add(1);
  Block b;
  b.address = *address;
  b.bytes = bytes;
  b.cache = cache;
  b.segment = next_segment_++;
  return new_block(b);
}

/// D8.
inline bool Allocator::may_split(const Block& b, std::int64_t size) const {
  const std::int64_t rest = b.bytes - size;
  if (b.expandable || size <= options_.small_size) return rest >= options_.min_block;
  return size < options_.max_split_size && rest > options_.small_size;
}

/// The rest of the block behind its first \a bytes becomes a block of its own, in no list.
BlockId Allocator::split(BlockId id, std::int64_t bytes) {
  const BlockId rest_id = vacancy();
  Block& front = at(id);
  Block& rest = at(rest_id);
  rest = front;
  rest.address += bytes;
  rest.bytes -= bytes;
  rest.previous = id;
  if (rest.next != kNoBlock) at(rest.next).previous = rest_id;
  front.next = rest_id;
  front.bytes = bytes;
  return rest_id;
}

/// A block in no list; what is left of it becomes free.
inline void Allocator::hand_out(BlockId id, std::int64_t requested, std::int64_t size) {
  if (may_split(at(id), size)) insert_free(split(id, size));
  Block& b = at(id);
  b.used = true;
  b.requested = requested;
  stats_.requested.add(requested);
  stats_.allocated.add(b.bytes);
  stats_.active.add(b.bytes);
}

bool Allocator::borrow(std::int64_t bytes, StreamId stream) {
  PLIMSOLL_ASSERT(bytes > 0);
  BlockId found = kNoBlock;
  std::int64_t size = 0;
  if (bytes <= kLargestRequest) {
    size = rounded(bytes);
    found = find_free(size, caches_[cache(stream, size <= options_.small_size)].free);
  }
  if (found == kNoBlock) {
    const std::optional<BlockId> block = allocate(bytes, stream);
    if (block) free(*block);
    return block.has_value();
  }
  // What is cut off a free block joins it again: the gauges alone have seen it.
  const Block& b = at(found);
  const bool splits = may_split(b, size);
  stats_.requested.touch(bytes);
  stats_.allocated.touch(splits ? size : b.bytes);
  stats_.active.touch(splits ? size : b.bytes);
  if (splits && !is_split(b) && !b.expandable) stats_.inactive_split.touch(b.bytes - size);
  return true;
}

void Allocator::free(BlockId id) {
  PLIMSOLL_ASSERT(is_used(id));
  Block& b = at(id);
  stats_.requested.take(b.requested);
  stats_.allocated.take(b.bytes);
  b.used = false;
  b.requested = 0;
  if (b.waits)
    pending_.push_back(id);
  else
    to_cache(id);
}

void Allocator::record_stream(BlockId id, StreamId stream) {
  PLIMSOLL_ASSERT(is_used(id));
  Block& b = at(id);
  if (stream == cache_of(b).stream) return;
  b.waits = true;
  other_uses_[id].insert(stream);
}

void Allocator::finished(StreamId stream) {
  std::vector<BlockId> done;
  for (const BlockId id : pending_) {
    const auto uses = other_uses_.find(id);
    uses->second.erase(stream);
    if (!uses->second.empty()) continue;
    other_uses_.erase(uses);
    at(id).waits = false;
    done.push_back(id);
  }
  std::erase_if(pending_, [&](BlockId id) { return !at(id).waits; });
  for (const BlockId id : done) to_cache(id);
}

/// D9: a block that nobody uses joins its idle neighbours of the same segment.
inline void Allocator::to_cache(BlockId id) {
  stats_.active.take(at(id).bytes);
  for (const BlockId neighbour : {at(id).previous, at(id).next}) {
    if (neighbour == kNoBlock || !at(neighbour).cached) continue;
    erase_free(neighbour);
    absorb(id, neighbour);
  }
  insert_free(id);
}

}  // namespace plimsoll::runtime
