// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <optional>
#include <string>

#include "planner/enumerate.hpp"

/// Quick answers to "does anything fit?", for suggestions that ask it often.
namespace plimsoll {

/// A layout of a train job that fits and meets every requirement, priced, among those that hold the
/// least (thrifty.hpp). nullopt: none of those, which is nearly always that nothing fits.
std::optional<Priced> any_fit(const Problem&);

/// Why no number of GPUs would do, in words; "" where some might. What more GPUs do not divide:
/// weights, gradients and states of a rank at the largest tp, pp, ep and ZeRO stage that the job
/// allows, were each shard group without end, against the memory.
std::string why_never(const Problem&);

}  // namespace plimsoll
