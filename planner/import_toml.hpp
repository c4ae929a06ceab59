// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

/// The part of TOML that training configurations are written in: tables, dotted keys, strings on
/// one line, numbers, booleans, arrays over any number of lines. No dates, inline tables, arrays of
/// tables or strings of several lines: each is a mistake with its line.
namespace plimsoll::imports {

struct TomlValue {
  enum Kind { word, number, flag, list } kind = word;
  std::string text;              ///< a string's characters; a number or boolean as written
  std::vector<TomlValue> items;  ///< of a list
};

struct Toml {
  std::map<std::string, TomlValue> values;  ///< by "table.key"
  std::string mistake;                      ///< "line 3: …"; "" where all was read
};

Toml read_toml(std::string_view text);

}  // namespace plimsoll::imports
