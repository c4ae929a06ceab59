// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <functional>
#include <vector>

#include "planner/enumerate.hpp"

/// What would have to change where nothing fits: single edits of the file, each of which is
/// compiled and planned again; only those with a layout that fits are told. \a stop as in
/// PlanOptions: what was found by then is told.
namespace plimsoll {

std::vector<Relaxation> suggest(const Problem&, std::function<bool()> stop = {},
                                const CompileOptions& = {});

}  // namespace plimsoll
