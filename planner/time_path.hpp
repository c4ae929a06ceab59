// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <string>

#include "planner/layout.hpp"

/// How a job's stack runs its ops, as far as its time goes. A stack says so in params of its
/// `framework` (lang/prelude/frameworks.plan), which a job may set: `launch`, `moe_kernels`,
/// `dispatcher`, `tp_overlap`, `moe_overlap`, `fp8_recipe`, `fp8_attention`, `kernels`, `compile`.
namespace plimsoll {

struct TimePath {
  /// Who starts the kernels: Python, one by one; CUDA graphs, of all or of all but the experts;
  /// Megatron-LM of 2021-22.
  enum class Launch : std::uint8_t { kernels, partial, graphs, legacy } launch = Launch::kernels;
  /// Of which years, and whose, the attention kernels and the trainer are.
  enum class Kernels : std::uint8_t { current, y2023, te } kernels = Kernels::current;
  bool fused_experts = false;  ///< one kernel for an expert's products and activation
  /// How rows get to their experts. DeepEP and HybridEP sort them on their way and send a token
  /// once to a node; the host waits for the counts of all but HybridEP.
  enum class Dispatch : std::uint8_t { alltoall, deepep, hybridep } dispatch = Dispatch::alltoall;
  bool tp_overlap = false;  ///< tp's traffic runs beside the products that need it
  bool ep_overlap = false;  ///< ep's traffic runs beside another micro-batch
  bool fp8_attention = false;
  bool rowwise = false;  ///< fp8 products with a scale a row
  bool torch = false;    ///< a trainer of PyTorch's own, not Megatron
  bool eager = false;    ///< of those, not compiled
  /// Checkpoints end when the last of what backward needs is there: PyTorch's, not reentrant.
  /// Those of Hugging Face's trainer (reentrant by default) and DeepSpeed's run to the end.
  bool stops_early = false;
  bool unfused = false;   ///< attention in separate kernels
  std::string precision;  ///< of the job
};

TimePath time_path(const Problem&);

}  // namespace plimsoll
