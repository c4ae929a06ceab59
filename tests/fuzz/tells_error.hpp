// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <sstream>
#include <string>

/// Does a line of what diagnostics render say `FILE:1:2: error: …`? Lines of the source, which are
/// shown below it, may hold that word themselves.
inline bool tells_error(const std::string& said) {
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t blank = line.find(' ');
    if (blank != std::string::npos && blank > 0 && line[blank - 1] == ':' &&
        line.compare(blank, 8, " error: ") == 0)
      return true;
  }
  return false;
}
