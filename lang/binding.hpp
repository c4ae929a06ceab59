// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <string_view>

#include "lang/ast.hpp"

namespace plimsoll::ast {

/// How an operator stands between its neighbours. `none`: two of one strength side by side are an
/// error.
enum class Side : std::uint8_t { left, right, none, prefix };

struct Binding {
  int strength;  ///< the higher, the tighter
  Side side;
  std::string_view text;
};

/// The operators of LANGUAGE.md §3, from loosest to tightest.
constexpr Binding binding(Op op) {
  switch (op) {
    case Op::implies:
      return {1, Side::right, "=>"};
    case Op::logical_or:
      return {2, Side::left, "or"};
    case Op::logical_and:
      return {3, Side::left, "and"};
    case Op::logical_not:
      return {4, Side::prefix, "not"};
    case Op::equal:
      return {5, Side::none, "=="};
    case Op::not_equal:
      return {5, Side::none, "!="};
    case Op::less:
      return {5, Side::none, "<"};
    case Op::less_equal:
      return {5, Side::none, "<="};
    case Op::greater:
      return {5, Side::none, ">"};
    case Op::greater_equal:
      return {5, Side::none, ">="};
    case Op::in:
      return {5, Side::none, "in"};
    case Op::range:
      return {6, Side::none, ".."};
    case Op::add:
      return {7, Side::left, "+"};
    case Op::subtract:
      return {7, Side::left, "-"};
    case Op::multiply:
      return {8, Side::left, "*"};
    case Op::divide:
      return {8, Side::left, "/"};
    case Op::floor_divide:
      return {8, Side::left, "//"};
    case Op::negate:
      return {9, Side::prefix, "-"};
    case Op::power:
      return {10, Side::right, "^"};
  }
  return {0, Side::none, ""};
}

}  // namespace plimsoll::ast
