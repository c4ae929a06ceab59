// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/feasible.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lang/conditions.hpp"
#include "lang/diagnostics.hpp"
#include "lang/units.hpp"
#include "planner/stage_cost.hpp"
#include "planner/thrifty.hpp"

namespace plimsoll {
namespace {

constexpr CategoryMask mask(Category c) { return CategoryMask{1} << static_cast<unsigned>(c); }
constexpr Category kStates[] = {Category::weights, Category::gradients, Category::master,
                                Category::moments};
constexpr std::int64_t kEndless = std::int64_t{1} << 40;  ///< ranks that share states

/// One thrifty layout with its layers dealt so that it fits, priced; nullopt where that cannot be.
std::optional<Priced> fitted(const Problem& problem, const Layout& outer, Inner& inner,
                             Clock& clock, Pricer& pricer, Judge& judge, Env& env) {
  if (!set_within_memory(inner, problem, outer, judge, env) || !can_fit(inner)) return std::nullopt;
  const auto fastest = solve(inner, problem);
  if (!fastest) return std::nullopt;
  Priced p;
  p.layout = with_lists(outer, *fastest);
  p.time = clock.step(p.layout);
  const Pricer::Peak peak = pricer.peak(p.layout);
  if (!peak.fits) return std::nullopt;
  if (pricer.any_stage_over(p.layout, Inner::kNoLimit)) return std::nullopt;
  const Pricer::Peak exact = pricer.exact(p.layout);
  if (!exact.fits) return std::nullopt;
  p.set_peak(exact);
  judge.set_derived(p, env);
  if (!judge.meets(p, env)) return std::nullopt;
  judge.score(p, env);
  return p;
}

/// The largest value that the job leaves to a variable, at most \a otherwise where it names none:
/// what its own values and the requirements that read nothing else admit. nullopt where that is
/// none, or not a plain number.
std::optional<std::int64_t> largest(const Problem& problem, Var v, std::int64_t otherwise) {
  const ExprPool& pool = problem.module->pool();
  std::vector<std::int64_t> values;
  const auto given = problem.job->layout.find(std::string(name(v)));
  if (given == problem.job->layout.end()) {
    for (std::int64_t i = 0; i <= otherwise; ++i) values.push_back(i);
  } else {
    for (const eval::Value& value : given->second.values) {
      const auto* n = value.as<eval::Number>();
      if (n == nullptr || !pool.is_constant(n->expr)) return std::nullopt;
      values.push_back(pool.value(n->expr).floor().to_int64());
    }
  }
  Diagnostics said;
  const auto admitted = [&](std::int64_t value) {
    Env env;
    env[v] = Rational(value);
    for (const Condition& c : problem.job->require) {
      const auto lowered = lower_condition(*problem.module, *problem.job, *c.expr, said);
      if (!lowered || !lowered->expr ||
          lowered->variables != std::uint64_t{1} << static_cast<unsigned>(v))
        continue;
      try {
        if (pool.eval(*lowered->expr, env).is_zero()) return false;
      } catch (const ArithmeticError&) {
        return false;
      }
    }
    return true;
  };
  std::optional<std::int64_t> most;
  for (const std::int64_t value : values)
    if ((!most || value > *most) && admitted(value)) most = value;
  return most;
}

/// The layout at which a rank holds the least of the states, whatever the GPUs are; nullopt where
/// the job leaves no such.
std::optional<Layout> most_divided(const Problem& problem) {
  std::int64_t experts = 1;
  for (const Op& op : problem.program->ops)
    if (op.kind == OpKind::experts) experts = std::max(experts, op.count);
  const auto tp = largest(problem, Var::tp, problem.cluster->nvlink_domain);
  const auto pp = largest(problem, Var::pp, problem.program->layer_count);
  const auto ep = largest(problem, Var::ep, experts);
  const auto zero = largest(problem, Var::zero, 3);
  const bool offloads = problem.job->layout.contains("offload");
  if (!tp || !pp || !ep || !zero || offloads) return std::nullopt;
  Layout l;
  l.tp = std::max<std::int64_t>(*tp, 1);
  l.pp = std::clamp<std::int64_t>(*pp, 1, problem.program->layer_count);
  l.ep = std::max<std::int64_t>(*ep, 1);
  l.etp = experts > 1 ? l.tp : 1;
  l.zero = static_cast<int>(*zero);
  l.seq = problem.job->seq.is_zero() ? 1024 : problem.job->seq.to_int64();
  l.batch = 1;
  l.nodes = 1;
  l.shard = kEndless;
  l.sp = l.tp > 1;
  return l;
}

std::string in_words(const Problem& problem, const Layout& l, const StageBill& stage) {
  std::string at, of;
  const auto degree = [&](const char* what, std::int64_t value, bool always) {
    if (always || value > 1) at += fmt::format("{}{} {}", at.empty() ? "" : ", ", what, value);
  };
  degree("tp", l.tp, true);
  degree("pp", l.pp, true);
  degree("ep", l.ep, false);
  degree("zero", l.zero, true);
  Int128 sum = 0;
  for (const Category c : kStates) {
    const Int128 bytes = stage.categories[static_cast<std::size_t>(c)];
    sum += bytes;
    if (bytes < stage.hbm_bytes / 100) continue;
    of += fmt::format("{}{} {}", of.empty() ? "" : ", ", name(c), human_bytes(bytes));
  }
  return fmt::format(
      "at {}, the most that the job allows, a GPU of '{}' with {} still holds {} ({}), however "
      "many "
      "ranks share them",
      at, problem.cluster->name, human_bytes(stage.hbm_bytes), human_bytes(sum), of);
}

}  // namespace

std::optional<Priced> any_fit(const Problem& problem) {
  Diagnostics ignored;  // compile() has reported what is wrong with conditions
  if (problem.job->serve || !check_rates(*problem.module, *problem.job, ignored))
    return std::nullopt;
  Clock clock(problem);
  Pricer pricer(problem);
  Judge judge(problem, pricer, ignored);
  Space space(problem, judge);
  Inner inner(problem, clock);
  std::optional<Priced> found;
  thrifty_layouts(space, [&](const Layout& l) {
    try {
      found = fitted(problem, l, inner, clock, pricer, judge, space.env());
    } catch (const ArithmeticError&) {
      // It has no price; another may.
    }
    return !found.has_value();
  });
  if (found) found->unmet.clear();
  return found;
}

std::string why_never(const Problem& problem) {
  if (problem.job->serve || problem.cluster->pools.size() > 1) return "";
  try {
    std::optional<Layout> l = most_divided(problem);
    if (!l) return "";
    CategoryMask counted = 0;
    for (const Category c : kStates) counted |= mask(c);
    Clock clock(problem);
    Inner inner(problem, clock, counted);
    const auto least = solve_for_peak(inner, problem, *l);
    if (!least) return "";
    l = with_lists(*l, *least);
    StageBill stage = Pricer(problem).lines(*l);
    stage.hbm_bytes = usable_memory(problem, *l, 0);
    Int128 states = 0;
    for (const Category c : kStates) states += stage.categories[static_cast<std::size_t>(c)];
    return states > stage.hbm_bytes ? in_words(problem, *l, stage) : "";
  } catch (const ArithmeticError&) {
    return "";
  }
}

}  // namespace plimsoll
