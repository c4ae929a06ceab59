// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/smallest_core.hpp"

#include <numeric>
#include <random>

#include "tests/catch.hpp"

using namespace plimsoll;

namespace {

/// A monotone oracle: a set can hold unless it contains one of some sets that clash.
struct Clashes {
  std::size_t n = 0;
  std::vector<std::uint32_t> sets;

  bool satisfiable(std::uint32_t chosen) const {
    return std::none_of(sets.begin(), sets.end(),
                        [&](std::uint32_t s) { return (s & chosen) == s; });
  }
  Satisfiable oracle() const {
    return [this](const std::vector<bool>& chosen) {
      std::uint32_t bits = 0;
      for (std::size_t i = 0; i < n; ++i) bits |= chosen[i] ? 1U << i : 0U;
      return satisfiable(bits);
    };
  }
};

std::uint32_t bits(const std::vector<std::size_t>& members) {
  std::uint32_t out = 0;
  for (const std::size_t m : members) out |= 1U << m;
  return out;
}

std::int64_t weight(std::uint32_t set, const std::vector<std::int64_t>& weights) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) sum += set >> i & 1U ? weights[i] : 0;
  return sum;
}

bool minimal(const Clashes& world, std::uint32_t core) {
  if (world.satisfiable(core)) return false;
  for (std::size_t i = 0; i < world.n; ++i)
    if ((core >> i & 1U) != 0 && !world.satisfiable(core & ~(1U << i))) return false;
  return true;
}

}  // namespace

TEST_CASE("smallest core: no core where all hold together", "[smallest_core]") {
  const std::vector<std::int64_t> weights(4, 1);
  const Clashes world{4, {}};
  CHECK(!smallest_core(weights, world.oracle()).has_value());
  CHECK(!core_by_deletion(weights, world.oracle()).has_value());
}

TEST_CASE("smallest core: what cannot hold alone needs no members", "[smallest_core]") {
  const std::vector<std::int64_t> weights(3, 1);
  const auto core = smallest_core(weights, [](const std::vector<bool>&) { return false; });
  REQUIRE(core.has_value());
  CHECK(core->members.empty());
  CHECK(core->smallest);
}

TEST_CASE("smallest core: weights say which of two is told", "[smallest_core]") {
  const Clashes world{5, {0b00111, 0b11000}};
  CHECK(smallest_core(std::vector<std::int64_t>{1, 1, 1, 1, 1}, world.oracle())->members ==
        std::vector<std::size_t>{3, 4});
  CHECK(smallest_core(std::vector<std::int64_t>{1, 1, 1, 2, 2}, world.oracle())->members ==
        std::vector<std::size_t>{0, 1, 2});
}

TEST_CASE("smallest core = lightest of all subsets, and is minimal", "[smallest_core]") {
  const std::uint32_t seed = 20'250'107;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int world_number = 0; world_number < 150; ++world_number) {
    Clashes world;
    world.n = 3 + random() % 8;
    std::vector<std::int64_t> weights;
    for (std::size_t i = 0; i < world.n; ++i)
      weights.push_back(1 + static_cast<std::int64_t>(random() % 4));
    for (std::size_t count = 1 + random() % 12; count > 0; --count) {
      std::uint32_t set = 0;
      for (std::size_t k = 1 + random() % 5; k > 0; --k) set |= 1U << random() % world.n;
      world.sets.push_back(set);
    }
    INFO("world " << world_number);
    std::int64_t lightest = 1 << 20;
    for (std::uint32_t set = 0; set < 1U << world.n; ++set)
      if (!world.satisfiable(set)) lightest = std::min(lightest, weight(set, weights));

    const auto core = smallest_core(weights, world.oracle());
    REQUIRE(core.has_value());
    CHECK(core->smallest);
    CHECK(core->minimal);
    CHECK(weight(bits(core->members), weights) == lightest);
    CHECK(minimal(world, bits(core->members)));

    const auto deleted = core_by_deletion(weights, world.oracle());
    REQUIRE(deleted.has_value());
    CHECK(deleted->minimal);
    CHECK(!deleted->smallest);
    CHECK(minimal(world, bits(deleted->members)));
    CHECK(deleted->calls <= static_cast<std::int64_t>(world.n) + 1);

    // However soon the budget ends, what comes out clashes, and says truly what it is.
    CoreBudget tight;
    tight.calls = 1 + static_cast<std::int64_t>(random() % 12);
    const auto early = smallest_core(weights, world.oracle(), tight);
    REQUIRE(early.has_value());
    CHECK(!world.satisfiable(bits(early->members)));
    CHECK(early->calls <= tight.calls);
    if (early->minimal) CHECK(minimal(world, bits(early->members)));
    if (early->smallest) CHECK(weight(bits(early->members), weights) == lightest);
  }
}
