// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Numbers, sizes and their units, as logs write them.

#include <cmath>
#include <cstdlib>
#include <string>

#include "planner/memory_log.hpp"
#include "planner/memory_log_text.hpp"

namespace plimsoll::logs {
namespace {

constexpr std::size_t kNone = std::string_view::npos;

/// Powers of two, whatever the tool calls them; 0 where it is no unit of bytes.
double unit_bytes(std::string_view word) {
  constexpr double kKi = 1024;
  if (word == "bytes" || word == "byte" || word == "B") return 1;
  if (word == "KiB" || word == "KB" || word == "kB") return kKi;
  if (word == "MiB" || word == "MB" || word == "M") return kKi * kKi;
  if (word == "GiB" || word == "GB" || word == "G") return kKi * kKi * kKi;
  if (word == "TiB" || word == "TB") return kKi * kKi * kKi * kKi;
  return 0;
}

/// Digits with a point, commas between them taken out; how far it reaches.
struct Number {
  double value = 0;
  int decimals = 0;
  std::size_t length = 0;
};
std::optional<Number> number_at(std::string_view s) {
  std::string digits;
  Number n;
  bool point = false;
  std::size_t i = 0;
  if (i < s.size() && s[i] == '-') digits += s[i++];
  for (; i < s.size(); ++i) {
    const bool more = i + 1 < s.size() && is_digit(s[i + 1]);
    if (is_digit(s[i])) {
      digits += s[i];
      if (point) ++n.decimals;
    } else if (s[i] == '.' && !point && more) {
      point = true;
      digits += '.';
    } else if (!(s[i] == ',' && !point && more && i > 0 && is_digit(s[i - 1]))) {
      break;
    }
  }
  if (digits.empty() || digits == "-" || digits.size() > 30) return std::nullopt;
  n.value = std::strtod(digits.c_str(), nullptr);
  n.length = i;
  return n;
}

}  // namespace

std::optional<Seen> size_at(std::string_view text, std::string_view unit) {
  text = without_blanks(text);
  const auto n = number_at(text);
  if (!n) return std::nullopt;
  std::string_view rest = without_blanks(text.substr(n->length));
  std::size_t letters = 0;
  while (letters < rest.size() && is_letter(rest[letters])) ++letters;
  double scale = unit_bytes(rest.substr(0, letters));
  if (scale == 0) scale = unit_bytes(unit);
  if (scale == 0) return std::nullopt;
  const double bytes = n->value * scale;
  if (!(std::abs(bytes) < 9e18)) return std::nullopt;
  Seen seen;
  seen.bytes = static_cast<std::int64_t>(std::llround(bytes));
  seen.slack = scale == 1
                   ? 0
                   : static_cast<std::int64_t>(std::ceil(scale / 2 * std::pow(10.0, -n->decimals)));
  return seen;
}

std::optional<Seen> size_after(std::string_view text, std::string_view phrase,
                               std::string_view unit) {
  for (std::size_t at = text.find(phrase); at != kNone; at = text.find(phrase, at + 1))
    if (const auto size = size_at(text.substr(at + phrase.size()), unit)) return size;
  return std::nullopt;
}

std::optional<Seen> size_before(std::string_view text, std::string_view phrase) {
  for (std::size_t at = text.find(phrase); at != kNone; at = text.find(phrase, at + 1)) {
    // Back over the unit, a blank and the digits.
    std::size_t begin = at;
    while (begin > 0 && is_letter(text[begin - 1])) --begin;
    while (begin > 0 && is_blank(text[begin - 1])) --begin;
    const std::size_t unit = begin;
    while (begin > 0 && (is_digit(text[begin - 1]) || text[begin - 1] == '.')) --begin;
    if (begin == unit) continue;
    if (const auto size = size_at(text.substr(begin, at - begin))) return size;
  }
  return std::nullopt;
}

std::optional<std::int64_t> count_at(std::string_view text) {
  text = without_blanks(text);
  if (text.empty() || !is_digit(text.front())) return std::nullopt;
  const auto n = number_at(text);
  if (!n || n->decimals > 0 || !(n->value < 9e18)) return std::nullopt;
  return static_cast<std::int64_t>(n->value);
}

std::optional<std::int64_t> count_after(std::string_view text, std::string_view phrase) {
  for (std::size_t at = text.find(phrase); at != kNone; at = text.find(phrase, at + 1))
    if (const auto n = count_at(text.substr(at + phrase.size()))) return n;
  return std::nullopt;
}

}  // namespace plimsoll::logs
