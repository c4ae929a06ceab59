// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/construction.hpp"

#include <optional>

#include "runtime/state_pieces.hpp"

namespace plimsoll::runtime {

Construction::Construction(const StagePlan& plan, Allocator* allocator)
    : plan_(plan), allocator_(plan.problem.inventory.counts_blocks ? allocator : nullptr) {}

void Construction::begin() {
  if (!allocator_ || plan_.layout.zero < 1 || plan_.layout.zero > 2) return;
  for (const PlannedState& s : plan_.states) {
    if (s.item->category != Category::weights || s.item->place.kind == Place::stage) continue;
    const bool experts = s.item->name.starts_with("experts'");
    const std::vector<std::int64_t> sizes =
        parameter_sizes(plan_.problem, plan_.layout, plan_.cost, experts, false);
    Int128 all = 0, passed = 0;
    for (const std::int64_t n : sizes) all += n;
    for (const std::int64_t n : sizes) {
      const auto bytes = static_cast<std::int64_t>(Int128{s.total} * (passed + n) / all -
                                                   Int128{s.total} * passed / all);
      passed += n;
      if (bytes == 0) continue;
      const std::optional<BlockId> block = allocator_->allocate(bytes);
      if (!block) return;
      blocks_.push_back(*block);
    }
  }
}

void Construction::end() {
  for (const BlockId block : blocks_) allocator_->free(block);
  blocks_.clear();
}

}  // namespace plimsoll::runtime
