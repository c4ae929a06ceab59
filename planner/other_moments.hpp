// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <functional>
#include <vector>

#include "planner/peak.hpp"
#include "planner/stage_cost.hpp"

/// What a stage holds at moments beside the steady step: while the model is built and a checkpoint
/// is loaded, in the first step, at the optimizer step, while a checkpoint is saved, in evaluation.
/// Items whose lifetime is one of these moments (`start`, `load`, `save`, `evaluate`) count there
/// alone.
namespace plimsoll {

/// In the order in which a run meets them. \a with_segments: blocks with the segments around them
/// and what lies outside the allocator.
std::vector<OtherMoment> other_moments(const Problem&, const CostModel&, const StageCost&,
                                       const std::function<Int128(const Bytes&)>& with_segments);

}  // namespace plimsoll
