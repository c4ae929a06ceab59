// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/export.hpp"

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/problem.hpp"
#include "lang/diagnostics.hpp"
#include "planner/report_export.hpp"

namespace plimsoll::cli {
namespace {

Outcome unknown_tool(const std::string& tool) {
  std::vector<std::string> known;
  for (const exports::Writer& w : exports::writers()) known.emplace_back(w.tool);
  if (tool.empty())
    return user_error("export needs a tool",
                      fmt::format("say which: --to {}", fmt::join(known, ", --to ")));
  const std::string near = did_you_mean(tool, known);
  return user_error(fmt::format("'{}' cannot be exported to", tool),
                    near.empty() ? fmt::format("the tools are {}", fmt::join(known, ", "))
                                 : fmt::format("did you mean '{}'?", near));
}

Outcome say(const exports::Exported& made, const exports::Writer& writer, const Problem& problem,
            bool json) {
  Outcome outcome;
  if (!made.mistakes.empty()) {
    for (const exports::Mistake& m : made.mistakes) {
      const Outcome one = user_error(m.what, m.help);
      outcome.err += one.err;
    }
    outcome.code = kUserError;
    return outcome;
  }
  for (const std::string& warning : made.warnings)
    outcome.err += fmt::format("plimsoll: warning: {}\n", warning);
  outcome.out = json ? report::export_json(problem, writer, made) : made.text;
  return outcome;
}

}  // namespace

Outcome export_to(const Options& options, const Terminal& terminal) {
  const exports::Writer* writer = exports::find_writer(options.to);
  if (writer == nullptr) return unknown_tool(options.to);
  return with_problem(
      options, terminal, [&](const Problem& problem, Diagnostics& diags) -> Outcome {
        if (problem.job->serve != writer->serves)
          return user_error(fmt::format("{} {}, and '{}' is a {} job", writer->tool,
                                        writer->serves ? "serves" : "trains", problem.job->name,
                                        problem.job->serve ? "serve" : "train"),
                            "name another tool with --to, or another job with --job");
        return with_bill(problem, options, diags,
                         [&](const Layout& layout, const Bill&) -> Outcome {
                           return say(exports::export_layout(*writer, problem, layout), *writer,
                                      problem, options.json);
                         });
      });
}

}  // namespace plimsoll::cli
