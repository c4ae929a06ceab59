// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <map>
#include <string>
#include <vector>

/// The words of a launch: flags and what surrounds them, from a shell script, an argument list
/// (bare or as JSON) or lines "key: value". Nothing is run: assignments are read and put in where a
/// word names them, and that is all of the shell there is.
namespace plimsoll::imports {

/// "--num-layers 12": the name with "-" for "_" and without its dashes; its words, one blank apart.
struct Flag {
  std::string name;
  std::string value;  ///< "" where none follows
};

struct Launch {
  std::vector<Flag> flags;                         ///< in the order written
  std::map<std::string, std::string> environment;  ///< NAME=VALUE, exported or not, the last one
};

Launch read_launch(const std::string& text);

}  // namespace plimsoll::imports
