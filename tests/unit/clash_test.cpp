// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/clash.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <set>

#include "planner/inner.hpp"
#include "planner/judge.hpp"
#include "planner/space.hpp"
#include "tests/catch.hpp"
#include "tests/unit/seed.hpp"
#include "tests/unit/world.hpp"

namespace plimsoll {
namespace {

using testing::World;

/// Conditions and pins of a job, a line each.
struct Infeasible {
  int gpus = 4, layers = 4, memory_mib = 100, batch = 8;
  std::vector<std::string> lines;
};

constexpr int kFirstLine = 14;  ///< of `lines` in the text

std::string text_of(const Infeasible& s, const std::vector<bool>& kept) {
  std::string text = fmt::format(R"(
gpu tiny = h100_sxm {{ memory = {} MiB  reserved = 0 MiB }}
cluster c {{ gpu = tiny  nodes = 1  gpus_per_node = {} }}
model m {{
  param layers = {}, hidden = 512
  x = embedding(4096, hidden)
  repeat layers {{
    x = x + gqa(rmsnorm(x), 8, 4, 64)
    x = x + swiglu(rmsnorm(x), 2048)
  }}
  loss = cross_entropy(linear(rmsnorm(x), 4096, split = column, name = head))
}}
train t {{ model = m  cluster = c  seq = 2Ki  batch = {}  framework = plain
)",
                                 s.memory_mib, s.gpus, s.layers, s.batch);
  for (std::size_t i = 0; i < s.lines.size(); ++i)
    text += (kept.empty() || kept[i] ? "  " + s.lines[i] : "") + "\n";
  return text + "}\n";
}

/// Does any layout at all hold: every micro-batch, ZeRO stage and shard group, not the thrifty ones
/// alone?
bool holds(const Infeasible& s, const std::vector<bool>& kept, CategoryMask counted) {
  const World world(text_of(s, kept));
  const Problem& p = *world;
  Diagnostics diags;
  Pricer pricer(p);
  Judge judge(p, pricer, diags);
  Space space(p, judge);
  Clock clock(p);
  Inner inner(p, clock, counted);
  bool found = false;
  std::vector<Point> cores;
  space.cores([&](const Layout& l, Env&) { cores.push_back(space.point(l)); });
  for (const Point& core : cores)
    space.leaves(core, [&](const Layout& l, Env& env) {
      if (found) return;
      const auto memory = static_cast<std::int64_t>(usable_memory(p, l, 0));
      const std::int64_t cap = judge.memory_cap(env, memory, 0);
      if (cap < 0) return;
      inner.set(l, cap);
      found = can_fit(inner);
    });
  return found;
}

CategoryMask bit_of(const std::string& category) {
  for (std::size_t c = 0; c < kCategoryCount; ++c)
    if (name(static_cast<Category>(c)) == category) return CategoryMask{1} << c;
  return 0;
}

}  // namespace

TEST_CASE("what clashes cannot hold together, and can without any one of it", "[plan][clash]") {
  const unsigned seed = test::seed_of_run();
  std::mt19937 random(seed);
  const auto pick = [&](int from, int to) {
    return from + static_cast<int>(random() % static_cast<unsigned>(to - from + 1));
  };
  const std::vector<std::string> all = {
      "require tp <= 1", "require zero <= 1", "require headroom >= 40%",
      "require pp <= 2", "require mbs >= 2",  "tp = 2",
      "zero = 0",        "recompute = none",  "require recompute == 0",
      "pp in {1, 2}",    "require cp == 1",   "require dp >= 2"};
  int clashes = 0, with_memory = 0, with_lines = 0;
  for (int i = 0; i < 30; ++i) {
    Infeasible s;
    s.gpus = 1 << pick(1, 3);
    s.layers = pick(1, 5);
    s.memory_mib = pick(10, 160);
    s.batch = 1 << pick(2, 4);
    for (const std::string& line : all)
      if (pick(0, 3) == 0 && line != "require recompute == 0") s.lines.push_back(line);
    INFO("seed " << seed << ", world " << i << "\n" << text_of(s, {}));
    const World world(text_of(s, {}));
    PlanResult result;
    find_clash(*world, result);
    const bool possible = holds(s, {}, kEverything);
    CHECK(result.core.empty() == possible);
    if (result.core.empty()) continue;
    ++clashes;
    std::vector<bool> kept(s.lines.size(), false);
    CategoryMask counted = 0;
    for (const CoreItem& item : result.core) {
      if (item.line > 0)
        kept.at(static_cast<std::size_t>(item.line - kFirstLine)) = true;
      else
        counted |= bit_of(item.name);
    }
    with_memory += counted != 0;
    with_lines += std::find(kept.begin(), kept.end(), true) != kept.end();
    CHECK_FALSE(holds(s, kept, counted));
    for (const CoreItem& item : result.core) {
      INFO("without " << item.name);
      std::vector<bool> fewer = kept;
      CategoryMask less = counted;
      if (item.line > 0)
        fewer.at(static_cast<std::size_t>(item.line - kFirstLine)) = false;
      else
        less &= ~bit_of(item.name);
      CHECK(holds(s, fewer, less));
    }
  }
  std::printf("clash: seed %u, %d clashes, %d with memory, %d with lines of the file\n", seed,
              clashes, with_memory, with_lines);
  CHECK(clashes > 5);
  CHECK(with_lines > 0);
  CHECK(with_memory > 0);
}

}  // namespace plimsoll
