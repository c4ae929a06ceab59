// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lang/conditions.hpp"
#include "planner/enumerate.hpp"

namespace plimsoll {

/// What a condition takes to be decided.
enum class Reach : std::uint8_t {
  outer,   ///< the outer variables alone
  memory,  ///< and the peak: it holds up to some number of bytes
  time,    ///< and the step time: it holds up to some time
  lists,   ///< and stage_layers or recompute_layers: it couples stages
  opaque,  ///< anything else of a priced layout (bytes("…"), bubble …): asked for each one
};

/// What an objective depends on beside the outer variables.
enum class Aim : std::uint8_t {
  time,    ///< nothing, or the step time: less is better
  memory,  ///< the peak: less is better
  both,    ///< both of them: less of each is better
  opaque,  ///< anything else
};

/// A job's requirements, preferences and objective, ready for a search.
class Judge {
 public:
  /// Errors of conditions go to \a diags. \a pricer: for `bytes("…")`.
  Judge(const Problem&, Pricer& pricer, Diagnostics& diags);

  /// Requirements that read no more than the variables of \a known and had not been decided with
  /// those of \a before: do they hold? Counts what each turned away.
  bool admits(const Env& env, std::uint64_t known, std::uint64_t before);
  /// The same, turning nothing away.
  bool would_admit(const Env& env, std::uint64_t known, std::uint64_t before) const;
  /// What is derived of a priced layout: peak, headroom, step_time, mfu, days ….
  void set_derived(const Priced&, Env& env) const;
  /// The requirements that read derived numbers, lists or bytes("…").
  bool meets(const Priced&, const Env& env);
  /// Sets score, unmet, days and cost. False where the objective has no value.
  bool score(Priced&, const Env& env) const;

  /// A score that no layout of these outer variables with at least \a nanoseconds a step can
  /// undercut, where preferences of \a percent in all are not met; -infinity where the objective
  /// does not follow from the step time. \a at: what mfu and throughput are at that step time.
  double bound(Env& env, std::int64_t nanoseconds, const StepTime& at,
               const Rational& percent) const;

  Aim aim() const { return aim_; }
  /// The variables that the objective reads.
  std::uint64_t objective_variables() const;
  /// Preferences that the outer variables do not decide: a search may insist on some of them. Bit i
  /// of a set stands for the i-th.
  std::size_t inner_preferences() const { return inner_.size(); }
  const Rational& weight(std::size_t inner) const { return prefer_[inner_[inner]].source->weight; }
  /// Weights, added up, of the preferences that the outer variables decide and that do not hold.
  Rational unmet_percent(const Env& env) const;

  /// The most bytes with which the requirements, and the inner preferences of \a kept, that bound
  /// the peak hold; \a memory where none does bind, negative where they hold at no peak.
  std::int64_t memory_cap(Env& env, std::int64_t memory, std::uint64_t kept);
  /// Conditions that couple stages or that only a priced layout decides.
  std::vector<const Condition*> coupling(std::uint64_t kept) const;
  /// Must a layout be priced to know whether those of them hold that are not over lists alone?
  bool asks_of_priced(std::uint64_t kept) const;
  /// Does a requirement bound the step time? And are those met, after set_derived()?
  bool bounds_time() const;
  bool in_time(const Env& env) const;
  /// Do the inner preferences of \a kept hold at a priced layout?
  bool keeps(const Priced&, const Env& env, std::uint64_t kept) const;

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
  struct Part {
    Expr expr;
    Reach reach = Reach::outer;
    std::shared_ptr<Tape> tape;  ///< of expr: asked for every layout
    /// Throws ArithmeticError where it has no value.
    bool holds(const Env& env) const {
      tape->run(env);
      return !tape->value(0).is_zero();
    }
  };
  struct Rule {
    const Condition* source = nullptr;
    Lowered lowered;
    Reach reach = Reach::outer;  ///< of the part that reaches furthest
    std::vector<Part> parts;     ///< they all must hold; empty where there is no expression
    mutable std::int64_t turned_away = 0;
    mutable std::int64_t asked = 0;  ///< times; of them, `without_value` for the reason `why`
    mutable std::int64_t without_value = 0;
    mutable std::string why = {};
  };
  /// Of the requirements that are decided with \a known and were not with \a before; nullptr where
  /// they all hold.
  const Rule* first_broken(const Env& env, std::uint64_t known, std::uint64_t before) const;
  void classify(Rule&) const;
  void split(Expr, std::vector<Part>&) const;
  Aim aim_of_objective() const;
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
  bool minimize_ = true;
  Aim aim_ = Aim::time;
  std::vector<std::size_t> inner_;        ///< indices into prefer_
  std::optional<std::int64_t> kept_cap_;  ///< where the bound on the peak is the same everywhere
};

/// The requirements of the job (and its framework) that a layout does not meet, for a bill of it.
std::vector<const Condition*> broken_requirements(const Problem&, const Layout&, const Bill&);

/// Does `bytes("WHAT")` mean an item? "logits" does "logits", and what an op saves: "cross_entropy
/// logits".
bool is_called(std::string_view item, std::string_view what);

/// Variables that are known only once a layout is priced.
std::uint64_t derived_variables();

}  // namespace plimsoll
