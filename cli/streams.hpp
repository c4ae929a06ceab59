// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string_view>

#include "cli/command.hpp"

namespace plimsoll::cli {

/// Makes the three standard streams safe to use: writing to a closed pipe is an error value, not a
/// signal, and a stream that the caller closed cannot be mistaken for a file opened later.
void prepare_streams();

/// Colour only on a terminal, and never with NO_COLOR. What goes to a file or a pipe is 80 columns
/// of UTF-8 on every machine; a terminal has its own width (80 to 120) and may be without Unicode.
Terminal look_at_terminal();

/// Writes all of \a text; returns 0 or errno.
int write_all(int fd, std::string_view text);

/// Says an outcome and returns the exit code of the program. A closed pipe ends it quietly with the
/// outcome's own code: the reader has seen enough. Any other failure to write is an error.
int say(const Outcome&);

}  // namespace plimsoll::cli
