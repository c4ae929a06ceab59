// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/program.hpp"

#include <array>

namespace plimsoll {

std::string_view name(OpKind kind) {
  static constexpr std::array kNames = {
#define X(name) std::string_view(#name),
      PLIMSOLL_OP_KINDS(X)
#undef X
  };
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view name(Role role) {
  static constexpr std::array<std::string_view, 8> kNames = {
      "linear", "expert", "head", "embedding", "norm", "bias", "router", "other"};
  return kNames[static_cast<std::size_t>(role)];
}

Int128 Program::parameter_count() const {
  Int128 count = 0;
  for (const Weight& weight : weights)
    if (weight.tied_to == kNone) count += weight.numel();
  return count;
}

}  // namespace plimsoll
