// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/diagnose.hpp"

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/files.hpp"
#include "cli/problem.hpp"
#include "runtime/report_diagnose.hpp"

namespace plimsoll::cli {
namespace {

Outcome nothing_of_memory(const std::string& name) {
  return user_error(
      fmt::format("'{}' says nothing of memory that is known", name),
      "paste the message itself: PyTorch's 'out of memory', Megatron's 'memory (MB)' lines, "
      "DeepSpeed's 'MA … Max_MA', torchtitan's 'memory:', nvidia-smi, vLLM's or SGLang's start-up");
}

Outcome beside_the_bill(const Options& options, const Terminal& terminal, const Problem& problem,
                        const logs::MemoryLog& log, Diagnostics& diags) {
  if (problem.job->serve && !log.server && log.failures.empty())
    return user_error(
        fmt::format("'{}' serves, and the log is of no server that is known", problem.job->name),
        "name a train job with --job");
  return with_bill(problem, options, diags, [&](const Layout& layout, const Bill& bill) -> Outcome {
    runtime::Diagnosis d = runtime::diagnose(problem, bill, log, options.stage);
    if (find_layout(*problem.module, options.layout, diags) == nullptr)
      d.notes.push_back(
          "The file names no layout, or several: the best that planning finds was taken. Write the "
          "one that ran as a layout, or name it with --layout.");
    const report::Heading heading = report::heading(problem, layout);
    return {kDone,
            options.json ? report::diagnose_json(heading, d)
                         : report::diagnose_text(heading, bill, d, terminal.style),
            ""};
  });
}

}  // namespace

Outcome diagnose(const Options& options, const Terminal& terminal) {
  auto input = read_log(options.files.back());
  if (auto* unreadable = std::get_if<Outcome>(&input)) return std::move(*unreadable);
  const auto& [name, text] = std::get<Input>(input);
  const logs::MemoryLog log = logs::read_memory_log(text);
  if (log.empty()) return nothing_of_memory(name);
  return with_problem(options, terminal, [&](const Problem& problem, Diagnostics& diags) {
    return beside_the_bill(options, terminal, problem, log, diags);
  });
}

}  // namespace plimsoll::cli
