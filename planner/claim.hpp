// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <optional>
#include <vector>

#include "planner/certificate.hpp"
#include "planner/judge.hpp"

namespace plimsoll {

/// The numbers of nodes that a job leaves to the planner.
std::vector<std::int64_t> claimed_nodes(const Problem&);

/// The cores (space.hpp) of a training job on that many nodes, as a proof states them: values and
/// rules written down here once more, apart from the code that lists them for a search. Variables
/// in the order of core_of(). nullopt where the job's values follow from other variables, which a
/// table cannot state, or where there are too many.
std::optional<Claim> claim_of(const Problem&, const Judge&, std::int64_t on_nodes);

/// The layout of a point of the claim, as far as a core decides it.
Layout core_of(const Problem&, ClaimValues);

}  // namespace plimsoll
