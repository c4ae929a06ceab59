// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/memory_log.hpp"
#include "runtime/device.hpp"
#include "runtime/stage_plan.hpp"

/// What a rank's steps ask the allocator for, to find the request that a message tells of.
namespace plimsoll::runtime {

struct Request {
  std::string item;  ///< row of the inventory
  std::string moment;
  Category category = Category::activations;
  StepPart part = StepPart::between;
  std::int64_t bytes = 0;
  std::int64_t allocated = 0;  ///< blocks in use when it was made
};

/// The segment that PyTorch's allocator asks the driver for where no cached block will do: what its
/// message calls "tried to allocate" (ACCOUNTING D 3).
std::int64_t segment_for(std::int64_t bytes);
/// Does that segment tell tensors apart? Those of 2 MiB and 20 MiB do not.
bool is_telling(const logs::Seen& segment);

/// Requests of a rank's first two steps whose segment is the one printed: of each item in each part
/// of a step the one that finds the allocator nearest to \a allocated; nearest first. A step of
/// many micro-batches is played with a few of them.
std::vector<Request> requests_like(const Problem&, const Layout&, std::int64_t rank,
                                   const logs::Seen& segment, std::int64_t allocated);

}  // namespace plimsoll::runtime
