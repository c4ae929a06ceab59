// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/search.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "lang/diagnostics.hpp"
#include "planner/thrifty.hpp"

namespace plimsoll {

namespace {

/// Stages as even as can be, and where layers are recomputed, all of them.
bool usual_lists(const Layout& l) {
  std::int64_t layers = 0;
  for (const std::int64_t n : l.stage_layers) layers += n;
  return l.stage_layers == default_stage_layers(layers, l.pp) &&
         (l.recompute_layers.empty() || l.recompute_layers == l.stage_layers);
}

/// What a person would rather not have to set, counted; then the values in a fixed order.
auto tie_key(const Layout& l) {
  const int knobs = (l.tp != 1) + (l.pp != 1) + (l.cp != 1) + (l.ep != 1) + (l.etp != 1) +
                    (l.vpp != 1) + (l.zero != 0) + (l.shard != l.dp * l.cp) + (l.recompute != 0) +
                    static_cast<int>(l.sp) + (l.schedule != Schedule::one_f_one_b) +
                    (l.offload.sign() != 0) + static_cast<int>(!usual_lists(l));
  return std::make_tuple(knobs, l.nodes, l.tp, l.pp, l.cp, l.ep, l.etp, l.vpp, l.zero, l.shard,
                         l.recompute, l.sp, static_cast<int>(l.schedule), l.offload, -l.mbs,
                         -l.batch, -l.seq, l.stage_layers, l.recompute_layers);
}

/// Do they differ in nothing but what stages hold?
bool same_outside(const Layout& a, const Layout& b) {
  const auto key = [](const Layout& l) {
    return std::make_tuple(l.nodes, l.seq, l.batch, l.tp, l.cp, l.pp, l.ep, l.etp, l.vpp, l.mbs,
                           l.sp, l.zero, l.shard, l.recompute, static_cast<int>(l.schedule),
                           l.offload, l.stage_pool);
  };
  return key(a) == key(b);
}

}  // namespace

bool better(const Priced& a, const Priced& b) {
  if (a.score != b.score) return a.score < b.score;
  if (a.time.nanoseconds != b.time.nanoseconds) return a.time.nanoseconds < b.time.nanoseconds;
  return tie_key(a.layout) < tie_key(b.layout);
}

PointKey key_of(const Point& p) {
  return {p.seq,
          p.batch,
          p.mbs,
          p.tp,
          p.pp,
          p.cp,
          p.ep,
          p.etp,
          p.vpp,
          p.dp,
          p.nodes,
          p.shard,
          p.offload,
          p.zero,
          p.recompute,
          p.schedule,
          p.sp + 2 * p.pools};
}
PointKey core_key(Point p) {
  p.shard = p.offload = 0;
  p.zero = p.recompute = p.schedule = p.sp = 0;
  p.pools = 0;
  return key_of(p);
}

void Search::push(Entry e) {
  if (too_late(e)) return;
  e.number = numbered_++;
  heap_.push_back(e);
  std::push_heap(heap_.begin(), heap_.end(), Later{});
}

double Search::score_bound(const Layout& l, Env& env, std::int64_t ns,
                           const Rational& percent) const {
  const StepTime at =
      problem_.job->serve ? StepTime{} : const_cast<Clock&>(clock_).throughput(l, ns);
  return judge_.bound(env, ns, at, percent);
}

void Search::push_core(const Layout& l, Env& env) {
  Entry e;
  e.point = space_.point(l);
  result_.space += space_.leaf_count(e.point);
  bound_core(l, env, e);
  if (options_.proof) cores_.emplace(core_key(e.point), false);
  push(e);
}

void Search::bound_core(const Layout& l, Env& env, Entry& e) {
  space_.set_env(l);
  e.score = -kInfinity;
  try {
    if (!problem_.job->serve) {
      constexpr std::uint64_t bit_of_schedule = std::uint64_t{1}
                                                << static_cast<unsigned>(Var::schedule);
      e.ns = Inner::kNoLimit;
      Layout core = l;
      Env scratch = env;
      for (const std::int64_t s :
           space_.domains().values(Knob::schedule, core, scratch, Space::core_variables())) {
        core.schedule = static_cast<Schedule>(s);
        scratch[Var::schedule] = s;
        if (!judge_.would_admit(scratch, Space::core_variables() | bit_of_schedule,
                                Space::core_variables()))
          continue;
        e.ns = std::min(e.ns, clock_.core_bound(core));
      }
      if (e.ns == Inner::kNoLimit) {  // no schedule is admitted: no leaf is
        e.score = kInfinity;
        return;
      }
      const std::uint64_t known = Space::core_variables() | derived_variables();
      if ((judge_.objective_variables() & ~known) == 0) e.score = score_bound(l, env, e.ns, 0);
    }
  } catch (const ArithmeticError&) {
    e.score = -kInfinity;  // settle() says what is wrong
    e.ns = 0;
  }
}

void Search::push_leaf(const Layout& l, Env& env) {
  Entry e;
  e.kind = Entry::leaf;
  e.point = space_.point(l);
  e.kept = (std::uint64_t{1} << judge_.inner_preferences()) - 1;
  bound_leaf(l, env, e);
  push(e);
}

void Search::bound_leaf(const Layout& l, Env& env, Entry& e) {
  try {
    e.ns = problem_.job->serve ? 0 : clock_.lower_bound(l);
    e.score = score_bound(l, env, e.ns, judge_.unmet_percent(env));
  } catch (const ArithmeticError&) {
    e.score = -kInfinity;
    e.ns = 0;
  }
}

bool Search::too_late(const Entry& e) const {
  if (!full()) return false;
  const double worst = best_.back().score.to_double();
  const double slack = 1e-8 * std::abs(worst);
  if (e.score > worst + slack) return true;
  // Equal scores: the faster one is better. Of objectives that do not follow from the time.
  return e.score >= worst - slack && e.ns > best_.back().time.nanoseconds;
}

bool Search::must_stop() {
  if (options_.budget && result_.evaluated + result_.solver_queries >= *options_.budget)
    return true;
  if (options_.stop && options_.stop()) {
    result_.stopped = true;
    return true;
  }
  return options_.first_fit && !best_.empty();
}

void Search::remember(Priced p) {
  const auto same = std::find_if(best_.begin(), best_.end(), [&](const Priced& other) {
    return same_outside(other.layout, p.layout);
  });
  if (same != best_.end()) {
    if (!better(p, *same)) return;
    best_.erase(same);
  }
  const auto at = std::upper_bound(best_.begin(), best_.end(), p, better);
  best_.insert(at, std::move(p));
  if (static_cast<std::int64_t>(best_.size()) > keep_) best_.pop_back();
}

/// As many sequences as fit, of those that the job asks for: its largest number that fits, else its
/// smallest, which does not.
bool Search::price_serving(Priced& p) {
  std::vector<std::int64_t> asked = space_.domains().sequences(space_.env());
  if (asked.empty()) asked.push_back(0);
  Bill b;
  for (auto it = asked.rbegin(); it != asked.rend(); ++it) {
    p.layout.sequences = *it;
    b = bill(problem_, p.layout);
    if (b.fits && b.sequences > 0) break;
  }
  p.peak_bytes = b.peak_bytes;
  p.hbm_bytes = b.hbm_bytes;
  p.peak_stage = b.peak_stage;
  p.layout.sequences = b.sequences;
  return b.fits && b.sequences > 0;
}

void Search::serve(const Entry& e) {
  ++result_.evaluated;
  Priced p;
  p.layout = space_.layout(e.point);
  p.layout.stage_layers = default_stage_layers(problem_.program->layer_count, p.layout.pp);
  space_.set_env(p.layout);
  const bool fits = price_serving(p);
  if (fits) judge_.set_derived(p, space_.env());
  if (!fits || !judge_.meets(p, space_.env())) {
    const auto used = [](const Priced& x) {
      return Rational::fraction(x.peak_bytes, std::max<Int128>(x.hbm_bytes, 1));
    };
    if (best_.empty() && (!result_.tightest || used(p) < used(*result_.tightest)))
      result_.tightest = p;
    return;
  }
  ++result_.feasible_count;
  if (judge_.score(p, space_.env())) remember(std::move(p));
}

void Search::look_into(const Entry& e) {
  try {
    if (options_.proof && e.kind == Entry::core) cores_[core_key(e.point)] = true;
    if (options_.proof && e.kind != Entry::core) settled_.insert(key_of(e.point));
    if (e.kind == Entry::core)
      space_.leaves(e.point, [&](const Layout& l, Env& env) { push_leaf(l, env); });
    else if (problem_.job->serve)
      serve(e);
    else
      solve_leaf(e);
  } catch (const ArithmeticError& error) {
    if (unpriced_.empty())
      unpriced_ = fmt::format("{} ({})", error.what(), describe(problem_, space_.layout(e.point)));
  }
}

bool Search::report_without_value() {
  if (judge_.report_without_value(diags_)) return true;
  if (unpriced_.empty() || result_.tightest) return false;
  diags_
      .error(problem_.job->span,
             fmt::format("no layout of '{}' can be priced: {}", problem_.job->name, unpriced_))
      .with_help("a number of the job, its model or its cluster is too large or too small");
  return true;
}

PlanResult Search::run() {
  result_.minimize = judge_.minimize();
  result_.objective = judge_.objective();
  keep_ = options_.first_fit ? 1 : std::max<std::int64_t>(options_.top, 1);
  space_.cores([&](const Layout& l, Env& env) { push_core(l, env); });
  bool complete = true;
  double bound = kInfinity;
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), Later{});
    const Entry e = heap_.back();
    heap_.pop_back();
    if (too_late(e)) break;
    if (must_stop()) {
      complete = false;
      bound = e.score;
      break;
    }
    look_into(e);
  }
  // What the solver left open matters where something better may be in it.
  if (undecided_ < bound && (best_.empty() || undecided_ < best_.front().score.to_double())) {
    complete = false;
    bound = undecided_;
  }
  return finish(complete, bound);
}

PlanResult Search::finish(bool complete, double bound) {
  if (best_.empty()) {
    result_.status = complete ? PlanResult::infeasible : PlanResult::unknown;
    result_.emptied_by = judge_.strictest();
    if (result_.evaluated == 0) result_.why = space_.most_frequent_reason();
    if (complete && !problem_.job->serve && (!result_.tightest || refused_)) find_tightest();
    if (refused_ && result_.tightest)
      result_.tightest->set_peak(pricer_.exact(result_.tightest->layout));
    if (complete && report_without_value()) return {};
    return std::move(result_);
  }
  for (Priced& p : best_) make_roomy(p);
  for (Priced& p : best_) set_exact(p);
  std::stable_sort(best_.begin(), best_.end(), better);
  result_.tightest.reset();
  if (complete && refused_front_)
    result_.unproven =
        "segments ruled out ways to deal layers, and of some layouts no others were looked at";
  if (complete && open_objective_)
    result_.unproven = fmt::format(
        "'{}' follows neither from the step time nor from the peak: of each layout, the ways to "
        "deal "
        "its layers that are best in those were looked at",
        judge_.objective());
  if (complete && undecided_ < kInfinity && result_.unproven.empty() &&
      undecided_ < best_.front().score.to_double())
    result_.unproven = "the solver left some layouts undecided";
  complete = complete && result_.unproven.empty();
  if (result_.unproven.empty() && !complete && !result_.stopped && undecided_ < kInfinity)
    result_.unproven = "the solver left some layouts undecided";
  result_.status = complete ? PlanResult::optimal : PlanResult::feasible;
  if (!complete) {
    const double best = best_.front().score.to_double();
    result_.lower_bound = bound;
    result_.gap = best == 0 || bound == -kInfinity ? kInfinity
                                                   : std::max(0.0, (best - bound) / std::abs(best));
  }
  result_.best = std::move(best_.front());
  result_.alternatives.assign(std::make_move_iterator(best_.begin() + 1),
                              std::make_move_iterator(best_.end()));
  best_.clear();
  if (options_.proof && complete && !problem_.job->serve) prove();
  return std::move(result_);
}

/// Where nothing fits: the layout that needs the least memory.
void Search::find_tightest() {
  auto least = least_of_all(inner_, problem_, space_);
  if (!least && problem_.job->layout.contains("offload")) {
    inner_.limit_host(false);
    least = least_of_all(inner_, problem_, space_);
  }
  if (!least) return;
  Priced p;
  p.layout = least->layout;
  p.set_peak(pricer_.exact(p.layout));
  result_.tightest = std::move(p);
}

}  // namespace plimsoll
