// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/layout.hpp"

/// How far one number of a job or layout could grow, all else as it is, before memory ends.
namespace plimsoll {

struct Growth {
  std::string knob;  ///< "seq", "mbs", "batch"
  std::int64_t now = 0;
  std::int64_t largest = 0;  ///< that fits; 0: none does
  bool endless = false;      ///< the largest that is asked for fits: memory does not bound it
  std::int64_t next = 0;     ///< the first larger one that is possible and does not fit; 0: none is
  Int128 next_bytes = 0;     ///< peak there
};

/// Of a train job's resolved layout: tokens a sequence (in steps of 1,024 where that divides),
/// micro-batch (of those that divide a replica's batch), sequences a step (whole micro-batches of
/// every replica). Found by bisection where there are many: memory grows with each of them.
std::vector<Growth> growth(const Problem&, const Layout&);

}  // namespace plimsoll
