// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <vector>

#include "planner/layout.hpp"

/// What a pipeline schedule has a stage hold. Sources: ACCOUNTING.md E, MEGATRON.md §5.
namespace plimsoll {

/// One forward or backward of one chunk, in a stage's order.
struct Slot {
  bool backward = false;
  std::int32_t chunk = 0;
};

/// A stage's order of work. 1F1B: p-r-1 warm-up forwards, then forward and backward in turn.
/// Interleaved: 2(p-r-1) + (v-1)p warm-up chunk-forwards, chunks in groups of p micro-batches.
/// GPipe: all forwards, then all backwards. ZB-H1 holds what 1F1B holds.
/// ZB-V and DualPipe-V fold the model: chunk 0 lies on stages 0 … p-1, chunk 1 on p-1 … 0. Every
/// stage of ZB-V holds at most 2p chunk-forwards, what the first stage of 1F1B holds (zero-bubble,
/// arXiv 2401.10241 and its README; the order is that of torch's ScheduleZBVZeroBubble); of
/// DualPipe-V, which runs a forward and a backward at one time, 2p + 1 (DualPipe README). A weight
/// pass is counted with its backward.
std::vector<Slot> slots(Schedule, std::int64_t pp, std::int64_t vpp, std::int64_t microbatches,
                        std::int64_t stage);

/// A moment that can be a stage's peak: a chunk at work, and the micro-batches that each chunk
/// holds then, the working one included.
struct Holding {
  std::vector<std::int32_t> alive;  ///< by chunk
  std::int32_t chunk = 0;
  bool backward = false;
  /// Gradients that a step accumulates exist: 0 none yet, 1 of the layers that this, the first,
  /// backward has passed, 2 all.
  std::int8_t gradients = 0;
};

/// Of more micro-batches than these holdings() says the same.
std::int64_t enough_microbatches(Schedule, std::int64_t pp, std::int64_t vpp, std::int64_t stage);

/// Every holding of a stage's step that no other one contains. Periodic in the micro-batches, so a
/// few periods stand for any number of them.
std::vector<Holding> holdings(Schedule, std::int64_t pp, std::int64_t vpp,
                              std::int64_t microbatches, std::int64_t stage);

}  // namespace plimsoll
