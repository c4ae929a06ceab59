// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "cli/problem.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "cli/files.hpp"
#include "lang/module.hpp"
#include "lang/other_jobs.hpp"
#include "lang/units.hpp"
#include "planner/enumerate.hpp"
#include "planner/judge.hpp"
#include "planner/peak.hpp"
#include "planner/range.hpp"
#include "planner/report_bill.hpp"
#include "runtime/segments.hpp"

namespace plimsoll::cli {

namespace {

/// nullopt where no layout is possible at all, with the reason in \a why, or after errors.
std::optional<Layout> pick_layout(const Problem& problem, const Options& options,
                                  Diagnostics& diags, std::string& why) {
  const LayoutDecl* named = find_layout(*problem.module, options.layout, diags);
  if (diags.has_errors()) return std::nullopt;
  if (named != nullptr) return layout_from(problem, named, diags);
  PlanOptions only_the_best;
  only_the_best.top = 1;
  const PlanResult planned = plan(problem, only_the_best, diags);
  if (planned.best) return planned.best->layout;
  if (planned.tightest) return planned.tightest->layout;
  why = planned.why;
  return std::nullopt;
}

/// Arithmetic that has no answer at a layout is the file's mistake, at the expression where it is
/// known.
Outcome run_command(const Module& module, const Job& job, const WithProblem& command,
                    Diagnostics& diags) {
  static constexpr const char* kHelp =
      "change the expression, or the sizes and degrees that it reads";
  try {
    if (auto problem = make_problem(module, job, diags)) {
      problem->segments = runtime::replayed_segments();
      return command(*problem, diags);
    }
  } catch (const PriceError& e) {
    // What is written in the prelude comes out wrong because of the user's numbers.
    const bool own = e.span && !module.sources()[e.span.file].is_prelude();
    Diagnostic& error = diags.error(own ? e.span : job.span, e.what()).with_help(kHelp);
    if (e.span && !own) error.label(e.span, "its bytes come from here");
  } catch (const ArithmeticError& e) {
    diags.error(job.span, fmt::format("job '{}' cannot be priced: {}", job.name, e.what()))
        .with_help(kHelp);
  }
  return {};
}

Outcome no_layout(const Problem& problem, const Options& options, const std::string& why) {
  Outcome outcome;
  outcome.code = kNoLayoutFits;
  outcome.err = fmt::format(
      "plimsoll: no layout of '{}' is possible{}{}\n"
      "help: change what is named, or leave it to the planner\n",
      problem.job->name, why.empty() ? "" : ": ", why);
  if (options.json) outcome.out = report::no_bill_json(problem, why);
  return outcome;
}

}  // namespace

Outcome with_problem(const Options& options, const Terminal& terminal, const WithProblem& command) {
  auto input = read_input(options.file());
  if (auto* unreadable = std::get_if<Outcome>(&input)) return std::move(*unreadable);
  auto& [name, text] = std::get<Input>(input);
  Diagnostics diags;
  const Module module = compile(name, std::move(text), diags);
  if (!options.job.empty() && diags.has_errors()) diags = for_job(module, options.job, diags);
  Outcome outcome;
  if (!diags.has_errors())
    if (const Job* job = find_job(module, options.job, diags)) {
      Job routed = *job;
      if (options.routing) routed.imbalance = *measured_imbalance(*options.routing);
      outcome = run_command(module, options.routing ? routed : *job, command, diags);
    }
  const std::string said = diags.render(module.sources(), terminal.colour_err);
  if (diags.has_errors()) return {kUserError, "", said};
  outcome.err.insert(0, said);
  return outcome;
}

Outcome with_bill(const Problem& problem, const Options& options, Diagnostics& diags,
                  const WithBill& command, bool replayed) {
  std::string why;
  const auto layout = pick_layout(problem, options, diags, why);
  if (!layout) return no_layout(problem, options, why);
  Problem by_factor;
  if (!replayed) {
    by_factor = problem;
    by_factor.segments.reset();
  }
  const Bill priced = plimsoll::bill(replayed ? problem : by_factor, *layout);
  if (find_layout(*problem.module, options.layout, diags) != nullptr)
    for (const Condition* c : broken_requirements(problem, *layout, priced))
      diags.warning(c->span, "the layout does not meet this requirement")
          .with_help("'plimsoll plan' looks only for layouts that do");
  if (uses_host(problem, *layout) && !problem.job->serve)
    if (const Pricer::Peak peak = Pricer(problem).peak(*layout); peak.host_bytes > peak.host_share)
      diags
          .warning(
              problem.cluster->span,
              fmt::format("a GPU keeps {} of {} in host memory, and its share of its node's is {}",
                          human_bytes(peak.host_bytes), report::on_host(problem, *layout),
                          human_bytes(peak.host_share)))
          .with_help("offload less, or give the cluster more host_memory");
  const auto stages = static_cast<std::int64_t>(priced.stages.size());
  if (options.stage && *options.stage >= stages)
    return user_error(
        fmt::format("there is no stage {}; the layout has {}", *options.stage, stages),
        fmt::format("give --stage a number from 0 to {}", stages - 1));
  return command(*layout, priced);
}

}  // namespace plimsoll::cli
