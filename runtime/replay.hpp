// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/layout.hpp"
#include "runtime/allocator.hpp"
#include "runtime/device.hpp"
#include "runtime/stage_plan.hpp"

/// Rung 3 of the ladder: a stage's steps, tensor by tensor, through the caching allocator.
namespace plimsoll::runtime {

/// The first request that the allocator could not meet.
struct ReplayFailure {
  std::string tensor;
  std::int64_t bytes = 0;
  StepPoint at;
  std::int64_t allocated = 0, reserved = 0;  ///< then
};

struct ReplayResult {
  AllocatorStats stats;
  std::int64_t peak_requested = 0;  ///< tensors; equals the bill's live bytes
  std::int64_t peak_allocated = 0;
  std::int64_t peak_reserved = 0;
  std::int64_t first_step_reserved = 0;  ///< after step 1, its optimizer step included
  std::int64_t segments = 0;             ///< at the end
  std::int64_t blocks_at_end = 0;        ///< blocks still in use after the last step
  std::int64_t most_blocks = 0;          ///< in use at once
  std::optional<ReplayFailure> failure;  ///< nothing was played after it
};

/// How the job's framework has its allocator set: a framework or job with `segments = expandable`
/// runs with expandable segments.
AllocatorOptions allocator_options(const Problem&);

/// Plays \a steps optimizer steps of a training job's stage by the executor on the dry device, over
/// an allocator. Moments are made at the end of step 1, so two steps are the least that shows a
/// steady state (FSDP R23). A value that one segment hands to the next keeps its block. Each item
/// of the bill is one block, except optimizer states divided over a shard group: one a parameter
/// (FSDP R23). Items with a stream are served from that stream's pool. \a capacity: bytes that the
/// allocator can have. Throws ArithmeticError on overflow.
ReplayResult replay(const Problem&, const Layout&, std::int64_t stage, const AllocatorOptions&,
                    int steps = 2, std::int64_t capacity = CountingBacking::kNoLimit);
/// The same of the plan's own rank; above: the first rank of the stage.
ReplayResult replay(const StagePlan&, const AllocatorOptions&, int steps = 2,
                    std::int64_t capacity = CountingBacking::kNoLimit);

/// The most that the segments of two such steps come to; nullopt, at once, where that is more than
/// \a limit.
std::optional<std::int64_t> reserved_within(std::int64_t limit, const StagePlan&,
                                            const AllocatorOptions&);

}  // namespace plimsoll::runtime
