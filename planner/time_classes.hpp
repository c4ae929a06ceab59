// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/layout.hpp"

/// A rank's step by classes of ops: what time.hpp adds up, to be held beside what a run shows.
namespace plimsoll {

/// Seconds of a class in a step. Recomputation is in the forward, as it runs.
struct ClassTime {
  std::string name;  ///< of the op's kind; "optimizer", "reduce gradients", "gather weights"
  bool backward = false;
  double seconds = 0;  ///< of its kernels
  double sent = 0;     ///< of its collectives, besides; nothing is hidden behind anything else
};

/// Of a rank on \a stage; what the host takes to launch ops is not in it. In the order of names.
std::vector<ClassTime> time_by_class(const Problem&, const Layout&, std::int64_t stage);

}  // namespace plimsoll
