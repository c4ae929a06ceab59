// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace plimsoll {

/// JSON that others wrote; discarded (is_discarded()) where it is none, or where it is nested more
/// than 100 levels deep, as no configuration or message is: copying or printing such a value would
/// run out of stack.
nlohmann::json foreign_json(std::string_view text);

}  // namespace plimsoll
