// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>
#include <variant>

#include "cli/command.hpp"

namespace plimsoll::cli {

/// A file as it was read. `name` is what diagnostics call it.
struct Input {
  std::string name;
  std::string text;
};

/// Reads a .plan file, or standard input where \a path is "-"; otherwise why it cannot be read and
/// what to do. No more than the language's largest file is ever held.
std::variant<Input, Outcome> read_input(const std::string& path);

/// Likewise a log. Of one that is longer than 64 MiB the beginning is read.
std::variant<Input, Outcome> read_log(const std::string& path);

/// Replaces a file's text in one step: a reader sees the old text or the new one, never a part, and
/// a failure leaves the old. Follows symbolic links and keeps the mode. Returns "" or why it
/// failed.
std::string replace_file(const std::string& path, const std::string& text);

/// Writes a file in one step, new or in place of an old one: a reader sees all of it or what was
/// there before. Follows a symbolic link. Returns "" or why it failed.
std::string write_file(const std::string& path, const std::string& text);

}  // namespace plimsoll::cli
