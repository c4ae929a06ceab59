// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include "planner/enumerate.hpp"

/// `plan --pareto`: the objective against the memory that stays unused.
namespace plimsoll {

inline constexpr std::size_t kMostPareto = 11;

/// Sets \a result's `pareto`: layouts of which no other that was found is at least as good in both
/// the objective and the headroom: the best, then the best with at least the next whole tenth of
/// the memory unused, and so on until none is left; at most kMostPareto.
void find_pareto(const Problem&, PlanResult& result, const PlanOptions&);

}  // namespace plimsoll
