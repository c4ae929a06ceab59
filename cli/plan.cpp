// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <utility>
#include <vector>

#include "cli/command.hpp"
#include "cli/page/add_page.hpp"
#include "cli/problem.hpp"
#include "cli/progress.hpp"
#include "lang/diagnostics.hpp"
#include "planner/clash.hpp"
#include "planner/enumerate.hpp"
#include "planner/feasible.hpp"
#include "planner/growth.hpp"
#include "planner/on.hpp"
#include "planner/pareto.hpp"
#include "planner/preferences.hpp"
#include "planner/questions.hpp"
#include "planner/report_plan.hpp"
#include "planner/suggest.hpp"

namespace plimsoll::cli {
namespace {

/// Layouts that are shown as if unsaid, and those that a page compares.
constexpr std::int64_t kTop = 3, kTopOfPage = 10;

volatile std::sig_atomic_t interrupted = 0;

/// While it lives, the first Ctrl-C asks the search to stop; a second one ends the program as
/// usual.
class InterruptScope {
 public:
  InterruptScope() {
    interrupted = 0;  // of an earlier question, where the program is a library
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = 1; };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(SIGINT, &action, &before_);
  }
  ~InterruptScope() { ::sigaction(SIGINT, &before_, nullptr); }
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  struct sigaction before_ {};
};

int exit_code(const PlanResult& result, const std::vector<OnGpu>& on) {
  if (interrupted) return kInterrupted;
  const bool elsewhere =
      std::any_of(on.begin(), on.end(), [](const OnGpu& row) { return row.best.has_value(); });
  return result.best || elsewhere ? kDone : kNoLayoutFits;
}

/// What is wrong with the GPUs that `--on` names, or with asking for them here.
std::optional<Outcome> mistake(const Options& options, const Problem& problem) {
  if (options.pareto && !options.on.empty())
    return user_error("--on and --pareto are two questions", "ask one at a time");
  if (options.pareto && problem.job->serve)
    return user_error(
        fmt::format("--pareto weighs step time against memory, and '{}' serves", problem.job->name),
        "use it with a train job; a server fills its share of the memory with sequences");
  if (options.on.empty()) return std::nullopt;
  if (!has_one_gpu(*problem.cluster))
    return user_error(fmt::format("--on replaces the GPU of a cluster, and '{}' has pools",
                                  problem.cluster->name),
                      "name a job on a cluster with one gpu = …");
  for (const std::string& gpu : options.on) {
    if (problem.module->gpu(gpu) != nullptr) continue;
    const auto known = problem.module->names("gpu");
    const std::string near = did_you_mean(gpu, known);
    return user_error(fmt::format("unknown GPU '{}' after --on", gpu),
                      near.empty() ? fmt::format("the GPUs are {}", fmt::join(known, ", "))
                                   : fmt::format("did you mean '{}'?", near));
  }
  return std::nullopt;
}

/// What follows from a search that came to an end.
void complete(const Options& options, const Problem& problem, const PlanOptions& how,
              PlanResult& result) {
  if (result.status == PlanResult::infeasible && options.on.empty()) {
    if (result.space == 0) result.core = find_conflict(problem);
    if (result.core.empty()) find_clash(problem, result, how.stop);
    if (result.space > 0) result.never = why_never(problem);
    result.relaxations = suggest(problem, how.stop);
  }
  if (options.pareto) return find_pareto(problem, result, how);
  if (!options.on.empty()) return;
  result.preferences = price_preferences(problem, result, how);
  if (result.best) result.growth = growth(problem, result.best->layout);
}

std::string told_to_stop(bool found) {
  const std::string so_far = found ? "this is the best so far" : "nothing was found so far";
  if (interrupted) return fmt::format("plimsoll: interrupted; {}\n", so_far);
  return fmt::format("plimsoll: the time is over; {}, and another run may find {}\n", so_far,
                     found ? "another" : "something");
}

std::string text(const Problem& problem, const PlanResult& result, const std::vector<OnGpu>& on,
                 const report::Style& style) {
  if (!on.empty()) return report::on_text(problem, result, on, style);
  if (!result.pareto.empty()) return report::pareto_text(problem, result, style);
  return report::plan_text(problem, result, style);
}

/// The page of the best layout, or of the one nearest to fitting.
Outcome with_page(const Options& options, const Problem& problem, const PlanResult& result,
                  Outcome outcome) {
  std::optional<Bill> priced;
  if (result.best || result.tightest)
    priced = bill(problem, (result.best ? result.best : result.tightest)->layout);
  return add_page(options, problem, {priced ? &*priced : nullptr, &result},
                  text(problem, result, {}, {}), std::move(outcome));
}

}  // namespace

Outcome plan(const Options& options, const Terminal& terminal) {
  if (auto wrong = html_mistake(options)) return std::move(*wrong);
  return with_problem(
      options, terminal, [&](const Problem& problem, Diagnostics& diags) -> Outcome {
        using Clock = std::chrono::steady_clock;
        if (auto wrong = mistake(options, problem)) return std::move(*wrong);
        check_questions(problem, diags);
        if (diags.has_errors()) return {};
        PlanOptions how;
        how.top = options.top.value_or(options.html.empty() ? kTop : kTopOfPage);
        how.proof = !options.no_proof && options.on.empty();
        how.budget = options.budget;
        const auto begun = Clock::now();
        Progress progress(terminal.progress);
        progress.say("searching", "; Ctrl-C ends it with the best so far");
        how.stop = [&] {
          progress.tick();
          return interrupted != 0 ||
                 (options.timeout &&
                  std::chrono::duration<double>(Clock::now() - begun).count() > *options.timeout);
        };
        const InterruptScope listening;
        PlanResult result = plimsoll::plan(problem, how, diags);
        if (diags.has_errors()) return {};
        progress.say("working out what follows");
        complete(options, problem, how, result);
        std::vector<OnGpu> on;
        if (!options.on.empty()) on = plan_on(problem, result, options.on, how);
        Outcome outcome;
        outcome.code = exit_code(result, on);
        PlanResult whole;
        if (!options.html.empty()) whole = result;
        const auto shown = static_cast<std::size_t>(options.top.value_or(kTop) - 1);
        if (result.alternatives.size() > shown) result.alternatives.resize(shown);
        outcome.out = options.json ? report::plan_json(problem, result, on)
                                   : text(problem, result, on, terminal.style);
        if (result.stopped) outcome.err = told_to_stop(result.best.has_value());
        if (options.html.empty()) return outcome;
        return with_page(options, problem, whole, std::move(outcome));
      });
}

}  // namespace plimsoll::cli
