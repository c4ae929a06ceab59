// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "lang/expr.hpp"

namespace plimsoll {

/// Formulas as people read them, for one stage of one layout: conditions are decided, switches (sp,
/// zero, schedule, offload …) have their values, degrees and sizes keep their names; what divides
/// is a quotient.
class Formulas {
 public:
  Formulas(ExprPool& pool, const Env& env) : pool_(pool), env_(env) {}
  std::string str(Expr);
  bool is_one(Expr);
  /// Bits of the variables that the formula reads, and of those that it divides by.
  std::uint64_t variables(Expr);
  std::uint64_t dividing(Expr);

 private:
  Expr settle(Expr);
  Expr settle_new(Expr);

  ExprPool& pool_;
  const Env env_;
  std::unordered_map<std::uint32_t, Expr> settled_;
};

}  // namespace plimsoll
