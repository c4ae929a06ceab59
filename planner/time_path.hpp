// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <string>

#include "planner/layout.hpp"

/// How a job's stack runs its ops, as far as its time goes. A stack says so in params of its
/// `framework` (lang/prelude/frameworks.plan), which a job may set: `launch`, `moe_kernels`,
/// `tp_overlap`, `fp8_recipe`, `kernels`, `compile`.
namespace plimsoll {

struct TimePath {
  /// Who starts the kernels: Python, one by one; CUDA graphs; Megatron-LM of 2021-22.
  enum class Launch : std::uint8_t { kernels, graphs, legacy } launch = Launch::kernels;
  /// Of which years, and whose, the attention kernels and the trainer are.
  enum class Kernels : std::uint8_t { current, y2023, te } kernels = Kernels::current;
  bool fused_experts = false;  ///< one kernel for an expert's products and activation
  bool tp_overlap = false;     ///< tp's traffic runs beside the products that need it
  bool rowwise = false;        ///< fp8 products with a scale a row
  bool torch = false;          ///< a trainer of PyTorch's own, not Megatron
  bool eager = false;          ///< of those, not compiled
  bool unfused = false;        ///< attention in separate kernels
  std::string precision;       ///< of the job
};

TimePath time_path(const Problem&);

}  // namespace plimsoll
