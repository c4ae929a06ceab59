// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/command.hpp"
#include "cli/files.hpp"
#include "lang/module.hpp"

namespace plimsoll::cli {
namespace {

/// One line a declaration, in columns.
std::string as_text(const std::vector<Summary>& declarations) {
  std::size_t kinds = 0, names = 0;
  for (const Summary& one : declarations) {
    kinds = std::max(kinds, one.kind.size());
    names = std::max(names, one.name.size());
  }
  std::string text;
  for (const Summary& one : declarations) {
    std::string line = fmt::format("{:{}}  {:{}}  {}", one.kind, kinds, one.name, names, one.text);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

/// `plimsoll.check/1` (docs/schemas/check.schema.json).
std::string as_json(const std::vector<Summary>& declarations, const Sources& sources) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const Summary& one : declarations)
    list.push_back({{"kind", one.kind},
                    {"name", one.name},
                    {"text", one.text},
                    {"file", sources[one.span.file].name()},
                    {"line", sources[one.span.file].position(one.span.begin).line}});
  const Json all = {{"schema", "plimsoll.check/1"}, {"declarations", std::move(list)}};
  // A file's name may be any bytes; JSON holds text only.
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace

Outcome check(const Options& options, const Terminal& terminal) {
  auto input = read_input(options.file());
  if (auto* unreadable = std::get_if<Outcome>(&input)) return std::move(*unreadable);
  auto& [name, text] = std::get<Input>(input);
  Diagnostics diags;
  const Module module = compile(name, std::move(text), diags);
  const auto declarations = module.summary(diags);
  const std::string said = diags.render(module.sources(), terminal.colour_err);
  if (diags.has_errors()) return {kUserError, "", said};
  return {kDone, options.json ? as_json(declarations, module.sources()) : as_text(declarations),
          said};
}

}  // namespace plimsoll::cli
