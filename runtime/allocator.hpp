// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "lang/diagnostics.hpp"
#include "runtime/backing.hpp"
#include "runtime/free_list.hpp"

/// PyTorch's policy of caching memory, as one implementation over any Backing. Rung 3 of the
/// ladder: what the segments come to, computed and not guessed. Source of every rule:
/// ACCOUNTING.md D (c10/cuda/CUDACachingAllocator.cpp, 2.4 to 2.6), cited below as D1, D2, ….
///
/// Left out: garbage collection by age (D5, off by default), callbacks that free memory on a miss
/// (D5), and private pools of graphs and MemPools (D2, D13).
namespace plimsoll::runtime {

inline constexpr std::int64_t kKiB = 1024, kMiB = 1024 * kKiB;

struct AllocatorOptions {
  std::int64_t min_block = 512;           ///< blocks are multiples of it
  std::int64_t small_size = 1 * kMiB;     ///< a block up to this comes from the small pool
  std::int64_t small_segment = 2 * kMiB;  ///< segments of the small pool, and its pages
  std::int64_t large_segment =
      20 * kMiB;  ///< segments for large blocks below min_large_segment, and pages
  std::int64_t min_large_segment = 10 * kMiB;  ///< from here on a segment is the block's own …
  std::int64_t round_large = 2 * kMiB;         ///< … rounded up to this
  std::int64_t max_split_size = kNever;        ///< larger blocks are neither split nor shared
  std::int64_t max_non_split_rounding =
      20 * kMiB;  ///< how much too large a block may be for a request above max_split_size
  /// Steps in which a size is rounded between two powers of two; 0: multiples of min_block. By
  /// power of two of the size, from 1 MiB (and all below) to 32 GiB (and all above).
  std::array<std::int64_t, 16> roundup_power2_divisions{};
  bool expandable_segments = false;
  std::int64_t limit = kNever;  ///< of all segments: the memory fraction times the device's memory

  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
};

/// Now and at most. Bytes, except where it says otherwise.
struct Gauge {
  std::int64_t now = 0, peak = 0;
  void add(std::int64_t delta) {
    now += delta;
    if (now > peak) peak = now;
  }
  void take(std::int64_t amount) { now -= amount; }
  /// As much more for a moment.
  void touch(std::int64_t amount) {
    if (now + amount > peak) peak = now + amount;
  }
};

/// D11.
struct AllocatorStats {
  Gauge requested;            ///< as asked for
  Gauge allocated;            ///< blocks handed out and not yet freed
  Gauge active;               ///< those, and freed ones that a stream still uses
  Gauge reserved;             ///< segments; of expandable ones the mapped pages
  Gauge inactive_split;       ///< free parts of segments in part in use (expandable ones left out)
  Gauge segments;             ///< number of segments; an expandable one counts as one
  std::int64_t refusals = 0;  ///< requests that failed in the end
  std::int64_t retries = 0;   ///< times the cached blocks were given back for want of memory
};

using StreamId = std::int32_t;  ///< from 0, without large gaps

class Allocator {
 public:
  /// \a backing outlives the allocator. Throws InternalError where the options contradict each
  /// other.
  Allocator(Backing& backing, const AllocatorOptions&);
  /// Gives all memory back, that of blocks still in use included.
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  /// A block of at least \a bytes > 0 for work on \a stream; nullopt where there is no memory, even
  /// after all that is cached went back. The id is valid until it is freed.
  std::optional<BlockId> allocate(std::int64_t bytes, StreamId stream = 0);
  void free(BlockId);
  /// The two at once: a block that is gone before anything else happens. False where there is no
  /// memory.
  bool borrow(std::int64_t bytes, StreamId stream = 0);
  /// D9: \a stream, not the block's own, uses the block too: once freed it stays active until
  /// finished(stream) says that this work is done.
  void record_stream(BlockId, StreamId stream);
  void finished(StreamId);
  /// Everything that is cached and whole goes back to the backing (empty_cache; D7b).
  void release_cached();

  Address address(BlockId) const;
  std::int64_t bytes(BlockId) const;               ///< of the block, not of the request
  std::int64_t rounded(std::int64_t bytes) const;  ///< D1
  const AllocatorStats& stats() const { return stats_; }

  /// A stretch of a segment, for reports and tests.
  struct Stretch {
    enum State { used, pending, idle, unmapped } state;
    Address address;
    std::int64_t bytes;
    StreamId stream;
    bool small;
    std::int64_t segment;  ///< number of its segment, in order of birth
  };
  /// All of them, by address.
  std::vector<Stretch> snapshot() const;
  /// Throws InternalError where the books do not agree with each other.
  void check() const;

 private:
  /// A stretch of a segment: a doubly linked list a segment, in order of address. One line of a
  /// processor's cache: a replay does little else than look at blocks.
  struct alignas(64) Block {
    Address address = 0;
    std::int64_t bytes = 0, requested = 0;
    std::int64_t segment = 0;
    BlockId previous = kNoBlock, next = kNoBlock;
    std::uint32_t cache = 0;      ///< number of the Cache that it goes to when it is free
    FreeList::ShelfId shelf = 0;  ///< while it is cached: where in its cache's list
    bool mapped = true, expandable = false;
    bool used = false;
    bool cached = false;  ///< in its cache's list of free blocks
    bool waits = false;   ///< another stream uses it (D9): other_uses_ says which
    bool alive = false;   ///< false: the entry is vacant
  };
  /// What is free of one stream's blocks in the small pool or the large one (D2).
  struct Cache {
    StreamId stream = 0;
    bool small = false;
    FreeList free;                                     ///< mapped blocks that nobody uses
    std::set<std::pair<Address, BlockId>> unmapped{};  ///< of expandable segments
  };

  Block& at(BlockId id) { return blocks_[id]; }
  const Block& at(BlockId id) const { return blocks_[id]; }
  bool is_used(BlockId id) const { return id < blocks_.size() && blocks_[id].used; }
  Cache& cache_of(const Block& b) { return caches_[b.cache]; }
  const Cache& cache_of(const Block& b) const { return caches_[b.cache]; }
  std::uint32_t cache(StreamId, bool small);
  std::uint32_t add_cache(StreamId, bool small);
  BlockId vacancy();
  BlockId new_block(const Block&);
  void insert_free(BlockId);
  void erase_free(BlockId);
  bool is_split(const Block& b) const { return b.previous != kNoBlock || b.next != kNoBlock; }
  bool is_idle(const Block& b) const { return b.cached || !b.mapped; }
  std::int64_t page(bool small) const;
  std::int64_t segment_size(std::int64_t rounded) const;

  BlockId find_free(std::int64_t rounded, const FreeList&) const;
  BlockId pick(FreeList::Entry, std::int64_t rounded, const FreeList&) const;
  std::int64_t reach(const Block&) const;
  BlockId make(std::int64_t rounded, std::uint32_t cache);
  BlockId make_at_any_cost(std::int64_t rounded, std::uint32_t cache);
  BlockId make_segment(std::int64_t rounded, std::uint32_t cache);
  BlockId grow(std::int64_t rounded, std::uint32_t cache);
  BlockId room_to_grow(std::int64_t rounded, std::uint32_t cache);
  bool map(BlockId, std::int64_t bytes);
  void unmap(BlockId);
  BlockId split(BlockId, std::int64_t bytes);
  void hand_out(BlockId, std::int64_t requested, std::int64_t rounded);
  bool may_split(const Block&, std::int64_t rounded) const;
  void to_cache(BlockId);
  void absorb(BlockId into, BlockId neighbour);
  bool release_oversized(std::int64_t rounded, std::uint32_t cache);
  void release_segment(BlockId);
  void release_range(BlockId);

  Backing& backing_;
  AllocatorOptions options_;
  const bool plain_sizes_;  ///< rounded to multiples of min_block
  const bool any_fit_;      ///< the smallest block that is large enough will do
  AllocatorStats stats_;
  std::vector<Block> blocks_;
  std::vector<BlockId> vacant_;
  std::map<BlockId, std::set<StreamId>> other_uses_;  ///< D9
  std::vector<BlockId> pending_;                      ///< freed, but a stream still uses them
  std::vector<Cache> caches_;                         ///< in order of first use
  std::vector<std::uint32_t> cache_numbers_;          ///< by twice the stream, and one if small
  std::int64_t next_segment_ = 0;
};

}  // namespace plimsoll::runtime
