// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <optional>
#include <string>

namespace plimsoll {

/// The Loader that compile() takes unless it is given one: a regular file of at most the language's
/// largest size.
std::optional<std::string> read_from_disk(const std::string& path, std::string& why);

}  // namespace plimsoll
