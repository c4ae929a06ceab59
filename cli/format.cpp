// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <fmt/format.h>

#include <utility>

#include "cli/command.hpp"
#include "cli/files.hpp"
#include "lang/diagnostics.hpp"
#include "lang/parse.hpp"
#include "lang/print.hpp"
#include "lang/source.hpp"

namespace plimsoll::cli {
namespace {

/// The text in canonical form, or the diagnostics of a text that cannot be parsed.
std::variant<std::string, Outcome> canonical(const Input& input, const Terminal& terminal) {
  Sources sources;
  Diagnostics diags;
  const ast::File file = parse(sources, sources.add(input.name, input.text), diags);
  if (diags.has_errors())
    return Outcome{kUserError, "", diags.render(sources, terminal.colour_err)};
  return print(file, sources);
}

}  // namespace

Outcome format(const Options& options, const Terminal& terminal) {
  const bool prints = !options.write && !options.check;
  if (prints && options.files.size() > 1)
    return user_error("fmt prints one file at a time",
                      "use --write to change several in place, or --check to look at them");
  Outcome all;
  for (const std::string& path : options.files) {
    if (options.write && path == "-")
      return user_error("standard input cannot be written in place", "leave out --write");
    auto input = read_input(path);
    if (auto* unreadable = std::get_if<Outcome>(&input)) return std::move(*unreadable);
    auto text = canonical(std::get<Input>(input), terminal);
    if (auto* broken = std::get_if<Outcome>(&text)) {
      all.code = kUserError;
      all.err += broken->err;
      continue;
    }
    const std::string& formatted = std::get<std::string>(text);
    const bool same = formatted == std::get<Input>(input).text;
    if (prints) {
      all.out = formatted;
    } else if (!same && options.check) {
      all.code = kUserError;
      all.err +=
          fmt::format("plimsoll: '{}' is not in canonical form\nhelp: run 'plimsoll fmt {}'\n",
                      path, path == "-" ? "- > FILE" : "--write " + path);
    } else if (!same) {
      if (const std::string why = replace_file(path, formatted); !why.empty()) {
        all.code = kUserError;
        all.err += fmt::format(
            "plimsoll: cannot write '{}': {}\nhelp: the file is as it was; check its permissions "
            "and the disk\n",
            path, why);
      }
    }
  }
  return all;
}

}  // namespace plimsoll::cli
