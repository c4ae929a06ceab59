// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>
#include <string_view>

#include "planner/peak.hpp"

namespace plimsoll {

/// A switch (param) of the job's framework as the job has it set, or as its declaration defaults to
/// where that is a plain word or number; "" else.
std::string switch_of(const Problem&, std::string_view name);
bool is_on(const Problem&, std::string_view name);

}  // namespace plimsoll
