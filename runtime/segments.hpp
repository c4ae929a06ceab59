// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <memory>

#include "planner/segments.hpp"

/// The replay (replay.hpp) as a planner asks for it.
namespace plimsoll::runtime {

/// Plays two steps of a stage's first rank over the framework's allocator, of no more micro-batches
/// than fill the pipeline a few times, and, where the stage's
/// ranks differ in how their optimizer states are cut, of its last one too (first and last of its
/// shard group): the parameters at the ends of the model are unlike the others.
std::shared_ptr<Segments> replayed_segments();

}  // namespace plimsoll::runtime
