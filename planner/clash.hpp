// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <functional>

#include "planner/enumerate.hpp"

/// Why nothing fits: the fewest things that cannot hold together, of the job's requirements, its
/// pins, and the categories of memory.
namespace plimsoll {

/// Fills `core` and `core_over` of a result without a layout. Asks, of sets of those things,
/// whether some layout meets the requirements and pins of the set and fits, counting the memory of
/// its categories alone. Of the layouts, it asks those that shard, recompute and offload as much as
/// they may, at the smallest micro-batch; conditions that only a priced layout decides are taken to
/// hold. Leaves `core` empty where all of that can hold together. \a stop ends it with what is
/// known.
void find_clash(const Problem&, PlanResult&, const std::function<bool()>& stop = {});

}  // namespace plimsoll
