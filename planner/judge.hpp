// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lang/conditions.hpp"
#include "planner/enumerate.hpp"

namespace plimsoll {

/// A job's requirements, preferences and objective, ready for a search.
class Judge {
 public:
  /// Errors of conditions go to \a diags. \a pricer: for `bytes("…")`.
  Judge(const Problem&, Pricer& pricer, Diagnostics& diags);

  /// Requirements that read no more than the variables of \a known and had not been decided with
  /// those of \a before: do they hold? Counts what each turned away.
  bool admits(const Env& env, std::uint64_t known, std::uint64_t before);
  /// What is derived of a priced layout: peak, headroom, step_time, mfu, days ….
  void set_derived(const Priced&, Env& env) const;
  /// The requirements that read derived numbers, lists or bytes("…").
  bool meets(const Priced&, const Env& env);
  /// Sets score, unmet, days and cost. False where the objective has no value.
  bool score(Priced&, const Env& env) const;

  /// A score that no layout of these variables with at least \a nanoseconds a step can undercut;
  /// -infinity where the objective does not follow from the step time alone.
  double bound(Env& env, std::int64_t nanoseconds) const;

  /// The requirements that a priced layout breaks; \a env as set_derived leaves it.
  std::vector<const Condition*> broken(const Priced&, const Env& env) const;

  bool minimize() const { return minimize_; }
  const std::string& objective() const { return objective_text_; }
  /// The requirement that admits() found not to hold, last.
  const std::string& last() const { return last_; }
  /// For a search that found nothing: an error where a requirement or the objective had no value at
  /// any layout it was asked for. True then.
  bool report_without_value(Diagnostics&) const;
  /// The requirement that turned away the most candidates; "" where none did.
  std::string strictest() const;

 private:
  struct Rule {
    const Condition* source = nullptr;
    Lowered lowered;
    std::int64_t turned_away = 0;
    std::int64_t asked = 0;  ///< times; of them, `without_value` for the reason `why`
    mutable std::int64_t without_value = 0;
    mutable std::string why = {};
  };
  std::optional<bool> holds(const Rule&, const Priced&, const Env&) const;
  std::optional<Rational> value_of_objective(const Priced&, const Env&) const;
  LayoutValues values(const Priced&, const Env&) const;

  const Problem& problem_;
  Pricer& pricer_;
  std::vector<Rule> require_, prefer_;
  std::optional<Lowered> objective_;
  const ast::Expr* objective_source_ = nullptr;
  std::string objective_text_, last_;
  mutable std::string objective_why_;  ///< why it had no value, where that happened
  mutable bool objective_has_value_ = false;
  bool minimize_ = true, bounded_ = false;
};

/// The requirements of the job (and its framework) that a layout does not meet, for a bill of it.
std::vector<const Condition*> broken_requirements(const Problem&, const Layout&, const Bill&);

/// Variables that are known only once a layout is priced.
std::uint64_t derived_variables();

}  // namespace plimsoll
