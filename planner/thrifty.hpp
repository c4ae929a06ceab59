// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <functional>

#include "planner/space.hpp"

namespace plimsoll {

/// The layouts of a space that hold the least: the smallest micro-batch of each way to cut the
/// model, ZeRO, shard groups and offload as far as they go, and full recomputation (of as many
/// layers as it takes) where it may be. Their lists are open. False from \a each ends it.
void thrifty_layouts(Space&, const std::function<bool(const Layout&)>& each);

}  // namespace plimsoll
