// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <vector>

#include "planner/enumerate.hpp"

/// What is wrong with what a job asks, before anything is searched.
namespace plimsoll {

/// Warns of the job's own requirements and preferences that cannot choose between layouts: that
/// read nothing free, or that hold at no combination of the values that their variables can take
/// (each looked at alone, so a condition that is never true for a subtler reason is not found).
/// Reports a cost that is asked for where a GPU has no price.
void check_questions(const Problem&, Diagnostics&);

/// For a job of which no layout is possible: a smallest set, by leaving out one after the other, of
/// its pinned and narrowed variables and its requirements that leave nothing together; then its
/// batch, the number of its GPUs and of its layers, each where another one would do.
std::vector<CoreItem> find_conflict(const Problem&);

}  // namespace plimsoll
