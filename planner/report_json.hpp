// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "lang/rational.hpp"
#include "planner/growth.hpp"

/// What the JSON reports share. Seen by report_*_json.cpp only: the library's header is large.
namespace plimsoll::report {

/// Fields stand in the order in which LANGUAGE.md §6 lists them.
using Json = nlohmann::ordered_json;

/// An integer. Past 64 bits (nine exabytes and more) it is written as a float: JSON's readers have
/// nothing wider.
inline Json integer(Int128 value) {
  if (value >= std::numeric_limits<std::int64_t>::min() &&
      value <= std::numeric_limits<std::int64_t>::max())
    return static_cast<std::int64_t>(value);
  return static_cast<double>(value);
}

/// What `growth` is in plimsoll.explain/1 and plimsoll.plan/1.
Json growth_json(const std::vector<Growth>&);

}  // namespace plimsoll::report
