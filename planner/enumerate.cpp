// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/enumerate.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "lang/diagnostics.hpp"
#include "planner/coupled.hpp"
#include "planner/inner.hpp"
#include "planner/judge.hpp"
#include "planner/space.hpp"
#include "planner/thrifty.hpp"
#include "planner/time_constants.hpp"

namespace plimsoll {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// What one search may ask of the solver in all, in its own units (some seconds), and how many ways
/// of dealing layers a condition that only a priced layout decides may turn away: of one outer
/// layout, and in all. Past that the answer is the best found, with a gap.
constexpr std::int64_t kSolverUnits = 40'000'000;
constexpr std::int64_t kTurnedAway = 16;
constexpr std::int64_t kMostTurnedAway = 800;

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

bool better(const Priced& a, const Priced& b) {
  if (a.score != b.score) return a.score < b.score;
  if (a.time.nanoseconds != b.time.nanoseconds) return a.time.nanoseconds < b.time.nanoseconds;
  return tie_key(a.layout) < tie_key(b.layout);
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

/// Something that waits to be looked into.
struct Entry {
  enum Kind : std::uint8_t { core, leaf, coupled } kind = core;
  double score = 0;             ///< no layout in it scores less
  std::int64_t ns = 0;          ///< nor takes fewer nanoseconds a step
  std::uint64_t kept = 0;       ///< inner preferences that a layout must meet
  std::uint32_t removable = 0;  ///< inner preferences from this one on may still be given up
  std::uint64_t number = 0;     ///< in the order of enumeration
  Point point;
};

struct Later {
  bool operator()(const Entry& a, const Entry& b) const {
    return std::tie(a.score, a.ns, a.number) > std::tie(b.score, b.ns, b.number);
  }
};

class Search {
 public:
  Search(const Problem& problem, const PlanOptions& options, Diagnostics& diags)
      : problem_(problem),
        options_(options),
        clock_(problem),
        pricer_(problem),
        judge_(problem, pricer_, diags),
        space_(problem, judge_),
        inner_(problem, clock_),
        diags_(diags) {}

  PlanResult run();

 private:
  void push(Entry);
  void push_core(const Layout&, Env&);
  void push_leaf(const Layout&, Env&);
  double score_bound(const Layout&, Env&, std::int64_t ns, const Rational& percent) const;
  /// Can nothing in it be among the best any more?
  bool too_late(const Entry&) const;
  /// True where the search must end before all is looked at.
  bool must_stop();
  void look_into(const Entry&);
  void solve_leaf(const Entry&);
  void solve_with_lists(const Entry&, Layout);
  const std::vector<const Condition*>& coupling_of(const Entry&);
  void walk_front(const Entry&, const Layout&, std::int64_t cap, bool one);
  void push_coupled(const Entry&, const Layout&, std::int64_t ns);
  void solve_coupled_stages(const Entry&, const Layout&);
  /// Prices what was found; false where it breaks a requirement.
  bool settle(const Layout&, const Entry&);
  Priced priced(const Layout&);
  bool is_without_recompute(const Layout&);
  void give_up_preferences(const Entry&);
  std::int64_t cap_of(const Layout&, const Entry&);
  std::int64_t cutoff_of(const Entry&) const;
  bool price_serving(Priced&);
  void serve(const Entry&);
  /// Errors of a search that found nothing because nothing could be computed.
  bool report_without_value();
  void remember(Priced);
  bool full() const { return static_cast<std::int64_t>(best_.size()) >= keep_; }
  void find_tightest();
  /// Of equally fast ways to deal the layers of a layout, the one with the smallest peak, unless it
  /// is the usual one or conditions couple stages.
  void make_roomy(Priced&);
  PlanResult finish(bool complete, double bound);

  const Problem& problem_;
  const PlanOptions& options_;
  Clock clock_;
  Pricer pricer_;
  Judge judge_;
  Space space_;
  Inner inner_;
  Diagnostics& diags_;
  std::int64_t keep_ = 1;

  std::vector<Entry> heap_;
  std::uint64_t numbered_ = 0;
  const Entry* from_ = nullptr;  ///< the core whose leaves are being pushed
  std::vector<Priced> best_;     ///< sorted
  std::map<std::uint64_t, std::vector<const Condition*>> coupling_;  ///< by preferences kept
  std::int64_t solver_units_ = kSolverUnits, turned_away_ = kMostTurnedAway;  ///< left
  /// Ways off the front of time and peak were not looked at, and the objective may like them.
  bool open_objective_ = false;
  double undecided_ = kInfinity;  ///< the least score of what the solver left open
  std::string unpriced_;         ///< why the first layout without a price has none
  PlanResult result_;
};

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
  space_.set_env(l);
  e.score = -kInfinity;
  try {
    if (!problem_.job->serve) {
      e.ns = Inner::kNoLimit;
      Layout core = l;
      Env scratch = env;
      for (const std::int64_t s :
           space_.domains().values(Knob::schedule, core, scratch, Space::core_variables())) {
        core.schedule = static_cast<Schedule>(s);
        e.ns = std::min(e.ns, clock_.core_bound(core));
      }
      const std::uint64_t known = Space::core_variables() | derived_variables();
      if ((judge_.objective_variables() & ~known) == 0) e.score = score_bound(l, env, e.ns, 0);
    }
  } catch (const ArithmeticError&) {
    e.score = -kInfinity;  // settle() says what is wrong
    e.ns = 0;
  }
  push(e);
}

void Search::push_leaf(const Layout& l, Env& env) {
  Entry e;
  e.kind = Entry::leaf;
  e.point = space_.point(l);
  e.kept = (std::uint64_t{1} << judge_.inner_preferences()) - 1;
  try {
    e.ns = problem_.job->serve ? 0 : clock_.lower_bound(l);
    e.score = score_bound(l, env, e.ns, judge_.unmet_percent(env));
  } catch (const ArithmeticError&) {
    e.score = -kInfinity;
    e.ns = 0;
  }
  push(e);
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

/// Without the first preference that may still be given up, without the second ….
void Search::give_up_preferences(const Entry& e) {
  for (std::uint32_t i = e.removable; i < judge_.inner_preferences(); ++i) {
    Entry less = e;
    less.kind = Entry::leaf;
    less.kept = e.kept & ~(std::uint64_t{1} << i);
    less.removable = i + 1;
    const Layout l = space_.layout(e.point);
    space_.set_env(l);
    Rational percent = judge_.unmet_percent(space_.env());
    for (std::uint32_t k = 0; k < judge_.inner_preferences(); ++k)
      if ((less.kept >> k & 1) == 0) percent += judge_.weight(k);
    less.score = score_bound(l, space_.env(), less.ns, percent);
    push(less);
  }
}

void Search::solve_leaf(const Entry& e) {
  if (e.kind == Entry::leaf) {
    ++result_.evaluated;
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
  const auto with = [&](const InnerSolution& s) {
    Layout whole = l;
    whole.stage_layers = s.stage_layers;
    whole.recompute_layers = s.recompute_layers;
    return whole;
  };
  std::optional<InnerSolution> found;
  switch (judge_.aim()) {
    case Aim::time:
      inner_.set(l, cap);
      if (e.kind == Entry::coupled) return solve_coupled_stages(e, l);
      found = solve(inner_, problem_, cutoff_of(e));
      if (found && !coupling_of(e).empty()) {
        // Without the conditions that couple stages: what the best of them is at least.
        if (settle(with(*found), e)) return;
        if (judge_.asks_of_priced(e.kept)) walk_front(e, l, cap, true);
        return push_coupled(e, l, found->nanoseconds);
      }
      break;
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
  if (found) settle(with(*found), e);
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
    Layout whole = l;
    whole.stage_layers = next->stage_layers;
    whole.recompute_layers = next->recompute_layers;
    if (settle(whole, e) && one) return;
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
  Rational percent = judge_.unmet_percent(space_.env());
  for (std::size_t k = 0; k < judge_.inner_preferences(); ++k)
    if ((e.kept >> k & 1) == 0) percent += judge_.weight(k);
  later.score = std::max(e.score, score_bound(l, space_.env(), later.ns, percent));
  push(later);
}

void Search::solve_coupled_stages(const Entry& e, const Layout& l) {
  CoupledConditions conditions;
  for (const Condition* c : coupling_of(e)) conditions.require.push_back(c->expr);
  if (!l.stage_layers.empty()) conditions.stage_layers.push_back(l.stage_layers);
  if (!l.recompute_layers.empty()) conditions.recompute_layers.push_back(l.recompute_layers);
  const auto whole = [&](const InnerSolution& s) {
    Layout out = l;
    out.stage_layers = s.stage_layers;
    out.recompute_layers = s.recompute_layers;
    return out;
  };
  if (judge_.asks_of_priced(e.kept))
    conditions.accept = [&](const InnerSolution& s) {
      const Priced p = priced(whole(s));
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
  const CoupledResult result =
      solve_coupled(inner_, problem_, l, conditions, cutoff_of(e), budget);
  result_.solver_queries += result.checks;
  solver_units_ -= result.units;
  if (conditions.accept && result.status == CoupledResult::unknown) turned_away_ -= kTurnedAway;
  if (result.best) settle(whole(*result.best), e);
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
  const Pricer::Peak peak = pricer_.peak(l);
  p.peak_bytes = peak.bytes;
  p.hbm_bytes = peak.bytes + peak.headroom_bytes;
  p.peak_stage = peak.stage;
  space_.set_env(l);
  judge_.set_derived(p, space_.env());
  return p;
}

bool Search::settle(const Layout& l, const Entry& e) {
  if (is_without_recompute(l)) return false;
  Priced p = priced(l);
  if (p.peak_bytes > p.hbm_bytes)
    throw InternalError("a layout that the search chose does not fit");
  if (!judge_.meets(p, space_.env()) || !judge_.keeps(p, space_.env(), e.kept)) {
    if (best_.empty() && !result_.tightest) result_.tightest = p;
    return false;
  }
  ++result_.feasible_count;
  if (!judge_.score(p, space_.env())) return false;
  remember(std::move(p));
  return true;
}

/// Full recomputation of no layer, where the same without recomputation is looked at too.
bool Search::is_without_recompute(const Layout& l) {
  if (l.recompute != kFullRecompute ||
      std::any_of(l.recompute_layers.begin(), l.recompute_layers.end(),
                  [](std::int64_t n) { return n > 0; }))
    return false;
  Layout none = l;
  none.recompute = 0;
  none.recompute_layers.clear();
  space_.set_env(none);
  const std::vector<std::int64_t> modes =
      space_.domains().values(Knob::recompute, none, space_.env(), Space::core_variables());
  return std::find(modes.begin(), modes.end(), 0) != modes.end() &&
         judge_.admits(space_.env(), ~derived_variables(), 0);
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
    if (complete && !problem_.job->serve && !result_.tightest) find_tightest();
    if (report_without_value()) return {};
    return std::move(result_);
  }
  for (Priced& p : best_) make_roomy(p);
  result_.tightest.reset();
  if (complete && open_objective_)
    result_.unproven = fmt::format(
        "'{}' follows neither from the step time nor from the peak: of each layout, the ways to deal "
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
  return std::move(result_);
}

void Search::make_roomy(Priced& p) {
  const auto& domains = space_.domains();
  if (problem_.job->serve || judge_.aim() != Aim::time || p.layout.pp == 1 ||
      !judge_.coupling((std::uint64_t{1} << judge_.inner_preferences()) - 1).empty() ||
      !domains.stage_layers.empty() || !domains.recompute_layers.empty() ||
      p.layout.stage_layers == default_stage_layers(problem_.program->layer_count, p.layout.pp))
    return;
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
    p.layout.stage_layers = found->stage_layers;
    p.layout.recompute_layers = found->recompute_layers;
    const Pricer::Peak peak = pricer_.peak(p.layout);
    p.peak_bytes = peak.bytes;
    p.hbm_bytes = peak.bytes + peak.headroom_bytes;
    p.peak_stage = peak.stage;
    fits = static_cast<std::int64_t>(peak.bytes);
  }
  // Of those with that peak, the first.
  inner_.set(outer, fits);
  if (const auto first = solve(inner_, problem_, p.time.nanoseconds)) {
    p.layout.stage_layers = first->stage_layers;
    p.layout.recompute_layers = first->recompute_layers;
  }
  space_.set_env(p.layout);
  judge_.set_derived(p, space_.env());
  judge_.score(p, space_.env());
  p.time = clock_.step(p.layout);
}

/// Where nothing fits: the layout that needs the least memory.
void Search::find_tightest() {
  std::int64_t below = Inner::kNoLimit;
  thrifty_layouts(space_, [&](const Layout& l) {
    try {
      const auto least = solve_for_peak(inner_, problem_, l, below);
      if (!least) return true;
      Priced p;
      p.layout = l;
      p.layout.stage_layers = least->stage_layers;
      p.layout.recompute_layers = least->recompute_layers;
      const Pricer::Peak peak = pricer_.peak(p.layout);
      p.peak_bytes = peak.bytes;
      p.hbm_bytes = peak.bytes + peak.headroom_bytes;
      p.peak_stage = peak.stage;
      below = static_cast<std::int64_t>(peak.bytes) - 1;
      result_.tightest = std::move(p);
    } catch (const ArithmeticError&) {
      // It has no price; another may.
    }
    return true;
  });
}

}  // namespace

double Priced::headroom() const {
  return hbm_bytes > 0
             ? static_cast<double>(hbm_bytes - peak_bytes) / static_cast<double>(hbm_bytes)
             : 0;
}

std::string_view name(PlanResult::Status status) {
  switch (status) {
    case PlanResult::optimal:
      return "optimal";
    case PlanResult::feasible:
      return "feasible";
    case PlanResult::infeasible:
      return "infeasible";
    case PlanResult::unknown:
      break;
  }
  return "unknown";
}

namespace {

/// What the time model assumes where the cluster is silent.
void warn_of_assumed_links(const Problem& problem, Diagnostics& diags) {
  const Cluster& cluster = *problem.cluster;
  const auto& nodes = cluster.pools.front().nodes;
  const bool several = cluster.pools.size() > 1 ||
                       (!nodes.empty() && *std::max_element(nodes.begin(), nodes.end()) > 1);
  for (const Pool& pool : cluster.pools) {
    const auto warn = [&](const char* field, double assumed) {
      diags
          .warning(cluster.span, fmt::format("gpu '{}' has no {}; step times assume {:.0f} GB/s a "
                                             "GPU",
                                             pool.gpu.name, field, assumed / 1e9))
          .with_help(fmt::format("add a line such as {} = {:.0f} GB/s", field, assumed / 1e9));
    };
    if (several && pool.gpu.nic.sign() <= 0) warn("nic", time_constants::kDefaultNic);
    if (pool.gpus_per_node > 1 && pool.gpu.nvlink.sign() <= 0)
      warn("nvlink", time_constants::kPcie);
  }
}

}  // namespace

PlanResult plan(const Problem& problem, const PlanOptions& options, Diagnostics& diags) {
  const std::size_t errors = diags.error_count();
  try {
    if (!problem.job->serve) {
      if (!check_rates(*problem.module, *problem.job, diags)) return {};
      warn_of_assumed_links(problem, diags);
    }
    check_offload(problem, nullptr, diags);
    if (diags.error_count() > errors) return {};
    Search search(problem, options, diags);
    if (diags.error_count() > errors) return {};
    return search.run();
  } catch (const ArithmeticError& e) {
    diags
        .error(problem.job->span,
               fmt::format("'{}' cannot be planned: {}", problem.job->name, e.what()))
        .with_help("a number of the job, its model or its cluster is too large or too small");
    return {};
  }
}

}  // namespace plimsoll
