// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <fmt/format.h>

#include <utility>

#include "cli/command.hpp"
#include "cli/page/add_page.hpp"
#include "cli/problem.hpp"
#include "lang/module.hpp"
#include "planner/peak.hpp"
#include "planner/report_bill.hpp"
#include "planner/segments.hpp"

namespace plimsoll::cli {
namespace {

/// The same job and layout under another framework, set beside the first bill.
Outcome side_by_side(const Problem& problem, const Layout& layout, const Bill& own,
                     const std::string& framework, const report::Style& style, bool json,
                     Diagnostics& diags) {
  const Module& module = *problem.module;
  if (module.framework(framework) == nullptr) {
    const std::string near = did_you_mean(framework, module.names("framework"));
    return user_error(fmt::format("unknown framework '{}' after --against", framework),
                      near.empty() ? fmt::format("the frameworks are {}",
                                                 fmt::join(module.names("framework"), ", "))
                                   : fmt::format("did you mean '{}'?", near));
  }
  Job job = *problem.job;
  job.framework = framework;
  // What only the first framework knows has no meaning under the other, whose defaults hold.
  job.loss.clear();
  job.grads.clear();
  job.switches.clear();
  auto other = make_problem(module, job, diags);
  if (!other) return {};
  if (problem.segments) other->segments = problem.segments->fresh();
  Layout same = layout;
  resolve(*other, same);
  const Bill there = plimsoll::bill(*other, same);
  const report::Heading here_heading = report::heading(problem, layout);
  const report::Heading there_heading = report::heading(*other, same);
  if (json) return {kDone, report::against_json(here_heading, own, there_heading, there), ""};
  return {kDone, report::against_text(here_heading, own, there_heading, there, style), ""};
}

}  // namespace

Outcome bill(const Options& options, const Terminal& terminal) {
  if (auto wrong = html_mistake(options)) return std::move(*wrong);
  return with_problem(options, terminal, [&](const Problem& problem, Diagnostics& diags) {
    return with_bill(
        problem, options, diags, [&](const Layout& layout, const Bill& priced) -> Outcome {
          if (!options.against.empty())
            return side_by_side(problem, layout, priced, options.against, terminal.style,
                                options.json, diags);
          const report::Heading heading = report::heading(problem, layout);
          Outcome outcome{kDone,
                          options.json
                              ? report::bill_json(heading, priced)
                              : report::bill_text(heading, priced, terminal.style, options.stage),
                          ""};
          if (options.html.empty()) return outcome;
          return add_page(options, problem, {&priced},
                          report::bill_text(heading, priced, {}, options.stage),
                          std::move(outcome));
        });
  });
}

}  // namespace plimsoll::cli
