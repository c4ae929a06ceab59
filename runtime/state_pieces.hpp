// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <vector>

#include "planner/stage_cost.hpp"
#include "runtime/ranks.hpp"

/// In which tensors a stack makes its states.
namespace plimsoll::runtime {

/// The tensors of a rank's parameters in the model's order, in elements before tp divides them:
/// weights that the framework fuses are one, each expert's is its own. \a experts: those that ep
/// divides, else the others. \a trained: only those with gradients.
std::vector<std::int64_t> parameter_sizes(const Problem&, const Layout&, const StageCost&,
                                          bool experts, bool trained);

/// In how many tensors an item's \a bytes on a rank come, in the order in which they are made.
/// Weights: one a parameter; under ZeRO 1 and 2 they lie in one buffer. Master weights and moments:
/// one a parameter; ZeRO 1 and 2 give a rank a contiguous range of all parameters, the last first,
/// and make a tensor of each parameter in it (FSDP R23.3). Cut in proportion to parameter_sizes(),
/// so that the sum is exact and a cut a close guess where tp leaves something whole. Anything else,
/// and all states of frameworks that count no blocks, is one piece.
std::vector<std::int64_t> state_pieces(const Problem&, const Layout&, const RankPlace&,
                                       const StageCost&, const Item&, std::int64_t bytes,
                                       const Env&);

}  // namespace plimsoll::runtime
