// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/enumerate.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

#include "lang/diagnostics.hpp"
#include "planner/domains.hpp"
#include "planner/judge.hpp"

namespace plimsoll {

namespace {

constexpr RecomputeMode kFull = 1;

std::uint64_t bit(Var v) { return std::uint64_t{1} << static_cast<unsigned>(v); }

/// A candidate as the queue keeps it: a layout without its lists.
struct Candidate {
  double bound = 0;  ///< no score below it
  std::int64_t seq = 0;
  std::int32_t batch = 0, dp = 0, pp = 0, nodes = 0, mbs = 0, shard = 0;
  std::int32_t ep = 0, tp = 0, cp = 0;
  std::int16_t etp = 0, vpp = 0, offload = 0;
  std::int8_t zero = 0, recompute = 0, schedule = 0, sp = 0;
  std::uint8_t stages = 0, recomputed = 0, pools = 0;  ///< which of the pinned lists
};

/// What a person would rather not have to set, counted; then the values in a fixed order.
auto tie_key(const Layout& l) {
  const int knobs = (l.tp != 1) + (l.pp != 1) + (l.cp != 1) + (l.ep != 1) + (l.etp != 1) +
                    (l.vpp != 1) + (l.zero != 0) + (l.shard != l.dp * l.cp) + (l.recompute != 0) +
                    static_cast<int>(l.sp) + (l.schedule != Schedule::one_f_one_b) +
                    (l.offload.sign() != 0);
  return std::make_tuple(knobs, l.nodes, l.tp, l.pp, l.cp, l.ep, l.etp, l.vpp, l.zero, l.shard,
                         l.recompute, l.sp, static_cast<int>(l.schedule), l.offload, -l.mbs,
                         -l.batch, -l.seq, l.stage_layers, l.recompute_layers);
}

bool better(const Priced& a, const Priced& b) {
  if (a.score != b.score) return a.score < b.score;
  if (a.time.nanoseconds != b.time.nanoseconds) return a.time.nanoseconds < b.time.nanoseconds;
  return tie_key(a.layout) < tie_key(b.layout);
}

template <class T>
T narrow(std::int64_t v) {
  PLIMSOLL_ASSERT(v >= std::numeric_limits<T>::min() && v <= std::numeric_limits<T>::max());
  return static_cast<T>(v);
}

class Search {
 public:
  Search(const Problem& problem, const PlanOptions& options, Diagnostics& diags)
      : problem_(problem),
        options_(options),
        domains_(problem),
        clock_(problem),
        pricer_(problem),
        judge_(problem, pricer_, diags),
        unlike_pools_(problem.cluster->pools.size() > 1) {}

  PlanResult run();

 private:
  void choose(std::size_t knob, std::uint64_t known);
  void complete();
  void keep(std::size_t stages, std::size_t recomputed, std::size_t pools);
  bool deal_pools();
  Layout unpack(const Candidate&) const;
  /// Prices; false where it cannot be among the best any more, does not fit, or breaks a
  /// requirement.
  bool look_at(const Candidate&, Priced&);
  void price_serving(Priced&) const;
  void remember(Priced);
  double worst_kept() const;

  const Problem& problem_;
  const PlanOptions& options_;
  Domains domains_;
  Clock clock_;
  Pricer pricer_;
  Judge judge_;
  bool unlike_pools_;

  Layout layout_;  ///< as far as it is chosen
  Env env_;
  std::int64_t gpus_ = 0;
  std::vector<Candidate> candidates_;
  std::vector<Priced> best_;  ///< sorted
  PlanResult result_;
};

void Search::choose(std::size_t k, std::uint64_t known) {
  if (k == kKnobCount) {
    complete();
    return;
  }
  const auto knob = static_cast<Knob>(k);
  for (const std::int64_t value : domains_.values(knob, layout_, env_, known)) {
    set(layout_, knob, value);
    std::uint64_t now = known | bit(variable(knob));
    if (knob == Knob::nodes) {
      gpus_ = domains_.gpus(layout_);
      now |= bit(Var::gpus) | bit(Var::gpus_per_node);
    }
    if (knob == Knob::pp) {
      const std::int64_t each = layout_.tp * layout_.cp * layout_.pp;
      if (each <= 0 || gpus_ % each != 0) continue;
      layout_.dp = gpus_ / each;
      now |= bit(Var::dp);
    }
    if (knob == Knob::etp) {
      // The ranks of one expert copy must lie within a stage.
      if (layout_.ep * layout_.etp <= 0 ||
          (layout_.tp * layout_.cp * layout_.dp) % (layout_.ep * layout_.etp) != 0)
        continue;
      now |= bit(Var::expert_dp) | bit(Var::expert_shard);
    }
    if (knob == Knob::mbs) {
      const std::int64_t each = layout_.dp * layout_.mbs;
      if (each <= 0 || (!problem_.job->serve && layout_.batch % each != 0)) continue;
      layout_.microbatches = problem_.job->serve ? 1 : layout_.batch / each;
      now |= bit(Var::microbatches);
      // What does not divide is known by now: the rest need not be tried.
      Layout probe = layout_;
      probe.sp = false;
      probe.zero = 0;
      probe.shard = 0;
      probe.recompute = 0;
      probe.schedule = probe.vpp > 1 ? Schedule::interleaved : Schedule::one_f_one_b;
      probe.offload = 0;
      probe.stage_layers.clear();
      probe.recompute_layers.clear();
      probe.stage_pool.clear();
      resolve(problem_, probe);
      if (!why_impossible(problem_, probe).empty()) continue;
    }
    set_variables(problem_, layout_, gpus_, env_);
    if (!judge_.admits(env_, now, known)) continue;
    choose(k + 1, now);
  }
}

/// Unlike pools: each holds whole stages, in the order of the pools.
bool Search::deal_pools() {
  layout_.stage_pool.clear();
  if (!unlike_pools_) return true;
  const std::int64_t each = layout_.tp * layout_.cp * layout_.dp;
  for (std::uint32_t p = 0; p < problem_.cluster->pools.size(); ++p) {
    const Pool& pool = problem_.cluster->pools[p];
    const std::int64_t gpus = pool.nodes.front() * pool.gpus_per_node;
    if (gpus % each != 0) return false;
    layout_.stage_pool.insert(layout_.stage_pool.end(), static_cast<std::size_t>(gpus / each), p);
  }
  return true;
}

void Search::complete() {
  if (!domains_.agrees(layout_, env_)) return;
  const auto stages = std::max<std::size_t>(domains_.stage_layers.size(), 1);
  const auto recomputed =
      layout_.recompute == kFull ? std::max<std::size_t>(domains_.recompute_layers.size(), 1) : 1;
  const auto pools = std::max<std::size_t>(domains_.stage_pool.size(), 1);
  for (std::size_t i = 0; i < stages; ++i)
    for (std::size_t j = 0; j < recomputed; ++j)
      for (std::size_t k = 0; k < pools; ++k) keep(i, j, k);
}

void Search::keep(std::size_t stages, std::size_t recomputed, std::size_t pools) {
  const auto pp = static_cast<std::size_t>(layout_.pp);
  if (domains_.stage_layers.empty())
    layout_.stage_layers = default_stage_layers(problem_.program->layer_count, layout_.pp);
  else
    layout_.stage_layers = domains_.stage_layers[stages];
  layout_.recompute_layers.clear();
  if (layout_.recompute == kFull)
    layout_.recompute_layers = domains_.recompute_layers.empty()
                                   ? layout_.stage_layers
                                   : domains_.recompute_layers[recomputed];
  if (domains_.stage_pool.empty()) {
    if (!deal_pools()) return;
  } else {
    layout_.stage_pool = domains_.stage_pool[pools];
  }
  if (layout_.stage_layers.size() != pp ||
      (!layout_.recompute_layers.empty() && layout_.recompute_layers.size() != pp) ||
      (!layout_.stage_pool.empty() && layout_.stage_pool.size() != pp))
    return;
  if (!why_impossible(problem_, layout_).empty()) return;
  Candidate c;
  c.bound = judge_.bound(env_, problem_.job->serve ? 0 : clock_.lower_bound(layout_));
  c.seq = layout_.seq;
  c.batch = narrow<std::int32_t>(layout_.batch);
  c.dp = narrow<std::int32_t>(layout_.dp);
  c.pp = narrow<std::int32_t>(layout_.pp);
  c.nodes = narrow<std::int32_t>(layout_.nodes);
  c.mbs = narrow<std::int32_t>(layout_.mbs);
  c.shard = narrow<std::int32_t>(layout_.shard);
  c.ep = narrow<std::int32_t>(layout_.ep);
  c.tp = narrow<std::int32_t>(layout_.tp);
  c.cp = narrow<std::int32_t>(layout_.cp);
  c.etp = narrow<std::int16_t>(layout_.etp);
  c.vpp = narrow<std::int16_t>(layout_.vpp);
  c.offload = narrow<std::int16_t>((layout_.offload * Rational(1000)).to_int64());
  c.zero = narrow<std::int8_t>(layout_.zero);
  c.recompute = narrow<std::int8_t>(layout_.recompute);
  c.schedule = static_cast<std::int8_t>(layout_.schedule);
  c.sp = layout_.sp ? 1 : 0;
  c.stages = narrow<std::uint8_t>(static_cast<std::int64_t>(stages));
  c.recomputed = narrow<std::uint8_t>(static_cast<std::int64_t>(recomputed));
  c.pools = narrow<std::uint8_t>(static_cast<std::int64_t>(pools));
  candidates_.push_back(c);
}

Layout Search::unpack(const Candidate& c) const {
  Layout l;
  l.tp = c.tp;
  l.pp = c.pp;
  l.vpp = c.vpp;
  l.cp = c.cp;
  l.ep = c.ep;
  l.etp = c.etp;
  l.dp = c.dp;
  l.zero = c.zero;
  l.shard = c.shard;
  l.mbs = c.mbs;
  l.batch = c.batch;
  l.seq = c.seq;
  l.nodes = c.nodes;
  l.microbatches = problem_.job->serve ? 1 : l.batch / (l.dp * l.mbs);
  l.sp = c.sp != 0;
  l.recompute = static_cast<RecomputeMode>(c.recompute);
  l.schedule = static_cast<Schedule>(c.schedule);
  l.offload = Rational::fraction(c.offload, 1000);
  l.stage_layers = domains_.stage_layers.empty()
                       ? default_stage_layers(problem_.program->layer_count, l.pp)
                       : domains_.stage_layers[c.stages];
  if (l.recompute == kFull)
    l.recompute_layers = domains_.recompute_layers.empty()
                             ? l.stage_layers
                             : domains_.recompute_layers[c.recomputed];
  if (!domains_.stage_pool.empty()) {
    l.stage_pool = domains_.stage_pool[c.pools];
  } else if (unlike_pools_) {
    for (std::uint32_t p = 0; p < problem_.cluster->pools.size(); ++p) {
      const Pool& pool = problem_.cluster->pools[p];
      l.stage_pool.insert(
          l.stage_pool.end(),
          static_cast<std::size_t>(pool.nodes.front() * pool.gpus_per_node / (l.tp * l.cp * l.dp)),
          p);
    }
  }
  return l;
}

double Search::worst_kept() const {
  if (static_cast<std::int64_t>(best_.size()) < std::max<std::int64_t>(options_.top, 1))
    return std::numeric_limits<double>::infinity();
  const double worst = best_.back().score.to_double();
  return worst + 1e-12 * (worst < 0 ? -worst : worst);
}

void Search::remember(Priced p) {
  const auto at = std::upper_bound(best_.begin(), best_.end(), p, better);
  best_.insert(at, std::move(p));
  if (static_cast<std::int64_t>(best_.size()) > std::max<std::int64_t>(options_.top, 1))
    best_.pop_back();
}

void Search::price_serving(Priced& p) const {
  const Bill b = bill(problem_, p.layout);
  p.peak_bytes = b.peak_bytes;
  p.hbm_bytes = b.hbm_bytes;
  p.peak_stage = b.peak_stage;
  p.layout.sequences = b.sequences;
}

bool Search::look_at(const Candidate& c, Priced& p) {
  p.layout = unpack(c);
  set_variables(problem_, p.layout, p.layout.tp * p.layout.cp * p.layout.pp * p.layout.dp, env_);
  bool fits = false;
  if (problem_.job->serve) {
    price_serving(p);
    fits = p.peak_bytes <= p.hbm_bytes && p.layout.sequences > 0;
  } else {
    p.time = clock_.step(p.layout);
    // Memory is priced only for what can still be among the best.
    if (judge_.bound(env_, p.time.nanoseconds) > worst_kept()) return false;
    const Pricer::Peak peak = pricer_.peak(p.layout);
    p.peak_bytes = peak.bytes;
    p.hbm_bytes = peak.bytes + peak.headroom_bytes;
    p.peak_stage = peak.stage;
    fits = peak.fits;
  }
  const auto used = [](const Priced& x) {
    return Rational::fraction(x.peak_bytes, std::max<Int128>(x.hbm_bytes, 1));
  };
  const auto note = [&] {
    if (best_.empty() && (!result_.tightest || used(p) < used(*result_.tightest)))
      result_.tightest = p;
    return false;
  };
  if (!fits) return note();
  judge_.set_derived(p, env_);
  if (!judge_.meets(p, env_)) return note();
  ++result_.feasible_count;
  return judge_.score(p, env_);
}

PlanResult Search::run() {
  result_.minimize = judge_.minimize();
  result_.objective = judge_.objective();
  choose(0, 0);
  result_.space = static_cast<std::int64_t>(candidates_.size());
  if (candidates_.empty()) {
    result_.status = PlanResult::infeasible;
    result_.emptied_by = judge_.strictest();
    return std::move(result_);
  }
  // Best first: the smallest bound on top; equal bounds in the order of enumeration.
  const auto later = [&](std::uint32_t a, std::uint32_t b) {
    const double x = candidates_[a].bound, y = candidates_[b].bound;
    return x != y ? x > y : a > b;
  };
  std::vector<std::uint32_t> heap(candidates_.size());
  for (std::uint32_t i = 0; i < heap.size(); ++i) heap[i] = i;
  std::make_heap(heap.begin(), heap.end(), later);
  bool complete = true;
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Candidate& c = candidates_[heap.back()];
    heap.pop_back();
    if (c.bound > worst_kept()) break;
    if (options_.budget && result_.evaluated >= *options_.budget) {
      complete = false;
      break;
    }
    if (options_.stop && result_.evaluated % 64 == 0 && options_.stop()) {
      complete = false;
      result_.stopped = true;
      break;
    }
    ++result_.evaluated;
    Priced p;
    if (look_at(c, p)) remember(std::move(p));
  }
  if (best_.empty()) {
    result_.status = complete ? PlanResult::infeasible : PlanResult::unknown;
    return std::move(result_);
  }
  result_.tightest.reset();
  result_.status = complete ? PlanResult::optimal : PlanResult::feasible;
  result_.best = std::move(best_.front());
  result_.alternatives.assign(std::make_move_iterator(best_.begin() + 1),
                              std::make_move_iterator(best_.end()));
  return std::move(result_);
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

PlanResult plan(const Problem& problem, const PlanOptions& options, Diagnostics& diags) {
  const std::size_t errors = diags.error_count();
  Search search(problem, options, diags);
  if (diags.error_count() > errors) return {};
  return search.run();
}

}  // namespace plimsoll
