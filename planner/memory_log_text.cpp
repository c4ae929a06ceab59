// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/memory_log_text.hpp"

#include <cstdint>

namespace plimsoll::logs {
namespace {

constexpr char kEscape = '\x1b';
constexpr char kBell = '\x07';

/// What the readers look for is ASCII; the rest only has to stay apart from it.
std::string from_utf16(std::string_view log, bool little) {
  std::string text;
  text.reserve(log.size() / 2);
  for (std::size_t i = 0; i + 1 < log.size(); i += 2) {
    const auto low = static_cast<unsigned char>(log[little ? i : i + 1]);
    const auto high = static_cast<unsigned char>(log[little ? i + 1 : i]);
    text += high == 0 && low < 0x80 ? static_cast<char>(low) : '?';
  }
  return text;
}

/// How long the escape sequence is that \a s begins with.
std::size_t sequence(std::string_view s) {
  if (s.size() < 2) return s.size();
  if (s[1] == '[') {  // parameters, then a byte from '@' to '~'
    std::size_t i = 2;
    while (i < s.size() && s[i] >= ' ' && s[i] < '@') ++i;
    return i < s.size() && s[i] >= '@' ? i + 1 : i;
  }
  if (s[1] == ']') {  // a title or a link, up to a bell or ESC '\', in this line
    const std::size_t end = s.find_first_of("\x07\x1b\n", 2);
    if (end == s.npos || s[end] == '\n') return 2;
    return s[end] == kBell ? end + 1 : end + (s.substr(end, 2) == "\x1b\\" ? 2 : 0);
  }
  return s[1] == '\n' ? 1 : 2;
}

}  // namespace

std::string plain_text(std::string_view log) {
  const bool little = log.starts_with("\xff\xfe"), big = log.starts_with("\xfe\xff");
  const std::string decoded = little || big ? from_utf16(log.substr(2), little) : "";
  if (little || big) log = decoded;
  std::string text;
  text.reserve(log.size());
  for (std::size_t i = 0; i < log.size();) {
    // │ and ┃: what stands inside a frame is the text.
    const std::string_view three = log.substr(i, 3);
    if (log[i] == kEscape) {
      i += sequence(log.substr(i));
    } else if (three == "\xe2\x94\x82" || three == "\xe2\x94\x83") {
      text += ' ';
      i += three.size();
    } else {
      text += log[i++];
    }
  }
  return text;
}

}  // namespace plimsoll::logs
