// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <optional>
#include <vector>

#include "runtime/cuda/cuda_device.hpp"
#include "runtime/verify.hpp"

/// One rank's steps on a GPU, and what was seen of them.
namespace plimsoll::runtime::cuda {

/// Memory as the driver has it, in bytes that are in use.
struct DriverMemory {
  std::int64_t before = 0;     ///< when the run began: the context, others' programs
  std::int64_t libraries = 0;  ///< after the first product and collective, without segments
  std::int64_t most = 0;       ///< after the steps, when segments are the largest
};

struct RankRun {
  LivePeak peak;
  AllocatorStats allocator;
  std::int64_t scratch = 0;       ///< reserved at most for what the run does not count
  std::int64_t scratch_used = 0;  ///< in use at once
  DriverMemory driver;
  std::vector<double> losses;   ///< this rank's part, scaled
  std::vector<double> seconds;  ///< by step
  OpTimes times;                ///< of the last step
  std::optional<VerifyFailure> failure;
  bool stopped = false;  ///< for another rank went no further
};

/// What a test wants to see after each step.
struct Looks {
  std::function<void(int step, WeightId, std::int64_t place, float)> gradient, parameter;
};

/// Plays the world's steps. \a capacity: bytes that the allocator may have. Throws GpuError where
/// the machine fails. Peers are told of each end that comes too early.
RankRun run_rank(const RankWorld&, Machine&, Peers&, std::int64_t capacity, const AllocatorOptions&,
                 const Looks& = {});

}  // namespace plimsoll::runtime::cuda
