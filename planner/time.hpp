// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "planner/layout.hpp"
#include "planner/stages.hpp"
#include "planner/time_defaults.hpp"

/// The time of one optimizer step: roofline of each op, collectives over the links they cross,
/// pipeline schedule, data-parallel traffic, optimizer. Source of formulas and constants:
/// ../shared/TIME.md.
namespace plimsoll {

struct StepTime {
  std::int64_t nanoseconds = 0;  ///< of one step
  /// Seconds of the step that each cause accounts for (exposed, not hidden behind another).
  double compute = 0, tp = 0, cp = 0, ep = 0, dp = 0, p2p = 0, bubble = 0, recompute = 0,
         optimizer = 0;
  double bubble_share = 0;       ///< of the step
  double model_flops = 0;        ///< of a step, all GPUs, without recomputation
  double mfu = 0;                ///< model FLOPs over peak
  double tokens_per_second = 0;  ///< whole cluster
  double tflops_per_gpu = 0;
};

/// What one stage adds to a step. Whole nanoseconds, rounded up, so that sums are exact.
struct StageTime {
  std::int64_t pace = 0;  ///< one micro-batch: forward, recomputation, backward, gathers of ZeRO 3
  std::int64_t tail = 0;  ///< after the last backward: gradient traffic and optimizer, exposed
};

/// How stages make up a step: microbatches times the slowest pace, the idle share of what the
/// others add to it, sends between stages, the worst tail.
struct Composition {
  std::int64_t microbatches = 1;
  std::int64_t idle = 1, of = 1;  ///< the idle share as a fraction: 1 / vpp, 1/3 for zb_h1 …
  std::int64_t sends = 0;         ///< ns

  /// Nanoseconds of a step. Throws ArithmeticError past 64 bits.
  std::int64_t step(std::int64_t slowest, Int128 sum, std::int64_t tail) const;
};

/// Keeps per-class times for equal (tp, cp, ep, etp, mbs, sp), like Pricer.
class Clock {
 public:
  /// The constants must outlive it.
  explicit Clock(const Problem&, const TimeConstants& = kTimeConstants);
  ~Clock();
  /// To be called where the constants or a GPU's numbers have changed since (bench/fit_time.py).
  void recalibrate();
  StepTime step(const Layout&);
  /// One stage's share of step(); the lists of \a outer are ignored.
  StageTime stage(const Layout& outer, const StageWork&);
  Composition composition(const Layout& outer);
  /// What a step of that many nanoseconds comes to: mfu, tokens_per_second ….
  StepTime throughput(const Layout& outer, std::int64_t nanoseconds);
  /// Admissible: never above step(layout).nanoseconds for this layout, whatever its stage_layers
  /// and recompute_layers are.
  std::int64_t lower_bound(const Layout&);
  /// Admissible for every sp, zero, shard, recompute and offload too; the schedule is the layout's.
  std::int64_t core_bound(const Layout&);

 private:
  void tell_throughput(const Layout&, double seconds, StepTime&);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plimsoll
