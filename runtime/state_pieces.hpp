// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <vector>

#include "planner/stage_cost.hpp"

namespace plimsoll::runtime {

/// In how many tensors an item's \a bytes on a stage come, in the order in which they are made.
/// Master weights and moments that a shard group divides: ZeRO 1 and 2 give a rank a contiguous
/// range of all parameters, the last first, and make a tensor of each parameter in it (FSDP R23;
/// this is the first rank's range); ZeRO 3 divides every parameter alike. Cut in proportion to the
/// parameters' elements before tp and ep, so the sum is exact and a cut is a close guess. Anything
/// else is one piece.
std::vector<std::int64_t> state_pieces(const Problem&, const Layout&, const StageCost&, const Item&,
                                       std::int64_t bytes, const Env&);

}  // namespace plimsoll::runtime
