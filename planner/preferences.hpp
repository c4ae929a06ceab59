// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <vector>

#include "planner/enumerate.hpp"

/// What each preference of a job cost: the job is planned again without it where it is met, and
/// with it as a requirement where it is not.
namespace plimsoll {

/// One for each preference, in their order; empty where \a result has no best.
std::vector<PreferenceCost> price_preferences(const Problem&, const PlanResult& result,
                                              const PlanOptions&);

}  // namespace plimsoll
