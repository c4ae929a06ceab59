// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/enumerate.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "lang/diagnostics.hpp"
#include "planner/domains.hpp"
#include "planner/judge.hpp"
#include "planner/time_constants.hpp"

namespace plimsoll {

namespace {

constexpr RecomputeMode kFull = 1;

std::uint64_t bit(Var v) { return std::uint64_t{1} << static_cast<unsigned>(v); }

/// A candidate as the queue keeps it: a layout without its lists.
struct Candidate {
  double bound = 0;  ///< no score below it
  std::int64_t seq = 0, batch = 0, mbs = 0;
  std::int32_t dp = 0, pp = 0, nodes = 0, shard = 0, ep = 0, tp = 0, cp = 0, etp = 0, vpp = 0;
  std::uint32_t stages = 0, recomputed = 0, pools = 0;  ///< which of the pinned lists
  std::int16_t offload = 0;
  std::int8_t zero = 0, recompute = 0, schedule = 0, sp = 0;
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
  if (v < std::numeric_limits<T>::min() || v > std::numeric_limits<T>::max())
    throw ArithmeticError(fmt::format("{} is larger than a search can take", v));
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
        diags_(diags),
        unlike_pools_(problem.cluster->pools.size() > 1) {}

  PlanResult run();

 private:
  void choose(std::size_t knob, std::uint64_t known);
  void try_value(std::size_t knob, std::int64_t value, std::uint64_t known);
  /// Degrees must divide what is left of the GPUs, mbs the batch: said before anything is priced.
  std::string why_not(Knob, std::int64_t value) const;
  std::string why_no_value(Knob) const;
  /// Counts a reason why combinations whose first \a depth variables are set are not looked at.
  void turn_away(std::size_t depth, const std::string& why);
  std::string most_frequent_reason() const;
  void complete();
  void keep(std::size_t stages, std::size_t recomputed, std::size_t pools);
  bool deal_pools();
  Layout unpack(const Candidate&) const;
  /// Prices; false where it cannot be among the best any more, does not fit, or breaks a
  /// requirement.
  bool look_at(const Candidate&, Priced&);
  bool price(const Candidate&, Priced&);
  bool price_serving(Priced&) const;
  /// Errors of a search that found nothing because nothing could be computed.
  bool report_without_value();
  void remember(Priced);
  double worst_kept() const;

  const Problem& problem_;
  const PlanOptions& options_;
  Domains domains_;
  Clock clock_;
  Pricer pricer_;
  Judge judge_;
  Diagnostics& diags_;
  bool unlike_pools_;

  Layout layout_;  ///< as far as it is chosen
  Env env_;
  std::int64_t gpus_ = 0;
  std::vector<Candidate> candidates_;
  std::vector<Priced> best_;  ///< sorted
  std::size_t deepest_ = 0;   ///< variables that were set where reasons_ arose
  std::map<std::string, std::int64_t> reasons_;
  std::string unpriced_;  ///< why the first layout without a price has none
  PlanResult result_;
};

void Search::turn_away(std::size_t depth, const std::string& why) {
  constexpr std::size_t kMostReasons = 4096;  // distinct ones; the rest is as the first ones are
  if (depth < deepest_) return;
  if (depth > deepest_) reasons_.clear();
  deepest_ = depth;
  if (const auto it = reasons_.find(why); it != reasons_.end())
    ++it->second;
  else if (reasons_.size() < kMostReasons)
    reasons_.emplace(why, 1);
}

std::string Search::most_frequent_reason() const {
  const auto it =
      std::max_element(reasons_.begin(), reasons_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return it == reasons_.end() ? "" : it->first;
}

std::string Search::why_not(Knob knob, std::int64_t value) const {
  const auto divide = [&](std::int64_t whole, const std::string& what) -> std::string {
    if (value > 0 && whole % value == 0) return "";
    return fmt::format("{} = {} does not divide {}", name(variable(knob)), value, what);
  };
  const std::int64_t left = gpus_ / std::max<std::int64_t>(layout_.tp * layout_.cp, 1);
  switch (knob) {
    case Knob::tp:
      return divide(gpus_, fmt::format("{} GPUs", gpus_));
    case Knob::cp:
      return divide(gpus_ / layout_.tp, fmt::format("{} GPUs / tp = {}", gpus_, layout_.tp));
    case Knob::pp:
      if (value > problem_.program->layer_count)
        return fmt::format("pp = {} is more than {} layers", value, problem_.program->layer_count);
      return divide(left, fmt::format("{} GPUs / (tp * cp) = {}", gpus_, left));
    case Knob::ep:
      return divide(gpus_ / layout_.pp, fmt::format("the {} GPUs of a stage", gpus_ / layout_.pp));
    case Knob::etp:
      return divide(gpus_ / layout_.pp / layout_.ep, fmt::format("the {} GPUs of a stage / ep = {}",
                                                                 gpus_ / layout_.pp, layout_.ep));
    case Knob::vpp:
      if (value < 1 || value > problem_.program->layer_count / layout_.pp)
        return fmt::format("vpp = {} is more than the {} layers of a stage", value,
                           problem_.program->layer_count / layout_.pp);
      return "";
    case Knob::mbs:
      if (problem_.job->serve) return "";
      if (layout_.batch % layout_.dp != 0)
        return fmt::format("dp = {} does not divide the batch of {} sequences", layout_.dp,
                           layout_.batch);
      return divide(layout_.batch / layout_.dp, fmt::format("the {} sequences of a replica's batch",
                                                            layout_.batch / layout_.dp));
    case Knob::shard:
      return divide(layout_.dp * layout_.cp, fmt::format("dp * cp = {}", layout_.dp * layout_.cp));
    default:
      return "";
  }
}

/// Why a variable has no value to try.
std::string Search::why_no_value(Knob knob) const {
  const Job& job = *problem_.job;
  if (knob == Knob::batch && job.batch_in_tokens)
    return fmt::format("a batch of {} tokens is no whole number of sequences of {}",
                       job.batch.str(), layout_.seq);
  if (knob == Knob::mbs)
    return fmt::format("dp = {} does not divide the batch of {} sequences", layout_.dp,
                       layout_.batch);
  return fmt::format("no value of {} is possible", name(variable(knob)));
}

void Search::choose(std::size_t k, std::uint64_t known) {
  if (k == kKnobCount) {
    complete();
    return;
  }
  std::vector<std::int64_t> values;
  try {
    values = domains_.values(static_cast<Knob>(k), layout_, env_, known);
  } catch (const ArithmeticError& e) {
    turn_away(k,
              fmt::format("{} has no value: {}", name(variable(static_cast<Knob>(k))), e.what()));
    return;
  }
  if (values.empty()) turn_away(k, why_no_value(static_cast<Knob>(k)));
  for (const std::int64_t value : values) try_value(k, value, known);
}

void Search::try_value(std::size_t k, std::int64_t value, std::uint64_t known) {
  const auto knob = static_cast<Knob>(k);
  if (const std::string why = why_not(knob, value); !why.empty()) return turn_away(k, why);
  set(layout_, knob, value);
  std::uint64_t now = known | bit(variable(knob));
  if (knob == Knob::nodes) {
    gpus_ = domains_.gpus(layout_);
    now |= bit(Var::gpus) | bit(Var::gpus_per_node);
  }
  if (knob == Knob::pp) {
    layout_.dp = gpus_ / (layout_.tp * layout_.cp * layout_.pp);
    now |= bit(Var::dp);
  }
  if (knob == Knob::etp) now |= bit(Var::expert_dp) | bit(Var::expert_shard);
  if (knob == Knob::mbs) {
    layout_.microbatches = problem_.job->serve ? 1 : layout_.batch / (layout_.dp * layout_.mbs);
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
    if (const std::string why = why_impossible(problem_, probe); !why.empty())
      return turn_away(k, why);
  }
  set_variables(problem_, layout_, gpus_, env_);
  if (!judge_.admits(env_, now, known))
    return turn_away(k, fmt::format("the requirement '{}' does not hold", judge_.last()));
  choose(k + 1, now);
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
  const std::optional<Var> other = domains_.disagrees(layout_, env_);
  if (other)
    return turn_away(kKnobCount,
                     fmt::format("{} = {} is not among the values that the job gives it",
                                 name(*other), env_[*other].str()));
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
    if (!deal_pools())
      return turn_away(kKnobCount, "the GPUs of a pool do not make up whole stages");
  } else {
    layout_.stage_pool = domains_.stage_pool[pools];
  }
  if (layout_.stage_layers.size() != pp ||
      (!layout_.recompute_layers.empty() && layout_.recompute_layers.size() != pp) ||
      (!layout_.stage_pool.empty() && layout_.stage_pool.size() != pp))
    return turn_away(kKnobCount, fmt::format("a list has not one entry for each of the pp = {} "
                                             "stages",
                                             pp));
  if (const std::string why = why_impossible(problem_, layout_); !why.empty())
    return turn_away(kKnobCount, why);
  Candidate c;
  try {
    c.bound = judge_.bound(env_, problem_.job->serve ? 0 : clock_.lower_bound(layout_));
  } catch (const ArithmeticError&) {
    c.bound = -std::numeric_limits<double>::infinity();  // look_at() says what is wrong
  }
  c.seq = layout_.seq;
  c.batch = layout_.batch;
  c.dp = narrow<std::int32_t>(layout_.dp);
  c.pp = narrow<std::int32_t>(layout_.pp);
  c.nodes = narrow<std::int32_t>(layout_.nodes);
  c.mbs = layout_.mbs;
  c.shard = narrow<std::int32_t>(layout_.shard);
  c.ep = narrow<std::int32_t>(layout_.ep);
  c.tp = narrow<std::int32_t>(layout_.tp);
  c.cp = narrow<std::int32_t>(layout_.cp);
  c.etp = narrow<std::int32_t>(layout_.etp);
  c.vpp = narrow<std::int32_t>(layout_.vpp);
  c.offload = narrow<std::int16_t>((layout_.offload * Rational(1000)).to_int64());
  c.zero = narrow<std::int8_t>(layout_.zero);
  c.recompute = narrow<std::int8_t>(layout_.recompute);
  c.schedule = static_cast<std::int8_t>(layout_.schedule);
  c.sp = layout_.sp ? 1 : 0;
  c.stages = narrow<std::uint32_t>(static_cast<std::int64_t>(stages));
  c.recomputed = narrow<std::uint32_t>(static_cast<std::int64_t>(recomputed));
  c.pools = narrow<std::uint32_t>(static_cast<std::int64_t>(pools));
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

/// As many sequences as fit, of those that the job asks for: its largest number that fits, else its
/// smallest, which does not.
bool Search::price_serving(Priced& p) const {
  std::vector<std::int64_t> asked = domains_.sequences(env_);
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

bool Search::look_at(const Candidate& c, Priced& p) {
  try {
    return price(c, p);
  } catch (const ArithmeticError& e) {
    if (unpriced_.empty())
      unpriced_ = fmt::format("{} ({})", e.what(), describe(problem_, p.layout));
    return false;
  }
}

bool Search::price(const Candidate& c, Priced& p) {
  p.layout = unpack(c);
  set_variables(problem_, p.layout, p.layout.tp * p.layout.cp * p.layout.pp * p.layout.dp, env_);
  bool fits = false;
  if (problem_.job->serve) {
    fits = price_serving(p);
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
  choose(0, 0);
  result_.space = static_cast<std::int64_t>(candidates_.size());
  if (candidates_.empty()) {
    result_.status = PlanResult::infeasible;
    result_.emptied_by = judge_.strictest();
    result_.why = most_frequent_reason();
    if (report_without_value()) return {};
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
    if (report_without_value()) return {};
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
