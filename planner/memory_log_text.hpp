// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>
#include <string_view>

namespace plimsoll::logs {

/// A log as it would read on paper, line by line the same: without a terminal's colours and other
/// escape sequences (ECMA-48), without the frames that `rich` draws around tracebacks, and in
/// UTF-8 where a byte order mark says that it is UTF-16 (what `>` writes in Windows PowerShell).
std::string plain_text(std::string_view log);

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
inline bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

inline std::string_view without_blanks(std::string_view s) {
  while (!s.empty() && is_blank(s.front())) s.remove_prefix(1);
  return s;
}

}  // namespace plimsoll::logs
