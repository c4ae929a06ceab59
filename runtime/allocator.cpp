// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/allocator.hpp"

#include <algorithm>
#include <bit>
#include <map>

#include "lang/diagnostics.hpp"

namespace plimsoll::runtime {

namespace {

std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

/// No device is larger: above it sums of sizes could overflow.
constexpr std::int64_t kLargestRequest = std::int64_t{1} << 60;

}  // namespace

Allocator::Allocator(Backing& backing, const AllocatorOptions& options)
    : backing_(backing), options_(options) {
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

Address Allocator::address(BlockId id) const { return at(id).address; }
std::int64_t Allocator::bytes(BlockId id) const { return at(id).bytes; }

std::int64_t Allocator::page(bool small) const {
  return small ? options_.small_segment : options_.large_segment;
}

std::int64_t Allocator::rounded(std::int64_t bytes) const {
  if (bytes <= options_.min_block) return options_.min_block;
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

std::optional<BlockId> Allocator::allocate(std::int64_t bytes, StreamId stream) {
  PLIMSOLL_ASSERT(bytes > 0);
  if (bytes > kLargestRequest) {
    ++stats_.refusals;
    return std::nullopt;
  }
  const std::int64_t size = rounded(bytes);
  const bool small = size <= options_.small_size;  // D2
  BlockId found = find_free(size, stream, small);
  if (found == kNoBlock) found = make(size, stream, small);
  if (found == kNoBlock && release_oversized(size, stream, small))  // D7a
    found = make(size, stream, small);
  if (found == kNoBlock) {  // D7b
    ++stats_.retries;
    std::set<StreamId> busy;
    for (const BlockId id : pending_)
      busy.insert(at(id).other_uses.begin(), at(id).other_uses.end());
    for (const StreamId use : busy) finished(use);  // the events are waited for
    release_cached();
    found = make(size, stream, small);
  }
  if (found == kNoBlock) {
    ++stats_.refusals;
    return std::nullopt;
  }
  return hand_out(found, bytes, size);
}

/// What a free block could become: with the unmapped tail behind it, where it has one (D4).
std::int64_t Allocator::reach(const Block& b) const {
  if (b.next == kNoBlock || blocks_[b.next].mapped) return b.bytes;
  return b.bytes + blocks_[b.next].bytes;
}

/// The best fit of the stream, D4; still in the cache.
BlockId Allocator::find_free(std::int64_t size, StreamId stream, bool small) {
  const auto& free = pool(small).free;
  auto it = std::lower_bound(free.begin(), free.end(), FreeKey{stream, 0, size, 0});
  if (it == free.end() || it->stream != stream) return kNoBlock;
  if (options_.expandable_segments) {
    // Only downhill: the walk ends at the first block that reaches as far as the one in hand.
    for (auto next = std::next(it);
         next != free.end() && next->stream == stream && reach(at(next->id)) < reach(at(it->id));
         ++next)
      it = next;
  }
  const std::int64_t found = it->bytes;
  if (size < options_.max_split_size && found >= options_.max_split_size) return kNoBlock;
  if (size >= options_.max_split_size && found >= size + options_.max_non_split_rounding)
    return kNoBlock;
  return it->id;
}

/// D6.
BlockId Allocator::make(std::int64_t size, StreamId stream, bool small) {
  if (segment_size(size) > options_.limit - stats_.reserved.now) return kNoBlock;
  return options_.expandable_segments ? grow(size, stream, small)
                                      : make_segment(size, stream, small);
}

BlockId Allocator::make_segment(std::int64_t size, StreamId stream, bool small) {
  const std::int64_t bytes = segment_size(size);
  const std::optional<Address> address = backing_.reserve(bytes);
  if (!address) return kNoBlock;
  stats_.reserved.add(bytes);
  stats_.segments.add(1);
  Block b;
  b.address = *address;
  b.bytes = bytes;
  b.stream = stream;
  b.small = small;
  b.segment = next_segment_++;
  return new_block(b);
}

/// D8.
bool Allocator::may_split(const Block& b, std::int64_t size) const {
  const std::int64_t rest = b.bytes - size;
  if (b.small || b.expandable) return rest >= options_.min_block;
  return size < options_.max_split_size && rest > options_.small_size;
}

BlockId Allocator::hand_out(BlockId id, std::int64_t requested, std::int64_t size) {
  const bool cached = at(id).cached;
  if (may_split(at(id), size)) {
    const FreeKey key = free_key(id);
    if (cached) count_split(id, -1);
    Block rest = at(id);
    rest.address += size;
    rest.bytes -= size;
    rest.previous = id;
    const BlockId rest_id = new_block(rest);
    if (rest.next != kNoBlock) at(rest.next).previous = rest_id;
    at(id).next = rest_id;
    at(id).bytes = size;
    at(id).cached = false;
    if (cached)
      move_free(key, rest_id);
    else
      insert_free(rest_id);
  } else if (cached) {
    erase_free(id);
  }
  Block& b = at(id);
  b.used = true;
  b.requested = requested;
  stats_.requested.add(requested);
  stats_.allocated.add(b.bytes);
  stats_.active.add(b.bytes);
  return id;
}

void Allocator::free(BlockId id) {
  Block& b = at(id);
  PLIMSOLL_ASSERT(b.used);
  stats_.requested.add(-b.requested);
  stats_.allocated.add(-b.bytes);
  b.used = false;
  b.requested = 0;
  if (b.other_uses.empty())
    to_cache(id);
  else
    pending_.push_back(id);
}

void Allocator::record_stream(BlockId id, StreamId stream) {
  Block& b = at(id);
  PLIMSOLL_ASSERT(b.used);
  if (stream == b.stream) return;
  if (std::find(b.other_uses.begin(), b.other_uses.end(), stream) == b.other_uses.end())
    b.other_uses.push_back(stream);
}

void Allocator::finished(StreamId stream) {
  std::vector<BlockId> done;
  for (const BlockId id : pending_) {
    std::erase(at(id).other_uses, stream);
    if (at(id).other_uses.empty()) done.push_back(id);
  }
  std::erase_if(pending_, [&](BlockId id) { return at(id).other_uses.empty(); });
  for (const BlockId id : done) to_cache(id);
}

/// D9: a block that nobody uses joins its idle neighbours of the same segment.
void Allocator::to_cache(BlockId id) {
  stats_.active.add(-at(id).bytes);
  std::optional<FreeKey> place;  // of the first such neighbour: the whole takes it over
  for (const BlockId neighbour : {at(id).previous, at(id).next}) {
    if (neighbour == kNoBlock || !at(neighbour).mapped || !is_idle(neighbour)) continue;
    if (place) {
      erase_free(neighbour);
    } else {
      place = free_key(neighbour);
      count_split(neighbour, -1);
    }
    absorb(id, neighbour);
  }
  if (place)
    move_free(*place, id);
  else
    insert_free(id);
}

}  // namespace plimsoll::runtime
