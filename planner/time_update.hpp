// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include "planner/layout.hpp"
#include "planner/links.hpp"
#include "planner/time_ops.hpp"
#include "planner/time_path.hpp"

/// What data parallelism and the optimizer cost: gradients and parameters over the ranks that hold
/// the same ones, and the update itself. Seconds. Formulas: ../shared/TIME.md §1.
namespace plimsoll {

class UpdateTimer {
 public:
  /// The constants and the problem must outlive it.
  UpdateTimer(const Problem&, const TimePath&, const TimeConstants&);

  /// Exposed seconds of gradient and parameter traffic after the last backward. \a bound: no
  /// latencies. What is left is convex and of degree one in all that a stage holds, so that the
  /// worst stage costs at least what the mean of the stages does.
  double exchange(const Layout&, const Links&, const Parameters& held, double forward,
                  double backward, bool bound) const;
  /// ZeRO 3: parameters gathered in forward and backward, gradients scattered, each micro-batch.
  /// \a bound: as in exchange().
  double gathered(const Layout&, const Links&, const Parameters& held, double compute,
                  bool bound) const;
  double optimizer(const Layout&, const Rates&, const Parameters& on_rank) const;

  double fixed = 0;  ///< a step's, whatever is trained; part of optimizer()

 private:
  const Problem* problem_;
  const TimeConstants* constants_;
  double gradient_bytes_ = 4, weight_bytes_ = 2, gpus_per_node_ = 8;
};

}  // namespace plimsoll
