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

/// Nine decimals are more than the time model knows, and keep exact arithmetic short.
Rational rounded(double v) {
  if (!(std::abs(v) < 1e9)) throw ArithmeticError("a share of the step has no finite value");
  return Rational::fraction(static_cast<Int128>(std::llround(v * 1e9)), 1'000'000'000);
}

/// Preferences that a search may insist on: a bit each. Further ones count where they happen to
/// hold.
constexpr std::size_t kMostInner = 62;

constexpr const char* kNoValue = "it cannot be computed there";

Rational seconds(std::int64_t nanoseconds) {
  return Rational::fraction(nanoseconds, 1'000'000'000);
}

/// "logits" calls the item "logits", and what an op saves: "cross_entropy logits".
bool is_called(std::string_view item, std::string_view what) {
  return item == what || (item.size() > what.size() && item.ends_with(what) &&
                          item[item.size() - what.size() - 1] == ' ');
}

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

bool Judge::would_admit(const Env& env, std::uint64_t known, std::uint64_t before) const {
  const ExprPool& pool = problem_.module->pool();
  for (const Rule& rule : require_)
    for (const Part& part : rule.parts) {
      const std::uint64_t reads = pool.depends_on(part.expr);
      if (part.reach != Reach::outer || (reads & ~known) != 0) continue;
      if (before != 0 && (reads & ~before) == 0) continue;  // decided already
      try {
        if (!part.holds(env)) return false;
      } catch (const ArithmeticError&) {
        return false;
      }
    }
  return true;
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

bool Judge::admits(const Env& env, std::uint64_t known, std::uint64_t before) {
  const ExprPool& pool = problem_.module->pool();
  for (Rule& rule : require_) {
    for (const Part& part : rule.parts) {
      const std::uint64_t reads = pool.depends_on(part.expr);
      if (part.reach != Reach::outer || (reads & ~known) != 0) continue;
      if (before != 0 && (reads & ~before) == 0) continue;  // decided already
      bool ok = false;
      ++rule.asked;
      try {
        ok = part.holds(env);
      } catch (const ArithmeticError& e) {
        // It has no value here, so it is not met.
        ++rule.without_value;
        rule.why = e.what();
      }
      if (ok) continue;
      ++rule.turned_away;
      last_ = rule.source->name;
      return false;
    }
  }
  return true;
}

void Judge::set_derived(const Priced& p, Env& env) const {
  env[Var::peak] = Rational::fraction(p.peak_bytes, 1);
  env[Var::hbm] = Rational::fraction(p.hbm_bytes, 1);
  env[Var::headroom] =
      p.hbm_bytes > 0 ? Rational::fraction(p.hbm_bytes - p.peak_bytes, p.hbm_bytes) : Rational(0);
  env[Var::sequences] = p.layout.sequences;
  if (p.time.nanoseconds <= 0) return;
  env[Var::step_time] = seconds(p.time.nanoseconds);
  env[Var::bubble] = rounded(p.time.bubble_share);
  env[Var::mfu] = rounded(p.time.mfu);
  env[Var::tokens_per_second] = env[Var::batch] * env[Var::seq] / env[Var::step_time];
  if (problem_.job->tokens.is_zero()) return;
  const Rational run =
      problem_.job->tokens / (env[Var::batch] * env[Var::seq]) * env[Var::step_time];
  env[Var::days] = run / Rational(86'400);
  Rational price = 0;
  for (const Pool& pool : problem_.cluster->pools) {
    const Rational gpus = problem_.cluster->pools.size() == 1
                              ? env[Var::gpus]
                              : Rational(pool.nodes.front()) * Rational(pool.gpus_per_node);
    price += pool.gpu.price * gpus;
  }
  env[Var::cost] = price * run;
}

LayoutValues Judge::values(const Priced& p, const Env& env) const {
  LayoutValues out;
  out.env = env;
  out.stage_layers = p.layout.stage_layers;
  out.recompute_layers = p.layout.recompute_layers;
  // Lists have an entry a stage: where nothing is recomputed by layers, each is 0.
  if (out.recompute_layers.empty()) out.recompute_layers.assign(out.stage_layers.size(), 0);
  for (const std::uint32_t pool : p.layout.stage_pool)
    out.stage_pool.push_back(problem_.cluster->pools[pool].name);
  out.bytes = [this, &p, stage = std::optional<StageBill>{}](
                  std::string_view what) mutable -> std::optional<Int128> {
    // Conditions ask for several names of one layout.
    if (!stage) {
      if (problem_.job->serve) {
        const Bill full = bill(problem_, p.layout);
        stage = full.stages[static_cast<std::size_t>(full.peak_stage)];
      } else {
        stage = pricer_.lines(p.layout);
      }
    }
    for (std::size_t c = 0; c < kCategoryCount; ++c)
      if (name(static_cast<Category>(c)) == what) return stage->categories[c];
    std::optional<Int128> sum;
    for (const Item& item : problem_.inventory.items)
      if (is_called(item.name, what)) sum = 0;
    for (const BillLine& line : stage->lines)
      if (is_called(line.name, what)) sum = sum.value_or(0) + line.bytes;
    return sum;
  };
  return out;
}

std::optional<bool> Judge::holds(const Rule& rule, const Priced& p, const Env& env) const {
  try {
    if (rule.lowered.expr) return !problem_.module->pool().eval(*rule.lowered.expr, env).is_zero();
    const auto holds =
        eval_condition(*problem_.module, *problem_.job, *rule.source->expr, values(p, env));
    if (holds) return holds;
    rule.why = kNoValue;
  } catch (const ArithmeticError& e) {
    rule.why = e.what();
  }
  ++rule.without_value;
  return std::nullopt;
}

std::vector<const Condition*> Judge::broken(const Priced& p, const Env& env) const {
  std::vector<const Condition*> list;
  for (const Rule& rule : require_)
    if (!holds(rule, p, env).value_or(false)) list.push_back(rule.source);
  return list;
}

std::vector<const Condition*> broken_requirements(const Problem& problem, const Layout& layout,
                                                  const Bill& priced) {
  if (problem.job->require.empty()) return {};
  Diagnostics said;  // compile() has reported what is wrong with conditions
  Pricer pricer(problem);
  const Judge judge(problem, pricer, said);
  Priced p;
  p.layout = layout;
  p.peak_bytes = priced.peak_bytes;
  p.hbm_bytes = priced.hbm_bytes;
  p.peak_stage = priced.peak_stage;
  if (!problem.job->serve && check_rates(*problem.module, *problem.job, said))
    p.time = Clock(problem).step(layout);
  Env env = environment(problem, layout, 0);
  judge.set_derived(p, env);
  return judge.broken(p, env);
}

bool Judge::meets(const Priced& p, const Env& env) {
  for (const bool slow : {false, true})  // those that need lists or a bill come last
    for (Rule& rule : require_) {
      if (rule.lowered.expr.has_value() == slow) continue;
      if (rule.reach == Reach::outer) continue;
      ++rule.asked;
      if (!holds(rule, p, env).value_or(false)) {
        ++rule.turned_away;
        return false;
      }
    }
  return true;
}

std::optional<Rational> Judge::value_of_objective(const Priced& p, const Env& env) const {
  if (objective_source_ == nullptr)
    return problem_.job->serve ? Rational(p.layout.sequences) : env[Var::step_time];
  try {
    if (objective_ && objective_->expr) return problem_.module->pool().eval(*objective_->expr, env);
    const auto value =
        eval_number(*problem_.module, *problem_.job, *objective_source_, values(p, env));
    if (value) return value;
    objective_why_ = kNoValue;
  } catch (const ArithmeticError& e) {
    objective_why_ = e.what();
  }
  return std::nullopt;
}

bool Judge::score(Priced& p, const Env& env) const {
  const std::optional<Rational> value = value_of_objective(p, env);
  if (!value) return false;
  objective_has_value_ = true;
  Rational percent = 0;
  p.unmet.clear();
  for (const Rule& rule : prefer_)
    if (!holds(rule, p, env).value_or(false)) {
      percent += rule.source->weight;
      p.unmet.push_back(rule.source);
    }
  p.value = *value;
  p.score = (minimize_ ? *value : -*value) + value->abs() * percent / Rational(100);
  if (!problem_.job->tokens.is_zero() && !problem_.job->serve) {
    p.days = env[Var::days];
    if (env[Var::cost].sign() > 0) p.cost = env[Var::cost];
  }
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
