// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/cuda_verify.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lang/units.hpp"
#include "planner/time.hpp"
#include "runtime/replay.hpp"
#include "runtime/timeline.hpp"

namespace plimsoll::runtime::cuda {

namespace {

/// Free memory beyond the segments that a run is not begun without: libraries and kernels' scratch.
constexpr std::int64_t kBeside = std::int64_t{512} << 20;

GpuSeen seen_of(const Machine& machine, const Problem& p, const Bill& bill, const RankRun& run,
                std::int64_t stage, std::int64_t replayed) {
  GpuSeen g;
  g.gpu = machine.name();
  g.driver = machine.driver();
  g.predicted_reserved = replayed;
  g.predicted_used =
      static_cast<std::int64_t>(bill.stages.at(static_cast<std::size_t>(stage)).peak_bytes);
  g.used = run.driver.most;
  g.used_before = run.driver.before;
  g.libraries = run.driver.libraries;
  g.scratch = run.scratch;
  g.seconds = run.seconds;
  const StepTime time = Clock(p).step(bill.layout);
  g.predicted_seconds = static_cast<double>(time.nanoseconds) * 1e-9 * (1 - time.bubble_share);
  for (const auto& [kind, t] : run.times)
    g.kinds.push_back({kind.first, kind.second, t.runs, t.seconds});
  std::stable_sort(g.kinds.begin(), g.kinds.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return g;
}

}  // namespace

std::variant<Verification, std::string> verify_on(Machine& machine, const Problem& p,
                                                  const Bill& bill, std::int64_t rank,
                                                  std::optional<std::int64_t> limit, int steps) {
  const Layout& l = bill.layout;
  if (std::string why = why_not_on_cuda(p, l); !why.empty()) return why;
  RunOptions options;
  options.steps = steps;
  options.same_text = true;
  options.times = true;
  const RankWorld world(p, l, rank, options);
  const AllocatorOptions allocator = allocator_options(p);
  const std::int64_t replayed = replay(world.plan, allocator, steps).peak_reserved;
  const std::int64_t capacity = std::min(limit.value_or(replayed), replayed);
  const MemoryFacts memory = machine.memory();
  if (capacity + kBeside > memory.free)
    return fmt::format(
        "rank {} needs {} of segments and some {} beside them; the driver says that {} of {} are "
        "free "
        "on the {}",
        rank, human_bytes(capacity), human_bytes(kBeside), human_bytes(memory.free),
        human_bytes(memory.total), machine.name());
  const auto peers = stand_ins(machine, places(l, rank, world.expert_shard));
  const RankRun run = run_rank(world, machine, *peers, capacity, allocator);
  const std::int64_t stage = world.plan.place.stage;
  Verification v;
  if (run.failure) {
    v.device = "cuda";
    v.agrees = false;
    v.failure = run.failure;
    // What the bill has at that moment, where it is one of its own.
    const std::string when = point_name(p, run.failure->at);
    for (const auto& [name, bytes] : bill.stages.at(static_cast<std::size_t>(stage)).moments)
      if (name == when) v.failure->predicted_live = static_cast<std::int64_t>(bytes);
  } else {
    v = compare(p, bill, "cuda", {{rank, run.peak, run.allocator.reserved.peak}});
    v.losses = run.losses;
  }
  v.gpu = seen_of(machine, p, bill, run, stage, replayed);
  return v;
}

}  // namespace plimsoll::runtime::cuda
