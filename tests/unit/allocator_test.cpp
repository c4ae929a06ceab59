// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// The caching policy, rule by rule of ACCOUNTING.md D, and against a second, naive writing of it.

#include "runtime/allocator.hpp"

#include <cstdlib>
#include <iostream>
#include <random>

#include "lang/diagnostics.hpp"
#include "tests/catch.hpp"
#include "tests/unit/allocator_reference.hpp"
#include "tests/unit/seed.hpp"

using namespace plimsoll;
using namespace plimsoll::runtime;

namespace {

constexpr std::int64_t kGiB = 1024 * kMiB;

struct Fixture {
  explicit Fixture(AllocatorOptions o = {}, std::int64_t capacity = 16 * kGiB)
      : backing(capacity), allocator(backing, o) {}
  BlockId get(std::int64_t bytes, StreamId stream = 0) {
    const auto block = allocator.allocate(bytes, stream);
    REQUIRE(block);
    allocator.check();
    return *block;
  }
  void drop(BlockId id) {
    allocator.free(id);
    allocator.check();
  }
  std::int64_t reserved() const { return allocator.stats().reserved.now; }
  std::int64_t at(BlockId id) const { return allocator.address(id); }

  CountingBacking backing;
  Allocator allocator;
};

AllocatorOptions expandable() {
  AllocatorOptions o;
  o.expandable_segments = true;
  return o;
}

}  // namespace

TEST_CASE("D1: sizes are multiples of 512, or eighths of a power of two", "[allocator]") {
  Fixture plain;
  const std::pair<std::int64_t, std::int64_t> sizes[] = {
      {1, 512}, {511, 512}, {512, 512}, {513, 1024}, {1024, 1024}, {kMiB + 1, kMiB + 512}};
  for (const auto& [asked, block] : sizes) CHECK(plain.allocator.rounded(asked) == block);

  AllocatorOptions o;
  o.roundup_power2_divisions.fill(4);
  Fixture quarters(o);
  CHECK(quarters.allocator.rounded(1200 * kKiB) == 1280 * kKiB);
  CHECK(quarters.allocator.rounded(1024 * kKiB) == 1024 * kKiB);
  CHECK(quarters.allocator.rounded(1025 * kKiB) == 1280 * kKiB);
  CHECK(quarters.allocator.rounded(2048) == 2048);  // not above 512 * 4
  CHECK(quarters.allocator.rounded(2049) == 2560);
  CHECK(quarters.allocator.rounded(1900 * kMiB) == 2048 * kMiB);

  // One number a size class: 8 parts from 2 MiB to 4 MiB, multiples of 512 elsewhere.
  AllocatorOptions classes;
  classes.roundup_power2_divisions[1] = 8;
  Fixture one_class(classes);
  CHECK(one_class.allocator.rounded(2 * kMiB + 1) == 2 * kMiB + 256 * kKiB);
  CHECK(one_class.allocator.rounded(4 * kMiB + 1) == 4 * kMiB + 512);
}

TEST_CASE("D2, D3: what a miss reserves", "[allocator]") {
  const std::pair<std::int64_t, std::int64_t> segments[] = {
      {1, 2 * kMiB},          {kMiB, 2 * kMiB},
      {kMiB + 1, 20 * kMiB},  {10 * kMiB - 512, 20 * kMiB},
      {10 * kMiB, 10 * kMiB}, {10 * kMiB + 1, 12 * kMiB},
      {33 * kMiB, 34 * kMiB},
  };
  for (const auto& [asked, reserved] : segments) {
    Fixture f;
    f.get(asked);
    CHECK(f.reserved() == reserved);
  }
  // A small block never comes from a large segment with room, nor the reverse.
  Fixture f;
  f.get(2 * kMiB);
  CHECK(f.reserved() == 20 * kMiB);
  f.get(512);
  CHECK(f.reserved() == 22 * kMiB);
  f.get(kMiB);
  f.get(kMiB - 512);
  CHECK(f.reserved() == 22 * kMiB);
  f.get(512);
  CHECK(f.reserved() == 24 * kMiB);
  CHECK(f.allocator.stats().segments.now == 3);
}

TEST_CASE("D4: best fit in the stream, the lowest address of equals", "[allocator]") {
  Fixture f;
  const BlockId a = f.get(40 * kMiB), b = f.get(30 * kMiB), c = f.get(30 * kMiB);
  const std::int64_t at_b = f.at(b);
  f.drop(a);
  f.drop(c);
  f.drop(b);
  CHECK(f.at(f.get(30 * kMiB)) == at_b);
  const std::int64_t before = f.reserved();
  f.get(12 * kMiB, 1);  // another stream's cache is not touched
  CHECK(f.reserved() == before + 12 * kMiB);
}

TEST_CASE("D4, D8: max_split_size keeps large blocks whole and apart", "[allocator]") {
  AllocatorOptions o;
  o.max_split_size = 100 * kMiB;
  Fixture f(o);
  f.drop(f.get(150 * kMiB));
  f.get(50 * kMiB);  // may not break the 150 MiB block
  CHECK(f.reserved() == 200 * kMiB);
  const BlockId near = f.get(131 * kMiB);  // within 20 MiB: takes it whole
  CHECK(f.reserved() == 200 * kMiB);
  CHECK(f.allocator.bytes(near) == 150 * kMiB);
  f.drop(near);
  f.get(130 * kMiB);  // exactly 20 MiB too large: refused
  CHECK(f.reserved() == 330 * kMiB);
}

TEST_CASE("D6, D7: out of memory, the cached segments go back and it is tried again",
          "[allocator]") {
  Fixture f({}, 100 * kMiB);
  const BlockId a = f.get(40 * kMiB), b = f.get(40 * kMiB, 1), small = f.get(512);
  f.drop(a);
  f.drop(b);
  const BlockId big = f.get(90 * kMiB);  // both streams' segments are given back
  CHECK(f.reserved() == 92 * kMiB);
  CHECK(f.allocator.stats().retries == 1);
  CHECK(!f.allocator.allocate(10 * kMiB));  // a failure is a value, and changes nothing
  CHECK(f.allocator.stats().refusals == 1);
  CHECK(f.reserved() == 92 * kMiB);
  f.allocator.check();
  f.drop(big);
  f.drop(small);
  f.allocator.release_cached();
  CHECK(f.reserved() == 0);
  CHECK(f.backing.used() == 0);
  CHECK(f.backing.held() == 0);
  CHECK(!f.allocator.allocate(std::numeric_limits<std::int64_t>::max()));

  // A segment in part in use stays.
  Fixture g({}, 60 * kMiB);
  const BlockId left = g.get(20 * kMiB), right = g.get(20 * kMiB);
  g.drop(left);
  const BlockId part = g.get(4 * kMiB);
  g.drop(right);
  CHECK(!g.allocator.allocate(50 * kMiB));
  CHECK(g.reserved() == 20 * kMiB);
  g.drop(part);

  // A limit below the device's memory does the same (D12).
  AllocatorOptions o;
  o.limit = 50 * kMiB;
  Fixture h(o);
  h.drop(h.get(30 * kMiB));
  h.get(40 * kMiB);
  CHECK(h.reserved() == 40 * kMiB);
}

TEST_CASE("D7a: with max_split_size one oversized block goes first", "[allocator]") {
  AllocatorOptions o;
  o.max_split_size = 50 * kMiB;
  Fixture f(o, 300 * kMiB);
  const BlockId a = f.get(60 * kMiB), b = f.get(80 * kMiB), c = f.get(100 * kMiB),
                d = f.get(40 * kMiB);
  for (const BlockId id : {a, b, c, d}) f.drop(id);
  CHECK(f.reserved() == 280 * kMiB);
  f.get(90 * kMiB);  // 100 MiB is within 20 MiB: taken whole
  CHECK(f.reserved() == 280 * kMiB);
  f.get(110 * kMiB);  // no single block will do: 80 and 60 MiB go, 40 MiB stays
  CHECK(f.reserved() == 250 * kMiB);
  CHECK(f.allocator.stats().retries == 0);
}

TEST_CASE("D8: a rest of up to 1 MiB of a large block is handed out with it", "[allocator]") {
  Fixture f;
  f.drop(f.get(12 * kMiB));
  const BlockId whole = f.get(11 * kMiB);
  CHECK(f.allocator.bytes(whole) == 12 * kMiB);
  CHECK(f.allocator.stats().allocated.now == 12 * kMiB);
  CHECK(f.allocator.stats().requested.now == 11 * kMiB);
  f.drop(whole);
  const BlockId part = f.get(11 * kMiB - 512);
  CHECK(f.allocator.bytes(part) == 11 * kMiB - 512);
  CHECK(f.allocator.stats().inactive_split.now == kMiB + 512);
  const BlockId small = f.get(kMiB - 512);  // small: down to 512 bytes
  CHECK(f.allocator.bytes(small) == kMiB - 512);
  CHECK(f.allocator.bytes(f.get(kMiB)) == kMiB);
  CHECK(f.allocator.bytes(f.get(512)) == 512);
  CHECK(f.reserved() == 14 * kMiB);
}

TEST_CASE("D9: neighbours of a segment merge, segments do not", "[allocator]") {
  Fixture f;
  const BlockId a = f.get(5 * kMiB), b = f.get(5 * kMiB), c = f.get(5 * kMiB), d = f.get(5 * kMiB);
  CHECK(f.reserved() == 20 * kMiB);
  CHECK(f.at(b) == f.at(a) + 5 * kMiB);
  const std::int64_t start = f.at(a);
  f.drop(a);
  f.drop(c);
  f.drop(b);  // joins both
  CHECK(f.at(f.get(15 * kMiB)) == start);
  f.drop(d);
  f.get(5 * kMiB);
  CHECK(f.reserved() == 20 * kMiB);
  Fixture g;
  const BlockId x = g.get(20 * kMiB), y = g.get(20 * kMiB);
  g.drop(x);
  g.drop(y);
  g.get(40 * kMiB);  // adjacent addresses, yet two segments
  CHECK(g.reserved() == 80 * kMiB);
}

TEST_CASE("D9: a block that another stream uses stays active until it is done", "[allocator]") {
  Fixture f;
  const BlockId a = f.get(20 * kMiB);
  f.allocator.record_stream(a, 3);
  f.drop(a);
  CHECK(f.allocator.stats().allocated.now == 0);
  CHECK(f.allocator.stats().active.now == 20 * kMiB);
  const BlockId b = f.get(20 * kMiB);
  CHECK(f.reserved() == 40 * kMiB);
  f.allocator.finished(2);
  CHECK(f.allocator.stats().active.now == 40 * kMiB);
  f.allocator.finished(3);
  f.allocator.check();
  CHECK(f.allocator.stats().active.now == 20 * kMiB);
  f.get(20 * kMiB);
  CHECK(f.reserved() == 40 * kMiB);
  f.drop(b);
}

TEST_CASE("D10: expandable segments grow by pages and split to 512 bytes", "[allocator]") {
  Fixture f(expandable());
  const BlockId a = f.get(2 * kMiB);
  CHECK(f.reserved() == 20 * kMiB);
  const BlockId b = f.get(30 * kMiB);  // 18 MiB of the first page, and one page more
  CHECK(f.reserved() == 40 * kMiB);
  CHECK(f.at(b) == f.at(a) + 2 * kMiB);
  f.get(512);  // small: pages of 2 MiB in a segment of its own
  CHECK(f.reserved() == 42 * kMiB);
  CHECK(f.allocator.stats().segments.now == 2);
  const std::int64_t start = f.at(a);
  f.drop(a);
  f.drop(b);
  const BlockId c = f.get(100 * kMiB);  // where plain segments would need 100 MiB more
  CHECK(f.at(c) == start);
  CHECK(f.reserved() == 102 * kMiB);
  CHECK(f.allocator.stats().inactive_split.peak == 0);
}

TEST_CASE("D4, D10: the tail that can still grow is kept for last", "[allocator]") {
  Fixture f(expandable());
  const BlockId a = f.get(60 * kMiB), b = f.get(20 * kMiB), c = f.get(30 * kMiB);
  // Free: 60 MiB at the front, and a tail of 10 MiB with the unmapped rest behind it.
  CHECK(f.reserved() == 120 * kMiB);
  const std::int64_t front = f.at(a);
  f.drop(a);
  CHECK(f.at(f.get(5 * kMiB)) == front);  // though the tail fits better
  f.drop(b);
  f.drop(c);
}

TEST_CASE("D7b, D10: only whole free pages of an expandable segment go back", "[allocator]") {
  Fixture f(expandable(), 200 * kMiB);
  const BlockId a = f.get(50 * kMiB), b = f.get(5 * kMiB), c = f.get(85 * kMiB);
  CHECK(f.reserved() == 140 * kMiB);
  f.drop(a);
  f.drop(c);
  // [0, 50) and [55, 140) are free: pages 0, 1 and 3 to 6; the page in the middle stays.
  f.allocator.release_cached();
  f.allocator.check();
  CHECK(f.reserved() == 20 * kMiB);
  CHECK(f.backing.used() == 20 * kMiB);
  const BlockId d = f.get(45 * kMiB);  // the gap in front, with the 10 MiB behind it
  CHECK(f.at(d) + 50 * kMiB == f.at(b));
  f.drop(d);
  f.drop(b);
  f.allocator.release_cached();
  CHECK(f.reserved() == 0);
  CHECK(f.backing.held() == 0);
}

TEST_CASE("D11: peaks remember", "[allocator]") {
  Fixture f;
  f.drop(f.get(100 * kMiB + 1));
  f.get(1);
  const AllocatorStats& s = f.allocator.stats();
  CHECK(s.requested.peak == 100 * kMiB + 1);
  CHECK(s.allocated.peak == 100 * kMiB + 512);
  CHECK(s.reserved.peak == 104 * kMiB);
  CHECK(s.allocated.now == 512);
}

TEST_CASE("options that contradict each other are our error", "[allocator]") {
  CountingBacking backing(kGiB);
  AllocatorOptions o;
  o.max_split_size = 10 * kMiB;
  CHECK_THROWS_AS(Allocator(backing, o), InternalError);
  o = {};
  o.roundup_power2_divisions[3] = 3;
  CHECK_THROWS_AS(Allocator(backing, o), InternalError);
}

namespace {

AllocatorOptions random_options(std::mt19937& random) {
  AllocatorOptions o;
  o.expandable_segments = random() % 2;
  if (random() % 3 == 0) o.max_split_size = static_cast<std::int64_t>(21 + random() % 60) * kMiB;
  if (random() % 3 == 0)
    for (auto& d : o.roundup_power2_divisions) d = std::int64_t{1} << random() % 4;
  if (random() % 4 == 0) o.limit = static_cast<std::int64_t>(100 + random() % 400) * kMiB;
  return o;
}

std::int64_t random_size(std::mt19937& random) {
  const std::int64_t most[] = {2000, 300 * kKiB, kMiB, 4 * kMiB, 12 * kMiB, 60 * kMiB, 200 * kMiB};
  const std::int64_t up_to = most[random() % std::size(most)];
  const std::int64_t size = 1 + static_cast<std::int64_t>(random()) % up_to;
  return random() % 4 == 0 ? up_to : size;
}

}  // namespace

TEST_CASE("the allocator does what a naive writing of the policy does", "[allocator][property]") {
  const unsigned seed = test::seed_of_run();
  INFO("PLIMSOLL_SEED=" << seed);
  std::mt19937 random(seed);
  int requests = 0, refused = 0, retried = 0;
  for (int round = 0; round < 150; ++round) {
    const AllocatorOptions o = random_options(random);
    const auto capacity = static_cast<std::int64_t>(60 + random() % 900) * kMiB;
    const std::int64_t total = capacity + static_cast<std::int64_t>(random() % 100) * kMiB;
    const int streams = 1 + static_cast<int>(random() % 3);
    CountingBacking backing(total, capacity);
    Allocator allocator(backing, o);
    test::ReferenceAllocator reference(total, capacity, o);
    std::vector<BlockId> held;
    const auto compare = [&](int step) {
      INFO("round " << round << ", step " << step << ", expandable " << o.expandable_segments);
      const AllocatorStats& s = allocator.stats();
      REQUIRE(s.requested.now == reference.requested());
      REQUIRE(s.allocated.now == reference.allocated());
      REQUIRE(s.active.now == reference.active());
      REQUIRE(s.reserved.now == reference.reserved());
      REQUIRE(s.inactive_split.now == reference.inactive_split());
      REQUIRE(s.segments.now == static_cast<std::int64_t>(reference.segments()));
      REQUIRE(backing.used() == reference.reserved());
      REQUIRE(s.reserved.now >= s.allocated.now);
      allocator.check();
    };
    const unsigned keep = 2 + random() % 40;  // blocks held, about
    for (int step = 0; step < 200; ++step) {
      const unsigned dice = random() % 100;
      if (dice < 2) {
        allocator.release_cached();
        reference.release_cached();
      } else if (dice < 6) {
        const auto stream = static_cast<StreamId>(random() % 3);
        allocator.finished(stream);
        reference.finished(stream);
      } else if (held.empty() || random() % (held.size() + keep) >= held.size()) {
        const std::int64_t size = random_size(random);
        const auto stream = static_cast<StreamId>(random() % static_cast<unsigned>(streams));
        const auto block = allocator.allocate(size, stream);
        const auto expected = reference.allocate(size, stream);
        INFO("round " << round << ", step " << step << ": " << size << " bytes");
        REQUIRE(block.has_value() == expected.has_value());
        ++requests;
        refused += !block;
        if (block) {
          REQUIRE(allocator.address(*block) == *expected);
          held.push_back(*block);
        }
        if (block && random() % 8 == 0) {
          const auto other = static_cast<StreamId>(random() % 3);
          reference.record_stream(allocator.address(*block), other);
          allocator.record_stream(*block, other);
        }
      } else {
        std::swap(held[random() % held.size()], held.back());
        reference.free(allocator.address(held.back()));
        allocator.free(held.back());
        held.pop_back();
      }
      compare(step);
    }
    retried += static_cast<int>(allocator.stats().retries);
    for (const BlockId id : held) allocator.free(id);
    for (StreamId s = 0; s < 3; ++s) allocator.finished(s);
    allocator.release_cached();
    CHECK(allocator.stats().allocated.now == 0);
    CHECK(allocator.stats().reserved.now == 0);
    CHECK(backing.used() == 0);
    CHECK(backing.held() == 0);
  }
  std::cout << "allocator: seed " << seed << ", " << requests << " requests, " << refused
            << " refused, " << retried << " retries\n";
  CHECK(requests > 5000);
  CHECK(refused > 0);
  CHECK(retried > refused);
}

TEST_CASE("to borrow is to allocate and to free at once", "[allocator][property]") {
  const unsigned seed = test::seed_of_run();
  INFO("PLIMSOLL_SEED=" << seed);
  std::mt19937 random(seed);
  int served = 0, refused = 0;
  for (int round = 0; round < 100; ++round) {
    const AllocatorOptions o = random_options(random);
    const auto capacity = static_cast<std::int64_t>(60 + random() % 900) * kMiB;
    CountingBacking backing(capacity), other_backing(capacity);
    Allocator borrowing(backing, o), other(other_backing, o);
    std::vector<std::pair<BlockId, BlockId>> held;
    const unsigned keep = 2 + random() % 40;
    for (int step = 0; step < 200; ++step) {
      INFO("round " << round << ", step " << step << ", expandable " << o.expandable_segments);
      const std::int64_t size = random_size(random);
      const auto stream = static_cast<StreamId>(random() % 2);
      if (random() % 3 == 0) {
        const std::optional<BlockId> block = other.allocate(size, stream);
        if (block) other.free(*block);
        REQUIRE(borrowing.borrow(size, stream) == block.has_value());
        ++(block ? served : refused);
      } else if (held.empty() || random() % (held.size() + keep) >= held.size()) {
        const std::optional<BlockId> a = borrowing.allocate(size, stream);
        const std::optional<BlockId> b = other.allocate(size, stream);
        REQUIRE(a.has_value() == b.has_value());
        if (a) held.push_back({*a, *b});
      } else {
        std::swap(held[random() % held.size()], held.back());
        borrowing.free(held.back().first);
        other.free(held.back().second);
        held.pop_back();
      }
      const AllocatorStats &a = borrowing.stats(), &b = other.stats();
      for (const auto gauge : {&AllocatorStats::requested, &AllocatorStats::allocated,
                               &AllocatorStats::active, &AllocatorStats::reserved,
                               &AllocatorStats::inactive_split, &AllocatorStats::segments}) {
        REQUIRE((a.*gauge).now == (b.*gauge).now);
        REQUIRE((a.*gauge).peak == (b.*gauge).peak);
      }
      REQUIRE(a.retries == b.retries);
      REQUIRE(a.refusals == b.refusals);
      const std::vector<Allocator::Stretch> one = borrowing.snapshot(), two = other.snapshot();
      REQUIRE(one.size() == two.size());
      for (std::size_t i = 0; i < one.size(); ++i) {
        REQUIRE(one[i].address == two[i].address);
        REQUIRE(one[i].bytes == two[i].bytes);
        REQUIRE(one[i].state == two[i].state);
      }
    }
  }
  CHECK(served > 2000);
  CHECK(refused > 0);
}
