// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "cli/page/page.hpp"

#include <string_view>
#include <utility>

#include "cli/page/data.hpp"
#include "cli/page/text.hpp"
#include "cli/version.hpp"
#include "planner/report_parts.hpp"

namespace plimsoll::cli {

namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// JSON that may stand in a <script>: whatever a name is, nothing in it ends the element or begins
/// a comment of HTML.
std::string in_script(const Json& data) {
  const std::string text = data.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size() + text.size() / 16);
  for (const char c : text) {
    if (c == '<')
      out += "\\u003c";
    else if (c == '>')
      out += "\\u003e";
    else if (c == '&')
      out += "\\u0026";
    else
      out += c;
  }
  return out;
}

Json data_of(const Page& page) {
  Strings strings;
  Json data;
  data["schema"] = "plimsoll.page/1";
  data["version"] = version_number();
  data["command"] = page.command;
  data["file"] = page.file;
  data["answer"] = page.answer;
  data["job"] = {{"name", page.heading->job},
                 {"model", page.heading->model},
                 {"framework", page.heading->framework},
                 {"cluster", page.heading->cluster},
                 {"serve", page.heading->serve},
                 {"reservedNote", page.heading->reserved_note}};
  data["categories"] = Json::array();
  for (std::size_t i = 0; i < kCategoryCount; ++i)
    data["categories"].push_back({std::string(name(static_cast<Category>(i))),
                                  std::string(report::label(static_cast<Category>(i)))});
  if (page.bill != nullptr) data["bill"] = page_bill(page, strings);
  if (page.plan != nullptr) data["plan"] = page_plan(page);
  if (page.timeline != nullptr) data["timeline"] = page_timeline(page, strings);
  if (page.workshop != nullptr) data["workshop"] = page_workshop(*page.workshop);
  data["strings"] = strings.take();
  return data;
}

/// \a text with each {{name}} replaced, read once: what is put in is not looked at again.
std::string filled(std::string_view text,
                   const std::vector<std::pair<std::string_view, std::string>>& values) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t open = text.find("{{", at);
    if (open == std::string_view::npos) return out += text.substr(at);
    const std::size_t close = text.find("}}", open);
    PLIMSOLL_ASSERT(close != std::string_view::npos);
    out += text.substr(at, open - at);
    const std::string_view name = text.substr(open + 2, close - open - 2);
    bool found = false;
    for (const auto& [key, value] : values)
      if (key == name) {
        out += value;
        found = true;
      }
    PLIMSOLL_ASSERT(found);
    at = close + 2;
  }
  return out;
}

}  // namespace

std::string html(const Page& page) {
  return filled(page_text("page.html"),
                {{"title", escaped(page.heading->job + ": " + page.answer)},
                 {"answer", escaped(page.answer)},
                 {"text", escaped(page.text)},
                 {"style", std::string(page_text("page.css"))},
                 {"data", in_script(data_of(page))},
                 {"script", fmt::format("{}{}{}{}{}{}", page_text("data.js"), page_text("parts.js"),
                                        page_text("stages.js"), page_text("step.js"),
                                        page_text("runners.js"), page_text("workshop.js"))}});
}

}  // namespace plimsoll::cli
