// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// What is decided on the CPU before a GPU is asked: memory over a played driver, launches, tiles,
// and kernels' arithmetic where whole runs do not show it.

#include <random>
#include <set>

#include "runtime/allocator.hpp"
#include "runtime/cuda/driver_backing.hpp"
#include "runtime/cuda/emulated_machine.hpp"
#include "runtime/host/half.hpp"
#include "runtime/host/op_call.hpp"
#include "runtime/host/random.hpp"
#include "tests/catch.hpp"

using namespace plimsoll;
using namespace plimsoll::runtime;
using namespace plimsoll::runtime::cuda;

namespace {

/// A driver of so many bytes that notes what it has out.
class PlayedDriver final : public Driver {
 public:
  explicit PlayedDriver(std::int64_t total) : total_(total) {}
  MemoryFacts memory() const override { return {total_ - used, total_}; }
  void* allocate(std::int64_t bytes) override {
    if (bytes > total_ - used) return nullptr;
    used += bytes;
    const Address at = next();
    segments[at] = bytes;
    return reinterpret_cast<void*>(at);  // NOLINT
  }
  void free(void* at) override {
    const auto segment = segments.find(reinterpret_cast<Address>(at));  // NOLINT
    REQUIRE(segment != segments.end());
    used -= segment->second;
    segments.erase(segment);
  }
  Address reserve(std::int64_t bytes) override {
    CHECK(bytes % kPage == 0);
    const Address at = next();
    ranges[at] = bytes;
    return at;
  }
  void release(Address at, std::int64_t bytes) override {
    CHECK(ranges.at(at) == bytes);
    ranges.erase(at);
  }
  bool map(Address at) override {
    CHECK(at % kPage == 0);
    if (kPage > total_ - used) return false;
    CHECK(pages.insert(at).second);
    used += kPage;
    return true;
  }
  void unmap(Address at) override {
    CHECK(pages.erase(at) == 1);
    used -= kPage;
  }
  void open(Address at, std::int64_t bytes) override {
    for (std::int64_t i = 0; i < bytes; i += kPage) CHECK(pages.count(at + i) == 1);
  }

  std::int64_t used = 0;
  std::map<Address, std::int64_t> segments, ranges;
  std::set<Address> pages;

 private:
  Address next() { return next_ += Address{1} << 40; }
  std::int64_t total_;
  Address next_ = 0;
};

}  // namespace

TEST_CASE("cuda driver: the allocator over a played driver gives all back, and asks for no more",
          "[cuda]") {
  const auto seed = Catch::rngSeed();
  INFO("seed " << seed);
  for (const bool expandable : {false, true}) {
    PlayedDriver driver(std::int64_t{1} << 30);
    {
      DriverBacking backing(driver, std::int64_t{512} << 20);
      AllocatorOptions o;
      o.expandable_segments = expandable;
      Allocator allocator(backing, o);
      std::mt19937 random(seed);
      std::vector<BlockId> blocks;
      std::int64_t refused = 0;
      for (int i = 0; i < 2000; ++i) {
        if (!blocks.empty() && random() % 2 == 0) {
          const std::size_t k = random() % blocks.size();
          allocator.free(blocks[k]);
          blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(k));
        } else if (const auto b =
                       allocator.allocate(1 + static_cast<std::int64_t>(random() % (60 << 20)))) {
          blocks.push_back(*b);
        } else {
          ++refused;
        }
        CHECK(driver.used == allocator.stats().reserved.now);
        CHECK(driver.used <= std::int64_t{512} << 20);
        CHECK(driver.used == backing.used());
      }
      CHECK(refused > 0);
      allocator.check();
      for (const BlockId b : blocks) allocator.free(b);
      allocator.release_cached();
      CHECK(allocator.stats().reserved.now == driver.used);
    }
    CHECK(driver.used == 0);
    CHECK(driver.segments.empty());
    CHECK(driver.ranges.empty());
    CHECK(driver.pages.empty());
  }
}

TEST_CASE("cuda driver: pages that cannot all be had are given back", "[cuda]") {
  PlayedDriver driver(5 * Driver::kPage);
  DriverBacking backing(driver, std::int64_t{1} << 40);
  const Address range = backing.reserve_range(16 * Driver::kPage);
  CHECK(backing.map(range, 3 * Driver::kPage));
  CHECK_FALSE(backing.map(range + 3 * Driver::kPage, 3 * Driver::kPage));
  CHECK(driver.pages.size() == 3);
  backing.unmap(range, 3 * Driver::kPage);
  backing.release_range(range, 16 * Driver::kPage);
  CHECK(driver.ranges.empty());
}

TEST_CASE("cuda launch: every item is somebody's, and no block asks for more than there is",
          "[cuda]") {
  const GpuFacts gpu{132, 227 * 1024, 90};
  for (const std::int64_t n : {1, 255, 256, 257, 1 << 20, 1 << 30}) {
    const LaunchShape s = launch_shape(Scale{{}, {}, n, 1, false}, gpu);
    CHECK(s.threads == 256);
    CHECK(s.blocks >= 1);
    CHECK(s.blocks <= 132 * 16);
    CHECK((s.blocks - 1) * s.threads < n);  // none is idle from the start
  }
  CHECK(launch_shape(Scale{}, gpu).blocks == 0);
  NormForward norm;
  norm.norm.rows = 4096;
  CHECK(launch_shape(norm, gpu).blocks == 4096);
  // Tiles shrink until they fit; what fits nowhere is told.
  for (const std::int64_t shared : {227, 163, 99, 48})
    for (const std::int64_t width : {64, 96, 128, 192, 256}) {
      Attention a;
      a.q_width = a.v_width = width;
      a.sequences = a.heads = a.kv_heads = 1;
      a.queries = a.keys = 8192;
      const GpuFacts small{132, shared * 1024, 80};
      FlashBackwardKeys<Bf16> k;
      k.saved.a = a;
      k.tiles = fitting_tiles(
          small, [&](TileSizes t) { return FlashBackwardKeys<Bf16>::shared_for(a, t); });
      if (k.tiles.queries == 0) {
        CHECK(shared == 48);
        continue;
      }
      const LaunchShape s = launch_shape(k, small);
      CHECK(s.shared_bytes <= shared * 1024);
      CHECK(s.blocks == (8192 + k.tiles.keys - 1) / k.tiles.keys);
    }
  FlashForward<float> large;
  large.a.q_width = large.a.v_width = 256;
  large.a.sequences = large.a.heads = large.a.kv_heads = 1;
  large.a.queries = large.a.keys = 64;
  CHECK_THROWS(launch_shape(large, {1, 16 * 1024, 80}));
}

TEST_CASE("cuda numbers: bf16, random numbers and tokens are the host's", "[cuda]") {
  std::mt19937 random(Catch::rngSeed());
  for (int i = 0; i < 10000; ++i) {
    const float x = from_bits(random());
    const std::uint16_t host = host::to_bf16(x), here = to_bf16(x).bits;
    CHECK(host == here);
    const std::uint64_t a = random(), b = random();
    CHECK(host::mix({a, b}) == Mixed()(a)(b).h);
    CHECK(host::normal(a) == Approx(normal(a)).margin(1e-12));
    CHECK(host::token(a, 1, 2, static_cast<std::int64_t>(b), 128256) ==
          token_at(a, 1, 2, static_cast<std::int64_t>(b), 128256));
  }
  Runs runs;
  runs.count = 2;
  runs.first[0] = 4;
  runs.length[0] = 3;
  runs.first[1] = 20;
  runs.length[1] = 2;
  CHECK(runs.size() == 5);
  CHECK(runs[2] == 6);
  CHECK(runs[3] == 20);
  CHECK(runs[4] == 21);
}
