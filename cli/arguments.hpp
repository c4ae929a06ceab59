// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <variant>

#include "cli/command.hpp"

namespace plimsoll::cli {

/// The command line as options of a command, or what to say at once: help, the version, a mistake.
std::variant<Options, Outcome> parse_arguments(int argc, const char* const* argv);

}  // namespace plimsoll::cli
