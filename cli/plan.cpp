// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <chrono>
#include <csignal>

#include "cli/command.hpp"
#include "cli/problem.hpp"
#include "planner/enumerate.hpp"
#include "planner/report_plan.hpp"
#include "planner/suggest.hpp"

namespace plimsoll::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;

/// While it lives, the first Ctrl-C asks the search to stop; a second one ends the program as
/// usual.
class InterruptScope {
 public:
  InterruptScope() {
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

int exit_code(const PlanResult& result) {
  if (interrupted) return kInterrupted;
  return result.best ? kDone : kNoLayoutFits;
}

}  // namespace

Outcome plan(const Options& options, const Terminal& terminal) {
  return with_problem(
      options, terminal, [&](const Problem& problem, Diagnostics& diags) -> Outcome {
        using Clock = std::chrono::steady_clock;
        PlanOptions how;
        how.top = options.top;
        how.budget = options.budget;
        const auto begun = Clock::now();
        how.stop = [&] {
          return interrupted != 0 ||
                 (options.timeout &&
                  std::chrono::duration<double>(Clock::now() - begun).count() > *options.timeout);
        };
        const InterruptScope listening;
        PlanResult result = plimsoll::plan(problem, how, diags);
        if (diags.has_errors()) return {};
        if (result.status == PlanResult::infeasible)
          result.relaxations = suggest(problem, how.stop);
        Outcome outcome;
        outcome.code = exit_code(result);
        outcome.out = options.json ? report::plan_json(problem, result)
                                   : report::plan_text(problem, result, terminal.style);
        if (result.stopped)
          outcome.err = interrupted
                            ? "plimsoll: interrupted; this is the best so far\n"
                            : "plimsoll: the time is over; this is the best so far, and another "
                              "run may find another\n";
        return outcome;
      });
}

}  // namespace plimsoll::cli
