// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/explain.hpp"

#include "cli/command.hpp"
#include "cli/problem.hpp"

namespace plimsoll::cli {
namespace {
constexpr std::int64_t kOthers = 3;  ///< layouts to set beside the one explained
}

Outcome explain(const Options& options, const Terminal& terminal) {
  return with_problem(options, terminal, [&](const Problem& problem, Diagnostics& diags) {
    return with_bill(
        problem, options, diags, [&](const Layout& layout, const Bill& priced) -> Outcome {
          PlanOptions how;
          how.top = kOthers;
          const Why because = why(problem, layout, how);
          const auto steps = single_steps(problem, layout);
          const report::Heading heading = report::heading(problem, layout);
          return {kDone,
                  options.json ? report::explain_json(heading, priced, steps, because)
                               : report::explain_text(problem, heading, priced, steps, because,
                                                      terminal.style, options.stage),
                  ""};
        });
  });
}

}  // namespace plimsoll::cli
