// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/replay.hpp"

#include "planner/switches.hpp"
#include "runtime/dry/replay_device.hpp"
#include "runtime/executor.hpp"

namespace plimsoll::runtime {

namespace {

/// Ends a replay that has shown what was asked.
struct Enough {};

class BoundedBacking final : public CountingBacking {
 public:
  BoundedBacking(std::int64_t total, std::int64_t limit)
      : CountingBacking(total, kNoLimit), limit_(limit) {}

  std::optional<Address> reserve(std::int64_t bytes) override {
    take(bytes);
    return CountingBacking::reserve(bytes);
  }
  bool map(Address at, std::int64_t bytes) override {
    take(bytes);
    return CountingBacking::map(at, bytes);
  }

 private:
  void take(std::int64_t bytes) const {
    if (bytes > limit_ - used()) throw Enough();
  }

  std::int64_t limit_;
};

}  // namespace

AllocatorOptions allocator_options(const Problem& problem) {
  AllocatorOptions options;
  options.expandable_segments = switch_of(problem, "segments") == "expandable";
  return options;
}

ReplayResult replay(const Problem& problem, const Layout& layout, std::int64_t stage,
                    const AllocatorOptions& options, int steps, std::int64_t capacity) {
  const StagePlan plan(problem, layout, rank_in_stage(layout, 0, stage));
  return replay(plan, options, steps, capacity);
}

namespace {

ReplayResult play(const StagePlan& plan, const AllocatorOptions& options, int steps,
                  CountingBacking& backing) {
  Allocator allocator(backing, options);
  ReplayDevice device(plan, allocator);
  Executor executor(plan, device);
  ReplayResult result;
  try {
    executor.start();
    for (int step = 1; step <= steps; ++step) {
      executor.step();
      if (step == 1) result.first_step_reserved = allocator.stats().reserved.now;
    }
  } catch (const OutOfMemory& out) {
    result.failure = {out.tensor, out.info.bytes, executor.at(), allocator.stats().allocated.now,
                      out.reserved};
  }
  result.stats = allocator.stats();
  result.peak_requested = result.stats.requested.peak;
  result.peak_allocated = result.stats.allocated.peak;
  result.peak_reserved = result.stats.reserved.peak;
  result.segments = result.stats.segments.now;
  result.blocks_at_end = device.tensors();
  result.most_blocks = device.most_tensors();
  return result;
}

std::int64_t memory_of(const StagePlan& plan) {
  return static_cast<std::int64_t>(plan.problem.cluster->pools.front().gpu.memory);
}

}  // namespace

ReplayResult replay(const StagePlan& plan, const AllocatorOptions& options, int steps,
                    std::int64_t capacity) {
  CountingBacking backing(memory_of(plan), capacity);
  return play(plan, options, steps, backing);
}

std::optional<std::int64_t> reserved_within(std::int64_t limit, const StagePlan& plan,
                                            const AllocatorOptions& options) {
  BoundedBacking backing(memory_of(plan), limit);
  try {
    return play(plan, options, 2, backing).peak_reserved;
  } catch (const Enough&) {
    return std::nullopt;
  }
}

}  // namespace plimsoll::runtime
