// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string_view>

namespace plimsoll::eval {

/// Parts that begin with a number, with dots between: "2.11", "2.9.0rc1".
bool is_version(std::string_view text);

}  // namespace plimsoll::eval
