// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace plimsoll::cli::lsp {

/// A message's JSON, as foreign_json() reads it. A surrogate without its other half, as an editor's
/// strings may hold, reads as U+FFFD: a text with one is kept, and its columns stay right.
nlohmann::json parse_message(std::string body);

}  // namespace plimsoll::cli::lsp
