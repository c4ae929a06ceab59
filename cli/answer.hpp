// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/command.hpp"

namespace plimsoll::cli {

/// The program without its streams: understands the command line (argv[0] is the program) and gives
/// what it would print. Never throws; a bug of ours is an outcome too.
Outcome answer(int argc, const char* const* argv, const Terminal&);

/// The same as a function of text: \a arguments follow the program's name, and a file called "-" is
/// \a input. No colour, 80 columns.
Outcome answer(const std::vector<std::string>& arguments, std::string_view input);

}  // namespace plimsoll::cli
