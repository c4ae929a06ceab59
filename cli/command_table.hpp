// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// The command line as data: what shell completions and the manual page are made from. It is read
/// off the parser, so that neither can say what the program does not take.
namespace plimsoll::cli {

/// What an option's value is.
enum class ValueKind : std::uint8_t { none, plain, words, file, job, layout, framework, gpu };

struct OptionRow {
  std::string name;   ///< "--top"
  std::string value;  ///< what stands for its value in help: "N"; "" for a flag
  std::string description;
  ValueKind kind = ValueKind::none;
  std::vector<std::string> words;  ///< ValueKind::words
};

struct CommandRow {
  std::string name, description;
  std::string argument;            ///< "FILE", "SHELL"; "" where it takes none
  std::vector<std::string> words;  ///< that the argument may be; empty: files
  std::vector<OptionRow> options;  ///< without --help
};

std::vector<CommandRow> command_table();

/// A script that completes the program's command line in bash, zsh or fish.
std::string completion_script(const std::string& shell);
/// The manual page, in roff.
std::string manual_page();

}  // namespace plimsoll::cli
