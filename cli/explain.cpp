// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/explain.hpp"

#include "cli/command.hpp"
#include "cli/problem.hpp"

namespace plimsoll::cli {

Outcome explain(const Options& options, const Terminal& terminal) {
  return with_problem(options, terminal, [&](const Problem& problem, Diagnostics& diags) {
    return with_bill(
        problem, options, diags, [&](const Layout& layout, const Bill& priced) -> Outcome {
          return {
              kDone,
              report::explain_text(problem, report::heading(problem, layout), priced,
                                   single_steps(problem, layout), terminal.style, options.stage),
              ""};
        });
  });
}

}  // namespace plimsoll::cli
