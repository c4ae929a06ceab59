// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Rung 1 against rung 2: the closed form of a stage's peak, and playing its whole step, every
// micro-batch of the schedule, every event of every layer's trace, one after the other.

#include "runtime/replay.hpp"

#include <iostream>
#include <map>
#include <set>

#include "lang/module.hpp"
#include "planner/peak.hpp"
#include "planner/stage_cost.hpp"
#include "runtime/dry/dry_device.hpp"
#include "runtime/executor.hpp"
#include "tests/catch.hpp"
#include "tests/unit/random_jobs.hpp"

using namespace plimsoll;
using namespace plimsoll::runtime;
using namespace plimsoll::test;

namespace {

/// One stage: what the closed form says of both steps against what the device saw.
void compare(const Problem& problem, const Layout& layout, std::int64_t stage, const StageBill& b) {
  const StagePlan plan(problem, layout, rank_in_stage(layout, 0, stage));
  DryDevice device(plan);
  Executor executor(plan, device);
  std::set<CategoryBytes> at_most;  // of the moments with as many bytes as the bill
  device.observe([&](const StepPoint& at, const CategoryBytes& categories) {
    if (at.step == 2 && device.live() == b.live_bytes) at_most.insert(categories);
  });
  executor.start();
  executor.step();
  const std::int64_t after_one = device.live();
  executor.step();
  CostModel model(problem);
  model.set(layout);
  const StageCost cost = model.stage(stage);
  CHECK(device.peak(1).bytes == model.moments(cost, true).front().bytes.live);
  CHECK(device.peak(2).bytes == model.moments(cost, false).front().bytes.live);
  CHECK(device.live() == cost.between.live);
  CHECK(device.live() == after_one);
  CHECK(device.most_live() == device.peak().bytes);  // what counts is at moments only
  // By category too: what the bill lists is what is live at one of the moments of that size.
  CategoryBytes listed{};
  for (const BillLine& line : b.lines)
    if (line.item != kNone ? !problem.inventory.items[line.item].outside
                           : line.category != Category::fragmentation)
      listed[static_cast<std::size_t>(line.category)] += static_cast<std::int64_t>(line.bytes);
  CHECK(at_most.count(listed) == 1);
  executor.finish();
  CHECK(device.live() == 0);
  CHECK(device.tensors() == 0);
}

/// A replay, which plays most passes from a script on a device that only serves, against the dry
/// device over an allocator of its own, which plays all of them.
void compare_replay(const Problem& problem, const Layout& layout, std::int64_t stage,
                    std::int64_t capacity) {
  const StagePlan plan(problem, layout, rank_in_stage(layout, 0, stage));
  const AllocatorOptions options = allocator_options(problem);
  const ReplayResult r = replay(plan, options, 2, capacity);
  CountingBacking backing(static_cast<std::int64_t>(problem.cluster->pools.front().gpu.memory),
                          capacity);
  Allocator allocator(backing, options);
  DryDevice device(plan, &allocator);
  Executor executor(plan, device);
  bool failed = false;
  try {
    executor.start();
    executor.step();
    executor.step();
  } catch (const OutOfMemory& out) {
    failed = true;
    REQUIRE(r.failure);
    const StepPoint &a = r.failure->at, &b = executor.at();
    CHECK(r.failure->tensor == out.tensor);
    CHECK(r.failure->bytes == out.info.bytes);
    CHECK(r.failure->reserved == out.reserved);
    CHECK(a.step == b.step);
    CHECK(a.part == b.part);
    CHECK(a.chunk == b.chunk);
    CHECK(a.micro_batch == b.micro_batch);
    CHECK(a.segment == b.segment);
    CHECK(a.op == b.op);
  }
  CHECK(failed == r.failure.has_value());
  const AllocatorStats& s = allocator.stats();
  CHECK(r.stats.requested.peak == s.requested.peak);
  CHECK(r.stats.requested.now == s.requested.now);
  CHECK(r.stats.allocated.peak == s.allocated.peak);
  CHECK(r.stats.active.peak == s.active.peak);
  CHECK(r.stats.reserved.peak == s.reserved.peak);
  CHECK(r.stats.inactive_split.peak == s.inactive_split.peak);
  CHECK(r.stats.inactive_split.now == s.inactive_split.now);
  CHECK(r.stats.segments.now == s.segments.now);
  CHECK(r.stats.retries == s.retries);
  CHECK(r.blocks_at_end == device.tensors());
  CHECK(r.most_blocks == device.most_tensors());
  executor.finish();
  CHECK(device.tensors() == 0);
  if (capacity == CountingBacking::kNoLimit)  // and once where memory ends on the way
    compare_replay(problem, layout, stage, r.peak_reserved - r.peak_reserved / 8);
}

}  // namespace

TEST_CASE("the bill is the run, to the byte", "[peak][property]") {
  const unsigned seed = seed_of_run();
  INFO("PLIMSOLL_SEED=" << seed);
  RandomJobs jobs(seed);
  int programs = 0, stages = 0;
  std::map<std::string, int> refused;
  std::map<std::string, int> kinds = {
      {"kv_heads = 2", 0},
      {"kv_lora", 0},
      {" experts = 8", 0},
      {"tied = true", 0},
      {"window = ", 0},
      {"= t5", 0},
      {"= hybrid", 0},
      {"vit(", 0},
      {"tp = 2", 0},
      {"sp = true", 0},
      {"sp = false", 0},
      {"pp = 3", 0},
      {"vpp = ", 0},
      {"zb_v", 0},
      {"dualpipe_v", 0},
      {"gpipe", 0},
      {"cp = 2", 0},
      {" ep = ", 0},
      {"zero = 1", 0},
      {"zero = 2", 0},
      {"zero = 3", 0},
      {"recompute = full", 0},
      {"recompute_layers", 0},
      {"selective", 0},
      {"stage_layers", 0},
      {"capacity", 0},
      {"lora(", 0},
      {"freeze", 0},
      {"dropout", 0},
      {"offload", 0},
  };
  const char* rounds = std::getenv("PLIMSOLL_ROUNDS");
  const int wanted = rounds ? std::atoi(rounds) : 2000;
  while (programs < wanted) {
    const std::string text = jobs.next();
    INFO(text);
    Diagnostics diags;
    const Module module = compile("random.plan", text, diags);
    INFO(diags.render(module.sources(), false));
    REQUIRE(!diags.has_errors());
    const auto problem = make_problem(module, module.jobs().front(), diags);
    INFO(diags.render(module.sources(), false));
    REQUIRE(problem);
    Diagnostics impossible;  // some degrees do not divide: those layouts are refused, not priced
    const auto layout = layout_from(*problem, &module.layouts().front(), impossible);
    if (!layout) {
      ++refused[impossible.render(module.sources(), false)];
      REQUIRE(refused.size() < 20u * static_cast<unsigned>(wanted));
      continue;
    }
    ++programs;
    for (auto& [kind, count] : kinds)
      if (text.find(kind) != std::string::npos) ++count;
    const Bill b = bill(*problem, *layout);  // itemise() throws where the lines do not add up
    for (const StageBill& s : b.stages) {
      INFO("stage " << s.stage << ": " << s.peak_moment);
      compare(*problem, *layout, s.stage, s);
      if (programs % 8 == 0) compare_replay(*problem, *layout, s.stage, CountingBacking::kNoLimit);
      ++stages;
      Int128 sum = 0;
      for (const BillLine& line : s.lines) sum += line.bytes;
      CHECK((sum == s.peak_bytes));
    }
    Pricer pricer(*problem);
    CHECK((pricer.peak(*layout).bytes == b.peak_bytes));
  }
  std::cout << "replay: seed " << seed << ", " << programs << " programs, " << stages
            << " stages\n";
  for (const auto& [kind, count] : kinds) {
    INFO(kind);
    CHECK(count >= programs / 400);
  }
  if (rounds)
    for (const auto& [why, count] : refused) std::cout << count << " x " << why << '\n';
}
