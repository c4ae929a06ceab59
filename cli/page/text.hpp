// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string_view>

namespace plimsoll::cli {

/// The text of a file of cli/page, embedded in the binary when it is built.
std::string_view page_text(std::string_view name);

}  // namespace plimsoll::cli
