// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// A leaf of the search: its stages' layers and recomputation, under all conditions.

#include <algorithm>
#include <cmath>

#include "lang/diagnostics.hpp"
#include "planner/coupled.hpp"
#include "planner/search.hpp"
#include "planner/segments.hpp"

namespace plimsoll {

std::int64_t Search::cutoff_of(const Entry& e) const {
  if (!full() || judge_.aim() != Aim::time) return Inner::kNoLimit;
  const Priced& worst = best_.back();
  const std::uint64_t by_time = derived_variables();
  if ((judge_.objective_variables() & by_time) == 0) {
    // The score is the outer layout's: at an equal one the time decides.
    const double gap = e.score - worst.score.to_double();
    return std::abs(gap) <= 1e-8 * std::abs(gap) + 1e-12 ? worst.time.nanoseconds : Inner::kNoLimit;
  }
  // Scores grow with the time: by as much at least as from the bound's.
  if (e.ns <= 0 || e.score <= 0) return Inner::kNoLimit;
  const double most = worst.score.to_double() / e.score * static_cast<double>(e.ns);
  // Costs and days are as the time is; others may grow more slowly.
  if (judge_.objective() != "step_time" && judge_.objective() != "cost" &&
      judge_.objective() != "days")
    return Inner::kNoLimit;
  return most < 9e18 ? static_cast<std::int64_t>(most * (1 + 1e-7)) + 1 : Inner::kNoLimit;
}

std::int64_t Search::cap_of(const Layout& l, const Entry& e) {
  Int128 memory = usable_memory(problem_, l, 0);
  for (std::int64_t i = 1; i < l.pp && !l.stage_pool.empty(); ++i)
    memory = std::max(memory, usable_memory(problem_, l, i));
  const auto bytes = static_cast<std::int64_t>(memory);
  std::int64_t cap = judge_.memory_cap(space_.env(), bytes, e.kept);
  if (options_.min_headroom) {
    const Rational most = Rational(bytes) * (Rational(1) - *options_.min_headroom);
    cap = std::min(cap, most.floor().to_int64());
  }
  return cap;
}

Rational Search::unmet_percent(const Entry& e) {
  Rational percent = judge_.unmet_percent(space_.env());
  for (std::size_t k = 0; k < judge_.inner_preferences(); ++k)
    if ((e.kept >> k & 1) == 0) percent += judge_.weight(k);
  return percent;
}

/// Without the first preference that may still be given up, without the second ….
void Search::give_up_preferences(const Entry& e) {
  for (std::uint32_t i = e.removable; i < judge_.inner_preferences(); ++i) {
    Entry less = e;
    less.kind = Entry::leaf;
    less.kept = e.kept & ~(std::uint64_t{1} << i);
    less.removable = i + 1;
    const Layout l = space_.layout(e.point);
    space_.set_env(l);
    less.score = score_bound(l, space_.env(), less.ns, unmet_percent(less));
    push(less);
  }
}

void Search::solve_leaf(const Entry& e) {
  if (e.kind == Entry::leaf) {
    if (e.removable == 0) ++result_.evaluated;  // else it was looked at with more preferences
    give_up_preferences(e);
  }
  const Layout outer = space_.layout(e.point);
  space_.set_env(outer);
  const auto& layers = space_.domains().stage_layers;
  const auto& recomputed = space_.domains().recompute_layers;
  const std::size_t first = std::max<std::size_t>(layers.size(), 1);
  const std::size_t second =
      outer.recompute == kFullRecompute ? std::max<std::size_t>(recomputed.size(), 1) : 1;
  for (std::size_t i = 0; i < first; ++i)
    for (std::size_t k = 0; k < second; ++k) {
      Layout l = outer;
      if (!layers.empty()) l.stage_layers = layers[i];
      if (!recomputed.empty() && outer.recompute == kFullRecompute)
        l.recompute_layers = recomputed[k];
      const auto pp = static_cast<std::size_t>(l.pp);
      if ((!l.stage_layers.empty() && l.stage_layers.size() != pp) ||
          (!l.recompute_layers.empty() && l.recompute_layers.size() != pp))
        continue;
      solve_with_lists(e, std::move(l));
    }
}

void Search::solve_with_lists(const Entry& e, Layout l) {
  const std::int64_t cap = cap_of(l, e);
  if (cap < 0) return;
  std::optional<InnerSolution> found;
  switch (judge_.aim()) {
    case Aim::time:
      inner_.set(l, cap);
      if (e.kind == Entry::coupled) return solve_coupled_stages(e, l, cap);
      return solve_for_time(e, l, cap);
    case Aim::memory: {
      const bool by_peak = full() && judge_.objective() == "peak" && e.kept == 0;
      const auto worst = by_peak ? static_cast<std::int64_t>(best_.back().peak_bytes) : cap;
      found = solve_for_peak(inner_, problem_, l, std::min(cap, worst));
      break;
    }
    case Aim::both:
    case Aim::opaque:
      return walk_front(e, l, cap, false);
  }
  if (!found) return;
  const Layout whole = with_lists(l, *found);
  refused_front_ = refused_front_ || (!settle(whole, e) && pricer_.any_stage_over(whole, cap));
}

/// The fastest way whose segments fit, too: where a stage's do not, it is dealt anew without what
/// that stage held.
void Search::solve_for_time(const Entry& e, const Layout& l, std::int64_t cap) {
  for (int tries = 0;; ++tries) {
    const auto found = solve(inner_, problem_, cutoff_of(e));
    if (!found) return;
    const Layout whole = with_lists(l, *found);
    if (settle(whole, e)) return;
    if (!coupling_of(e).empty()) {
      // Without the conditions that couple stages: what the best of them is at least.
      if (judge_.asks_of_priced(e.kept)) walk_front(e, l, cap, true);
      return push_coupled(e, l, found->nanoseconds);
    }
    if (!refuse_stages(whole, cap)) return;
    if (tries == kMostRefusals) return leave_open(e);
  }
}

bool Search::refuse_stages(const Layout& l, std::int64_t cap) {
  // A replay of the one is kept for the other.
  const std::vector<std::int64_t> over = pricer_.stages_over(without_recompute(l).value_or(l), cap);
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < l.pp; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t count = l.stage_layers[at] / l.vpp;
    if (std::find(over.begin(), over.end(), i) != over.end())
      inner_.refuse(i, offset, count, l.recompute_layers.empty() ? 0 : l.recompute_layers[at]);
    offset += count;
  }
  return !over.empty();
}

void Search::leave_open(const Entry& e) {
  if (!too_late(e)) undecided_ = std::min(undecided_, e.score);
}

/// Settles the ways along the front of time and peak, from the fastest to the smallest; only as far
/// as the first that meets the requirements where \a one will do.
void Search::walk_front(const Entry& e, const Layout& l, std::int64_t cap, bool one) {
  open_objective_ = open_objective_ || (!one && judge_.aim() == Aim::opaque &&
                                        (l.pp > 1 || l.recompute == kFullRecompute));
  for (std::int64_t below = cap; !must_stop();) {
    inner_.set(l, below);
    const auto next = solve(inner_, problem_, one ? cutoff_of(e) : Inner::kNoLimit);
    if (!next) return;
    const Layout whole = with_lists(l, *next);
    const bool settled = settle(whole, e);
    if (settled && one) return;
    refused_front_ = refused_front_ || (!settled && pricer_.any_stage_over(whole, cap));
    below = static_cast<std::int64_t>(pricer_.peak(whole).bytes) - 1;
  }
}

const std::vector<const Condition*>& Search::coupling_of(const Entry& e) {
  auto [at, fresh] = coupling_.try_emplace(e.kept);
  if (fresh) at->second = judge_.coupling(e.kept);
  return at->second;
}

/// Asks the solver once nothing else can be better than the time without the conditions.
void Search::push_coupled(const Entry& e, const Layout& l, std::int64_t ns) {
  Entry later = e;
  later.kind = Entry::coupled;
  later.ns = std::max(e.ns, ns);
  space_.set_env(l);
  later.score = std::max(e.score, score_bound(l, space_.env(), later.ns, unmet_percent(later)));
  push(later);
}

void Search::solve_coupled_stages(const Entry& e, const Layout& l, std::int64_t cap) {
  CoupledConditions conditions;
  for (const Condition* c : coupling_of(e)) conditions.require.push_back(c->expr);
  if (!l.stage_layers.empty()) conditions.stage_layers.push_back(l.stage_layers);
  if (!l.recompute_layers.empty()) conditions.recompute_layers.push_back(l.recompute_layers);
  if (judge_.asks_of_priced(e.kept))
    conditions.accept = [&](const InnerSolution& s) {
      const Priced p = priced(with_lists(l, s));
      return judge_.meets(p, space_.env()) && judge_.keeps(p, space_.env(), e.kept);
    };
  CoupledBudget budget;
  budget.stop = options_.stop;
  budget.units = std::min(budget.units, solver_units_);
  budget.turned_away = std::min<std::int64_t>(kTurnedAway, turned_away_);
  if (budget.units <= 0 || budget.turned_away <= 0) {
    undecided_ = std::min(undecided_, e.score);
    return;
  }
  CoupledResult result;
  for (int tries = 0;; ++tries) {
    result = solve_coupled(inner_, problem_, l, conditions, cutoff_of(e), budget);
    result_.solver_queries += result.checks;
    solver_units_ -= result.units;
    if (conditions.accept && result.status == CoupledResult::unknown) turned_away_ -= kTurnedAway;
    if (!result.best || settle(with_lists(l, *result.best), e) ||
        !refuse_stages(with_lists(l, *result.best), cap))
      break;
    if (tries == kMostRefusals || solver_units_ <= 0) return leave_open(e);
    budget.units = std::min(budget.units, solver_units_);
  }
  if (result.status != CoupledResult::unknown) return;
  // What the solver could not decide bounds the answer from below, and nothing more.
  Entry open = e;
  open.ns = std::max(e.ns, result.lower_bound);
  if (!too_late(open)) undecided_ = std::min(undecided_, e.score);
}

Priced Search::priced(const Layout& l) {
  Priced p;
  p.layout = l;
  p.time = clock_.step(l);
  p.set_peak(pricer_.peak(l));
  space_.set_env(l);
  judge_.set_derived(p, space_.env());
  return p;
}

bool Search::settle(const Layout& l, const Entry& e) {
  if (without_recompute(l)) return false;
  Priced p = priced(l);
  if (p.peak_bytes > p.hbm_bytes)
    throw InternalError("a layout that the search chose does not fit");
  if (!judge_.meets(p, space_.env()) || !judge_.keeps(p, space_.env(), e.kept)) {
    if (best_.empty() && !result_.tightest) result_.tightest = p;
    return false;
  }
  const bool scored = judge_.score(p, space_.env());
  // Segments are replayed of what would be among the best, and only of that.
  const bool kept = scored && (!full() || better(p, best_.back()));
  if (kept && !holds_replayed(p, e)) return false;
  ++result_.feasible_count;
  if (kept) remember(std::move(p));
  return scored;
}

bool Search::holds_replayed(const Priced& p, const Entry& e) {
  if (!replays(problem_)) return true;
  space_.set_env(p.layout);
  const bool fits = !pricer_.any_stage_over(p.layout, cap_of(p.layout, e));
  // The limit stands for all conditions on the peak but those that only a priced layout decides.
  if (fits && !judge_.asks_of_priced(e.kept)) return true;
  refused_ = refused_ || !fits;
  const bool tells = best_.empty() && !result_.tightest;
  if (!fits) {
    if (tells) result_.tightest = p;
    return false;
  }
  Priced exact = p;
  exact.set_peak(pricer_.exact(p.layout));
  judge_.set_derived(exact, space_.env());
  if (judge_.meets(exact, space_.env()) && judge_.keeps(exact, space_.env(), e.kept)) return true;
  if (tells) result_.tightest = std::move(exact);
  return false;
}

void Search::set_exact(Priced& p) {
  if (!replays(problem_)) return;
  p.set_peak(pricer_.exact(p.layout));
  space_.set_env(p.layout);
  judge_.set_derived(p, space_.env());
  judge_.score(p, space_.env());
}

/// Of full recomputation of no layer: the same without recomputation, where that is looked at too.
std::optional<Layout> Search::without_recompute(const Layout& l) {
  if (l.recompute != kFullRecompute ||
      std::any_of(l.recompute_layers.begin(), l.recompute_layers.end(),
                  [](std::int64_t n) { return n > 0; }))
    return std::nullopt;
  Layout none = l;
  none.recompute = 0;
  none.recompute_layers.clear();
  space_.set_env(none);
  const std::vector<std::int64_t> modes =
      space_.domains().values(Knob::recompute, none, space_.env(), Space::core_variables());
  if (std::find(modes.begin(), modes.end(), 0) == modes.end() ||
      !judge_.admits(space_.env(), ~derived_variables(), 0))
    return std::nullopt;
  return none;
}

void Search::make_roomy(Priced& p) {
  const auto& domains = space_.domains();
  if (problem_.job->serve || judge_.aim() != Aim::time || p.layout.pp == 1 ||
      !judge_.coupling((std::uint64_t{1} << judge_.inner_preferences()) - 1).empty() ||
      !domains.stage_layers.empty() || !domains.recompute_layers.empty() ||
      p.layout.stage_layers == default_stage_layers(problem_.program->layer_count, p.layout.pp))
    return;
  const Priced found_first = p;
  Layout outer = p.layout;
  outer.stage_layers.clear();
  outer.recompute_layers.clear();
  std::int64_t fits = static_cast<std::int64_t>(p.peak_bytes), fails = -1;
  // With unlike memories the peak is not the most that any stage holds.
  if (problem_.cluster->pools.size() > 1) return;
  while (fits - fails > 1) {
    const std::int64_t middle = fails + (fits - fails) / 2;
    inner_.set(outer, middle);
    const auto found = solve(inner_, problem_, p.time.nanoseconds);
    if (!found) {
      fails = middle;
      continue;
    }
    p.layout = with_lists(outer, *found);
    p.set_peak(pricer_.peak(p.layout));
    fits = static_cast<std::int64_t>(p.peak_bytes);
  }
  // Of those with that peak, the first.
  inner_.set(outer, fits);
  if (const auto first = solve(inner_, problem_, p.time.nanoseconds))
    p.layout = with_lists(outer, *first);
  if (replays(problem_) &&
      pricer_.exact(p.layout).bytes > pricer_.exact(found_first.layout).bytes) {
    p = found_first;
    return;
  }
  space_.set_env(p.layout);
  judge_.set_derived(p, space_.env());
  judge_.score(p, space_.env());
  p.time = clock_.step(p.layout);
}

}  // namespace plimsoll
