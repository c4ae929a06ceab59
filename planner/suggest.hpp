// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <functional>
#include <vector>

#include "lang/module.hpp"
#include "planner/enumerate.hpp"

/// What would have to change where nothing fits: single edits of the file, each solved for (the
/// smallest number of nodes, the longest sequence, the least offload …), nearest first. What is
/// told was checked: the changed file compiles, and has a layout that fits and meets every
/// requirement left. \a stop as in PlanOptions: what was found by then is told.
namespace plimsoll {

std::vector<Relaxation> suggest(const Problem&, std::function<bool()> stop = {},
                                const CompileOptions& = {});

}  // namespace plimsoll
