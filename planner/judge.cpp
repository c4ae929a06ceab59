// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "lang/diagnostics.hpp"
#include "lang/print.hpp"
#include "planner/time.hpp"
#include "planner/trend.hpp"

namespace plimsoll {

namespace {

constexpr std::uint64_t bit(Var v) { return std::uint64_t{1} << static_cast<unsigned>(v); }

/// Preferences that a search may insist on: a bit each. Further ones count where they happen to
/// hold.
constexpr std::size_t kMostInner = 62;

/// Reports the names in `bytes("…")` that neither a category nor an item of the job has.
void check_names(const Problem& problem, const ast::Expr& e, Diagnostics& diags) {
  for (const ast::Argument& argument : e.args)
    if (argument.value) check_names(problem, *argument.value, diags);
  if (e.kind != ast::ExprKind::call || e.text != "bytes" || e.args.empty()) return;
  const ast::Expr& wanted = e.arg(0);
  if (wanted.kind != ast::ExprKind::string) return;
  std::vector<std::string> names;
  for (std::size_t c = 0; c < kCategoryCount; ++c)
    names.emplace_back(name(static_cast<Category>(c)));
  if (std::find(names.begin(), names.end(), wanted.text) != names.end()) return;
  for (const Item& item : problem.inventory.items) {
    if (is_called(item.name, wanted.text)) return;
    names.push_back(item.name);
  }
  Diagnostic& error = diags.error(wanted.span, fmt::format("job '{}' has no category or item '{}'",
                                                           problem.job->name, wanted.text));
  const std::string meant = did_you_mean(wanted.text, names);
  error.with_help(meant.empty() ? "a bill lists the names: plimsoll bill FILE"
                                : fmt::format("did you mean \"{}\"?", meant));
}

}  // namespace

std::uint64_t derived_variables() {
  return bit(Var::peak) | bit(Var::hbm) | bit(Var::headroom) | bit(Var::step_time) |
         bit(Var::tokens_per_second) | bit(Var::mfu) | bit(Var::bubble) | bit(Var::days) |
         bit(Var::cost) | bit(Var::params_on_gpu) | bit(Var::sequences);
}

Judge::Judge(const Problem& problem, Pricer& pricer, Diagnostics& diags)
    : problem_(problem), pricer_(pricer) {
  const Job& job = *problem.job;
  const auto lower = [&](const std::vector<Condition>& conditions, std::vector<Rule>& out) {
    for (const Condition& c : conditions)
      if (auto lowered = lower_condition(*problem.module, job, *c.expr, diags)) {
        if (lowered->bytes && !job.serve) check_names(problem, *c.expr, diags);
        Rule& rule = out.emplace_back();
        rule.source = &c;
        rule.lowered = std::move(*lowered);
        classify(rule);
      }
  };
  lower(job.require, require_);
  lower(job.prefer, prefer_);
  minimize_ = job.objective.expr != nullptr ? job.objective.minimize : !job.serve;
  objective_source_ = job.objective.expr;
  objective_text_ = objective_source_ != nullptr ? print(*objective_source_)
                    : job.serve                  ? "sequences"
                                                 : "step_time";
  if (objective_source_ != nullptr)
    objective_ = lower_number(*problem.module, job, *objective_source_, diags);
  aim_ = aim_of_objective();
  for (std::size_t i = 0; i < prefer_.size(); ++i)
    if (prefer_[i].reach != Reach::outer && prefer_[i].reach != Reach::time &&
        inner_.size() < kMostInner)
      inner_.push_back(i);
}

/// Cuts "a and b" in two.
void Judge::split(Expr e, std::vector<Part>& parts) const {
  const ExprPool& pool = problem_.module->pool();
  if (pool.node(e) == ExprPool::Node::min && pool.is_boolean(e)) {
    for (const Expr operand : pool.operands(e)) split(operand, parts);
    return;
  }
  const std::uint64_t reads = pool.depends_on(e);
  Part part{e, Reach::opaque, std::make_shared<Tape>(pool, std::span<const Expr>(&e, 1))};
  const Movement memory = with_memory(), time = with_time();
  const std::uint64_t by_memory = memory.up | memory.down | bit(Var::hbm);
  const std::uint64_t by_time = time.up | time.down;
  const std::uint64_t derived = reads & derived_variables();
  if (derived == 0)
    part.reach = Reach::outer;
  else if ((derived & ~by_memory) == 0 && problem_.cluster->pools.size() == 1 &&
           (trend(pool, e, memory) == Trend::down || trend(pool, e, memory) == Trend::flat))
    part.reach = Reach::memory;
  else if ((derived & ~by_time) == 0 && trend(pool, e, time) == Trend::down)
    part.reach = Reach::time;
  parts.push_back(part);
}

void Judge::classify(Rule& rule) const {
  if (!rule.lowered.expr) {
    const bool own = (rule.lowered.variables & derived_variables()) == 0 && !rule.lowered.bytes;
    rule.reach = own ? Reach::lists : Reach::opaque;
    return;
  }
  split(*rule.lowered.expr, rule.parts);
  for (const Part& part : rule.parts) rule.reach = std::max(rule.reach, part.reach);
}

Aim Judge::aim_of_objective() const {
  if (objective_source_ == nullptr) return problem_.job->serve ? Aim::opaque : Aim::time;
  if (!objective_ || !objective_->expr) return Aim::opaque;
  const ExprPool& pool = problem_.module->pool();
  const Expr e = *objective_->expr;
  const Movement memory = with_memory(), time = with_time();
  const std::uint64_t known =
      ~derived_variables() | memory.up | memory.down | time.up | time.down | bit(Var::hbm);
  if ((pool.depends_on(e) & ~known) != 0) return Aim::opaque;
  const Trend worse = minimize_ ? Trend::up : Trend::down;
  const auto suits = [&](Trend t) { return t == worse || t == Trend::flat; };
  const Trend by_memory = trend(pool, e, memory), by_time = trend(pool, e, time);
  if (!suits(by_memory) || !suits(by_time)) return Aim::opaque;
  if (by_memory != Trend::flat && problem_.cluster->pools.size() > 1) return Aim::opaque;
  if (by_memory == Trend::flat) return Aim::time;
  return by_time == Trend::flat ? Aim::memory : Aim::both;
}

const Judge::Rule* Judge::first_broken(const Env& env, std::uint64_t known,
                                       std::uint64_t before) const {
  const ExprPool& pool = problem_.module->pool();
  for (const Rule& rule : require_)
    for (const Part& part : rule.parts) {
      const std::uint64_t reads = pool.depends_on(part.expr);
      if (part.reach != Reach::outer || (reads & ~known) != 0) continue;
      if (before != 0 && (reads & ~before) == 0) continue;  // decided already
      ++rule.asked;
      try {
        if (!part.holds(env)) return &rule;
      } catch (const ArithmeticError& e) {
        // It has no value here, so it is not met.
        ++rule.without_value;
        rule.why = e.what();
        return &rule;
      }
    }
  return nullptr;
}

bool Judge::would_admit(const Env& env, std::uint64_t known, std::uint64_t before) const {
  return first_broken(env, known, before) == nullptr;
}

bool Judge::admits(const Env& env, std::uint64_t known, std::uint64_t before) {
  const Rule* broken = first_broken(env, known, before);
  if (broken == nullptr) return true;
  ++broken->turned_away;
  last_ = broken->source->name;
  return false;
}

std::uint64_t Judge::objective_variables() const {
  if (objective_source_ == nullptr)
    return bit(problem_.job->serve ? Var::sequences : Var::step_time);
  return objective_ ? objective_->variables : ~std::uint64_t{0};
}

Rational Judge::unmet_percent(const Env& env) const {
  Rational percent = 0;
  for (const Rule& rule : prefer_) {
    if (rule.reach != Reach::outer) continue;
    bool met = false;
    try {
      met = !problem_.module->pool().eval(*rule.lowered.expr, env).is_zero();
    } catch (const ArithmeticError&) {
      // It has no value here, so it is not met.
    }
    if (!met) percent += rule.source->weight;
  }
  return percent;
}

std::int64_t Judge::memory_cap(Env& env, std::int64_t memory, std::uint64_t kept) {
  const ExprPool& pool = problem_.module->pool();
  const std::uint64_t peak = with_memory().up | with_memory().down | bit(Var::hbm);
  std::vector<Expr> bounds;
  bool everywhere = kept == 0;
  const auto collect = [&](const Rule& rule) {
    for (const Part& part : rule.parts)
      if (part.reach == Reach::memory) {
        bounds.push_back(part.expr);
        everywhere = everywhere && (pool.depends_on(part.expr) & ~peak) == 0;
      }
  };
  for (const Rule& rule : require_) collect(rule);
  for (std::size_t i = 0; i < inner_.size(); ++i)
    if ((kept >> i & 1) != 0) collect(prefer_[inner_[i]]);
  if (bounds.empty() || memory <= 0) return memory;
  if (everywhere && kept_cap_) return std::min(*kept_cap_, memory);
  env[Var::hbm] = memory;
  const auto hold = [&](std::int64_t bytes) {
    env[Var::peak] = bytes;
    env[Var::headroom] = Rational::fraction(memory - bytes, memory);
    try {
      for (const Expr e : bounds)
        if (pool.eval(e, env).is_zero()) return false;
    } catch (const ArithmeticError&) {
      return false;  // it has no value here, so it is not met
    }
    return true;
  };
  std::int64_t most = -1;
  if (hold(memory)) {
    most = memory;
  } else if (hold(0)) {
    std::int64_t fails = memory;
    most = 0;
    while (fails - most > 1) {
      const std::int64_t middle = most + (fails - most) / 2;
      (hold(middle) ? most : fails) = middle;
    }
  }
  if (everywhere) kept_cap_ = most;
  return most;
}

std::vector<const Condition*> Judge::coupling(std::uint64_t kept) const {
  std::vector<const Condition*> out;
  const auto add = [&](const Rule& rule) {
    if (rule.reach == Reach::lists || rule.reach == Reach::opaque) out.push_back(rule.source);
  };
  for (const Rule& rule : require_) add(rule);
  for (std::size_t i = 0; i < inner_.size(); ++i)
    if ((kept >> i & 1) != 0) add(prefer_[inner_[i]]);
  return out;
}

bool Judge::asks_of_priced(std::uint64_t kept) const {
  for (const Rule& rule : require_)
    if (rule.reach == Reach::opaque) return true;
  for (std::size_t i = 0; i < inner_.size(); ++i)
    if ((kept >> i & 1) != 0 && prefer_[inner_[i]].reach == Reach::opaque) return true;
  return false;
}

bool Judge::bounds_time() const {
  for (const Rule& rule : require_)
    for (const Part& part : rule.parts)
      if (part.reach == Reach::time) return true;
  return false;
}

bool Judge::in_time(const Env& env) const {
  for (const Rule& rule : require_)
    for (const Part& part : rule.parts) try {
        if (part.reach == Reach::time && !part.holds(env)) return false;
      } catch (const ArithmeticError&) {
        return false;  // it has no value here, so it is not met
      }
  return true;
}

bool Judge::keeps(const Priced& p, const Env& env, std::uint64_t kept) const {
  for (std::size_t i = 0; i < inner_.size(); ++i)
    if ((kept >> i & 1) != 0 && !holds(prefer_[inner_[i]], p, env).value_or(false)) return false;
  return true;
}

double Judge::bound(Env& env, std::int64_t nanoseconds, const StepTime& at,
                    const Rational& percent) const {
  constexpr double kUnbounded = -std::numeric_limits<double>::infinity();
  if (aim_ != Aim::time) return kUnbounded;
  // Preferences add a share of the value's size: of a positive value to be made small, the bound's.
  const double factor = 1 + percent.to_double() / 100;
  if (objective_source_ == nullptr)
    return static_cast<double>(nanoseconds) * 1e-9 * factor * (1 - 1e-12);
  Priced least;
  least.time = at;
  least.time.nanoseconds = std::max<std::int64_t>(nanoseconds, 1);
  set_derived(least, env);
  double value = 0;
  try {
    value = problem_.module->pool().eval(*objective_->expr, env).to_double();
  } catch (const ArithmeticError&) {
    return kUnbounded;
  }
  const double score = minimize_ ? value : -value;
  const double slack = 1e-8 * std::abs(value);
  return (score > 0 ? score * factor : score) - slack;
}

bool Judge::report_without_value(Diagnostics& diags) const {
  for (const Rule& rule : require_) {
    if (rule.asked == 0 || rule.without_value < rule.asked) continue;
    diags
        .error(rule.source->span, fmt::format("the requirement '{}' has no value at any layout: {}",
                                              rule.source->name, rule.why))
        .with_help("a layout where a requirement has no value does not meet it");
    return true;
  }
  if (objective_why_.empty() || objective_has_value_) return false;
  diags
      .error(problem_.job->objective.span,
             fmt::format("the objective '{}' has no value at any layout that fits: {}",
                         objective_text_, objective_why_))
      .with_help("write an objective that every layout has a value of, such as step_time or peak");
  return true;
}

std::string Judge::strictest() const {
  const Rule* worst = nullptr;
  for (const Rule& rule : require_)
    if (rule.turned_away > 0 && (worst == nullptr || rule.turned_away > worst->turned_away))
      worst = &rule;
  return worst == nullptr ? "" : worst->source->name;
}

}  // namespace plimsoll
