// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>

#include "lang/expr.hpp"

namespace plimsoll {

/// How an expression moves when a quantity grows on which some variables depend.
enum class Trend : std::uint8_t { flat, up, down, mixed };

/// Variables that grow with a quantity, and those that fall.
struct Movement {
  std::uint64_t up = 0, down = 0;
};

/// peak grows, headroom falls.
Movement with_memory();
/// step_time, days and cost grow, tokens_per_second and mfu fall.
Movement with_time();

/// Proven from the expression's form, for variables that are not negative; `mixed` where it is not.
Trend trend(const ExprPool&, Expr, const Movement&);

}  // namespace plimsoll
