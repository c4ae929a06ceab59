// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>

#include "lang/units.hpp"

namespace plimsoll {

/// "8,192" of a whole number; "1.5", "1/3" of another.
inline std::string grouped(const Rational& value) {
  return value.is_integer() ? grouped(value.num()) : value.str();
}

}  // namespace plimsoll
