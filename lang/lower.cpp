// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "lang/lower.hpp"

#include "lang/lowering.hpp"

namespace plimsoll {

std::optional<Inventory> lower(const LowerInput& in, Diagnostics& diags) {
  const std::size_t errors = diags.error_count();
  Lowering lowering(in, diags);
  lowering.read_framework();
  if (in.job->serve) lowering.read_serving();
  lowering.find_flow();
  lowering.lower_ops();
  lowering.lower_states();
  lowering.lower_items();
  lowering.build_traces();
  if (diags.error_count() > errors) return std::nullopt;
  return lowering.take();
}

}  // namespace plimsoll
