// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "cli/lsp/message.hpp"

#include <charconv>
#include <cstdint>
#include <string_view>

#include "planner/foreign_json.hpp"

namespace plimsoll::cli::lsp {

namespace {

constexpr std::size_t kEscape = 6;  // \uXXXX

/// The code unit of the \uXXXX at \a at; 0 where there is none.
std::uint32_t unit_at(std::string_view body, std::size_t at) {
  if (body.substr(at, 2) != "\\u" || body.size() < at + kEscape) return 0;
  const char* digits = body.data() + at + 2;
  std::uint32_t unit = 0;
  const auto [end, error] = std::from_chars(digits, digits + 4, unit, 16);
  return error == std::errc() && end == digits + 4 ? unit : 0;
}
bool is_high(std::uint32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool is_low(std::uint32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

/// Looks at the escape at \a at, mends it, and says how many bytes were looked at.
std::size_t mend_escape(std::string& body, std::size_t at) {
  const std::uint32_t unit = unit_at(body, at);
  if (unit == 0) return 2;
  if (is_high(unit) && is_low(unit_at(body, at + kEscape))) return 2 * kEscape;
  if (is_high(unit) || is_low(unit)) body.replace(at + 2, 4, "fffd");
  return kEscape;
}

}  // namespace

nlohmann::json parse_message(std::string body) {
  for (std::size_t at = body.find('\\'); at != std::string::npos; at = body.find('\\', at))
    at += mend_escape(body, at);
  return foreign_json(body);
}

}  // namespace plimsoll::cli::lsp
