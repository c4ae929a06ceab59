// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/foreign_json.hpp"

namespace plimsoll {

nlohmann::json foreign_json(std::string_view text) {
  constexpr int kDeepest = 100;
  int depth = 0;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') ++at;  // what is escaped ends no string
    if (in_string) continue;
    if ((c == '[' || c == '{') && ++depth > kDeepest)
      return nlohmann::json(nlohmann::json::value_t::discarded);
    if (c == ']' || c == '}') --depth;
  }
  return nlohmann::json::parse(text, nullptr, false);
}

}  // namespace plimsoll
