// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// What conditions and the objective say of a layout that was priced.

#include <cmath>

#include "lang/diagnostics.hpp"
#include "planner/judge.hpp"
#include "planner/time.hpp"

namespace plimsoll {

namespace {

/// Nine decimals are more than the time model knows, and keep exact arithmetic short.
Rational rounded(double v) {
  if (!(std::abs(v) < 1e9)) throw ArithmeticError("a share of the step has no finite value");
  return Rational::fraction(static_cast<Int128>(std::llround(v * 1e9)), 1'000'000'000);
}

constexpr const char* kNoValue = "it cannot be computed there";

Rational seconds(std::int64_t nanoseconds) {
  return Rational::fraction(nanoseconds, 1'000'000'000);
}

}  // namespace

bool is_called(std::string_view item, std::string_view what) {
  return item == what || (item.size() > what.size() && item.ends_with(what) &&
                          item[item.size() - what.size() - 1] == ' ');
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

}  // namespace plimsoll
