// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/growth.hpp"
#include "planner/layout.hpp"
#include "planner/peak.hpp"
#include "planner/time.hpp"

/// `plan`: the best layout of a job. The outer layouts (domains.hpp, space.hpp) that meet the job's
/// requirements are taken in the order of a lower bound of their score; for each, the layers and
/// the recomputation of every stage are settled exactly (inner.hpp; coupled.hpp where conditions
/// couple stages), until nothing that is left can be better. Deterministic: no clock, no threads.
namespace plimsoll {

/// A solver's word that nothing was left out: see certificate.hpp.
struct Proof {
  std::int64_t points = 0;  ///< cores that the rules allow
  std::int64_t rules = 0, nogoods = 0;
  std::int64_t checks = 0;  ///< of the solver
};

struct PlanOptions {
  std::int64_t top = 5;                ///< the best and its runners-up
  std::optional<std::int64_t> budget;  ///< candidates to look at
  bool first_fit = false;  ///< any layout that fits and meets the requirements will do: stop at one
  /// A further requirement, of every layout: at least this share of the memory stays unused.
  std::optional<Rational> min_headroom;
  bool proof = false;  ///< have the answer certified
  /// Asked now and then; true ends the search with the best so far (a deadline, an interrupt).
  std::function<bool()> stop;
};

/// A layout that was priced.
struct Priced {
  Layout layout;
  StepTime time;  ///< zero for a serve job
  Int128 peak_bytes = 0, hbm_bytes = 0;
  std::int64_t peak_stage = 0;
  Int128 host_bytes = 0, host_share = 0;  ///< see Pricer::Peak
  Rational value;                         ///< of the objective
  Rational score;  ///< smaller is better: the value with what unmet preferences add
  std::vector<const Condition*> unmet;  ///< preferences that do not hold
  std::optional<Rational> days, cost;   ///< of the run, where the job says `tokens`

  double headroom() const;  ///< unused share of the memory
  void set_peak(const Pricer::Peak&);
};

/// One of the smallest set of things that cannot hold together: a named requirement, or items of
/// the inventory.
struct CoreItem {
  std::string name;  ///< of the requirement or the item
  std::string file;  ///< where it is written; "" where it follows from no line
  std::int64_t line = 0;
  /// An item of memory: what it takes at the layout where the set comes nearest to holding.
  std::optional<Int128> bytes;
};

/// What a preference cost, see preferences.hpp.
struct PreferenceCost {
  const Condition* preference = nullptr;
  bool met = false;
  /// Met: the best without the preference. Not met: the best that meets it. nullopt: none.
  std::optional<Priced> other;
  std::string layout;  ///< describe() of it
  bool proven = true;  ///< the search for it came to its end
  /// By how much the objective is worse where the preference is met than where it need not be, as a
  /// share of the chosen layout's; nullopt where that is not known. Never below 0.
  std::optional<double> cost;
};

struct Relaxation {
  std::string change;     ///< "use 16 nodes"
  std::string value;      ///< "16"
  std::string plan_text;  ///< the whole file with the change made
  Priced best;  ///< a layout of the changed file that fits; planning it may find a better one
  std::string layout;  ///< describe() of it
};

struct PlanResult {
  enum Status {
    optimal,     ///< nothing else in the enumerated space is better
    feasible,    ///< the best so far, when the budget or the time ran out
    infeasible,  ///< every candidate was looked at and none fits and meets the requirements
    unknown,     ///< nothing found yet when the budget or the time ran out
  };
  Status status = unknown;
  std::optional<Priced> best;
  std::vector<Priced> alternatives;  ///< the next ones, best first
  std::optional<Priced> tightest;    ///< where none fits: the layout nearest to fitting
  std::int64_t space = 0;      ///< candidates that are possible and meet what concerns them alone
  std::int64_t evaluated = 0;  ///< of them, looked at
  std::int64_t feasible_count = 0;  ///< of those, fit and meet every requirement
  bool stopped = false;             ///< by PlanOptions::stop
  /// Where the search ended early: no layout's score is below this one. `gap` is how far below the
  /// best's it is, as a share.
  double lower_bound = 0, gap = 0;
  /// Why the best is not proven although everything was looked at; "" where it is, or was not.
  std::string unproven;
  std::int64_t solver_queries = 0;  ///< asked of Z3
  std::optional<Proof> proof;       ///< where PlanOptions::proof asked for it and it was found
  bool minimize = true;
  std::string objective;   ///< as written; "step_time"
  std::string emptied_by;  ///< the requirement that left nothing to look at, or ""
  /// Where nothing could be looked at: what turned away the combinations that came furthest, in
  /// words ("dp is none of the values that the job gives"); else "".
  std::string why;
  std::vector<CoreItem> core;  ///< why nothing fits; empty where that was not worked out
  Int128 core_over = 0;        ///< bytes by which the core's items exceed the memory, at the least
  /// Why no number of GPUs would do, in words; "" where some might.
  std::string never;
  std::vector<PreferenceCost> preferences;  ///< by price_preferences()
  std::vector<Growth> growth;               ///< of the best, by growth()
  std::vector<Priced> pareto;               ///< by pareto(); best first
  bool pareto_proven = true;                ///< every search for it came to its end
  std::vector<Relaxation> relaxations;      ///< single changes that were planned again and fit
};

std::string_view name(PlanResult::Status);

/// Searches. Errors that only show now go to \a diags, and the result is `unknown` then: conditions
/// and objectives without a value at any layout, GPUs without the rates that step times need,
/// layouts none of which can be priced.
PlanResult plan(const Problem&, const PlanOptions&, Diagnostics& diags);

}  // namespace plimsoll
