// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/peak.hpp"
#include "runtime/dry/dry_device.hpp"

/// What was predicted beside what was seen: a bill's live bytes, and those of its ranks' steps on
/// a device.
namespace plimsoll::runtime {

/// Where a rank could not have a tensor, and what was live then.
struct VerifyFailure {
  std::int64_t rank = 0;
  std::string tensor;
  std::int64_t bytes = 0;
  StepPoint at;
  std::int64_t live = 0, reserved = 0;
  CategoryBytes categories{};
  std::optional<std::int64_t> predicted_live{};  ///< by the bill at that moment, where it has it
};

/// What the device cuda shows beside the tensors. Bytes and seconds.
struct GpuSeen {
  std::string gpu, driver;              ///< "NVIDIA H200", "580.159.03"
  std::int64_t predicted_reserved = 0;  ///< by the replay
  std::int64_t predicted_context = 0;   ///< by the GPU's declaration; NCCL's by the framework's
  std::int64_t predicted_scratch = 0;   ///< counted before the run
  std::int64_t predicted_used = 0;      ///< the three together
  std::int64_t used = 0;                ///< of the GPU's memory at the end, by the driver
  std::int64_t used_before = 0;         ///< likewise before the run: the context, other programs
  std::int64_t libraries = 0;           ///< used, less segments and scratch
  std::int64_t reserved = 0;            ///< segments of the allocator, at the end
  std::int64_t scratch = 0;             ///< for what no framework declares a tensor for
  std::vector<double> seconds;          ///< by step
  double predicted_seconds = 0;         ///< of a step, without waiting for other stages
  struct Kind {
    std::string name;  ///< of an op or exchange
    bool backward = false;
    std::int64_t runs = 0;
    double seconds = 0;  ///< of all runs in the last step
    /// By the time model; of collectives too where there are peers. nullopt: it has none.
    std::optional<double> predicted{};
  };
  std::vector<Kind> kinds;  ///< the slowest first
};

/// What a device saw of a rank's first two steps.
struct Observation {
  std::int64_t rank = 0;
  LivePeak peak;
  std::int64_t reserved = 0;  ///< segments of the allocator at most
};

/// One line of the difference.
struct Difference {
  std::string name;
  Category category = Category::activations;
  std::int64_t predicted = 0, observed = 0;
};

struct RankCheck {
  std::int64_t rank = 0, stage = 0;
  std::int64_t predicted = 0, observed = 0, reserved = 0;
  std::int64_t bill_reserved = 0;  ///< what the bill and the search count for segments
  std::string predicted_moment, observed_moment;
  /// Where the bytes differ: by item, the largest difference first, and by category.
  std::vector<Difference> items, categories;
  std::int64_t difference() const { return observed - predicted; }
};

struct Verification {
  std::string device;
  std::vector<RankCheck> ranks;
  std::int64_t worst_difference = 0;  ///< of the largest absolute value
  bool agrees = true;
  std::optional<VerifyFailure> failure;  ///< then `ranks` are those that came to an end
  std::optional<GpuSeen> gpu;
  bool stopped = false;          ///< this process's rank, for another one went no further
  std::optional<LivePeak> peak;  ///< of the one rank that this process ran
  std::vector<double> losses;    ///< by step, where the device computes: the mean over its tokens
};

/// Which ranks of a layout are looked at.
struct RankChoice {
  enum Kind { worst, all, one } kind = worst;  ///< worst: the first of the fullest stage
  std::int64_t rank = 0;                       ///< one
};
std::vector<std::int64_t> chosen_ranks(const Bill&, const RankChoice&);

/// Sets observations beside the bill of their stages.
Verification compare(const Problem&, const Bill&, std::string device,
                     const std::vector<Observation>&);

/// Plays two steps of each rank on the dry device, over the framework's allocator, which has
/// \a limit bytes (nullopt: as many as it asks for). Ranks of one stage whose optimizer states are
/// cut alike are played once.
Verification verify_dry(const Problem&, const Bill&, const std::vector<std::int64_t>& ranks,
                        std::optional<std::int64_t> limit);

}  // namespace plimsoll::runtime
