// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include <fmt/format.h>

#include <utility>

#include "cli/command.hpp"
#include "cli/page/add_page.hpp"
#include "cli/problem.hpp"
#include "lang/module.hpp"
#include "planner/report_bill.hpp"
#include "runtime/report_timeline.hpp"

namespace plimsoll::cli {

namespace {

/// Columns of the JSON form.
constexpr std::size_t kJsonColumns = 240;

}  // namespace

Outcome timeline(const Options& options, const Terminal& terminal) {
  if (auto wrong = html_mistake(options)) return std::move(*wrong);
  return with_problem(
      options, terminal, [&](const Problem& problem, Diagnostics& diags) -> Outcome {
        if (problem.job->serve)
          return user_error(
              fmt::format("'{}' serves; a timeline is of a training step", problem.job->name),
              "name a train job with --job, or ask 'plimsoll bill'");
        return with_bill(
            problem, options, diags,
            [&](const Layout& layout, const Bill& priced) -> Outcome {
              const std::int64_t ranks = runtime::rank_count(layout);
              if (options.rank && *options.rank >= ranks)
                return user_error(
                    fmt::format("there is no rank {}; the layout has {}", *options.rank, ranks),
                    fmt::format("give --rank a number from 0 to {}", ranks - 1));
              const std::int64_t rank = options.rank
                                            ? *options.rank
                                            : runtime::rank_in_stage(layout, 0, priced.peak_stage);
              const runtime::StagePlan plan(problem, layout, rank);
              const runtime::Timeline seen = runtime::timeline(
                  plan, options.json ? kJsonColumns : report::timeline_columns(terminal.style));
              const report::Heading heading = report::heading(problem, layout);
              Outcome outcome{kDone,
                              options.json
                                  ? report::timeline_json(heading, priced, seen)
                                  : report::timeline_text(heading, priced, seen, terminal.style),
                              ""};
              if (options.html.empty()) return outcome;
              const report::Style plain;
              return add_page(options, problem, {&priced, nullptr, rank},
                              report::timeline_text(
                                  heading, priced,
                                  runtime::timeline(plan, report::timeline_columns(plain)), plain),
                              std::move(outcome));
            },
            false);
      });
}

}  // namespace plimsoll::cli
