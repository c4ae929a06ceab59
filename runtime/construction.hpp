// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <vector>

#include "runtime/allocator.hpp"
#include "runtime/stage_plan.hpp"

/// What a stack does to the allocator before its first step: it is over when steps begin, but the
/// segments that it made stay and are cut up by what comes later.
namespace plimsoll::runtime {

/// ZeRO 1 and 2 keep the weights in one buffer: each parameter is made on its own first, then the
/// buffers of weights and gradients are, and what was copied is freed (FSDP R23.4). Nothing is done
/// for other layouts, or where the framework counts no blocks. Rung 3 only: these are no tensors of
/// a step.
class Construction {
 public:
  /// \a allocator: nullptr does nothing.
  Construction(const StagePlan&, Allocator* allocator);

  /// Makes the parameters. Where there is no memory for them it stops: what comes next will say so.
  void begin();
  /// Before a state other than weights and gradients is made: frees the parameters.
  void end();

 private:
  const StagePlan& plan_;
  Allocator* allocator_;
  std::vector<BlockId> blocks_;
};

}  // namespace plimsoll::runtime
