// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>

#include "planner/peak.hpp"
#include "planner/stage_cost.hpp"

namespace plimsoll {

/// "backward of layer 19, linear down": where a moment is.
std::string moment_name(const Problem&, const StageCost&, const Moment&);
/// "backward of layer 19, recomputing linear down", "forward of cross_entropy" (beside layers).
std::string moment_name(const Problem&, std::uint32_t segment, OpId op, bool backward,
                        bool recomputing);

/// Fills a stage's lines with what is live at \a moment, by name and category, and checks that they
/// add up to the moment's bytes (InternalError otherwise). Rounding and what \a footprint has
/// beyond blocks are lines too. \a formulas: whether lines say how they come about, which takes
/// most of the time.
void itemise(const Problem&, const CostModel&, const StageCost&, const Moment& moment,
             const Footprint& footprint, StageBill&, bool formulas = true);

}  // namespace plimsoll
