// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/explain.hpp"

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/problem.hpp"

namespace plimsoll::cli {

Outcome explain(const Options& options, const Terminal& terminal) {
  return with_problem(
      options, terminal, [&](const Problem& problem, Diagnostics& diags) -> Outcome {
        const auto layout = pick_layout(problem, options, diags);
        if (!layout)
          return {kNoLayoutFits, "",
                  fmt::format("plimsoll: no layout of '{}' is possible\n"
                              "help: 'plimsoll plan' says which condition leaves none\n",
                              problem.job->name)};
        const Bill priced = plimsoll::bill(problem, *layout);
        const auto stages = static_cast<std::int64_t>(priced.stages.size());
        if (options.stage && *options.stage >= stages)
          return user_error(
              fmt::format("there is no stage {}; the layout has {}", *options.stage, stages),
              fmt::format("give --stage a number from 0 to {}", stages - 1));
        return {kDone,
                report::explain_text(problem, report::heading(problem, *layout), priced,
                                     single_steps(problem, *layout), terminal.style, options.stage),
                ""};
      });
}

}  // namespace plimsoll::cli
