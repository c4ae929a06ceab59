// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <type_traits>
#include <utility>

#include "planner/stages.hpp"

namespace plimsoll {

namespace {

constexpr const char* kNoWholeStages = "the GPUs of a pool do not make up whole stages";
constexpr std::size_t kFirstOfLeaf = static_cast<std::size_t>(Knob::sp);

std::uint64_t bit(Var v) { return std::uint64_t{1} << static_cast<unsigned>(v); }

template <class T>
T narrow(std::int64_t v) {
  if (v < std::numeric_limits<T>::min() || v > std::numeric_limits<T>::max())
    throw ArithmeticError(fmt::format("{} is larger than a search can take", v));
  return static_cast<T>(v);
}

/// The numbers that a Point has of a Layout, each with its counterpart.
template <class P, class L, class Action>
void each_number(P& p, L& l, const Action& action) {
  action(p.seq, l.seq);
  action(p.batch, l.batch);
  action(p.mbs, l.mbs);
  action(p.tp, l.tp);
  action(p.pp, l.pp);
  action(p.cp, l.cp);
  action(p.ep, l.ep);
  action(p.etp, l.etp);
  action(p.vpp, l.vpp);
  action(p.dp, l.dp);
  action(p.nodes, l.nodes);
  action(p.shard, l.shard);
  action(p.zero, l.zero);
  action(p.recompute, l.recompute);
}

}  // namespace

Space::Space(const Problem& problem, Judge& judge)
    : problem_(problem),
      judge_(judge),
      domains_(problem),
      settles_late_(domains_.settles_late()),
      unlike_pools_(problem.cluster->pools.size() > 1) {
  for (std::size_t k = kFirstOfLeaf; k < kKnobCount; ++k)
    usual_leaves_ = usual_leaves_ && !domains_.is_given(static_cast<Knob>(k));
  usual_leaves_ = usual_leaves_ && !unlike_pools_ && domains_.stage_pool.empty();
}

std::uint64_t Space::core_variables() {
  std::uint64_t known = bit(Var::gpus) | bit(Var::gpus_per_node) | bit(Var::dp) |
                        bit(Var::expert_dp) | bit(Var::microbatches) | bit(Var::target);
  for (std::size_t k = 0; k < kFirstOfLeaf; ++k) known |= bit(variable(static_cast<Knob>(k)));
  return known;
}

Point Space::point(const Layout& l) const {
  Point p;
  each_number(p, l, [](auto& to, auto from) { to = narrow<std::decay_t<decltype(to)>>(from); });
  p.offload = narrow<std::int16_t>((l.offload * Rational(1000)).to_int64());
  p.schedule = static_cast<std::int8_t>(l.schedule);
  p.sp = l.sp ? 1 : 0;
  if (!l.stage_pool.empty()) {
    const auto orders = pool_orders(l);
    p.pools = static_cast<std::uint16_t>(std::find(orders.begin(), orders.end(), l.stage_pool) -
                                         orders.begin());
  }
  return p;
}

Layout Space::layout(const Point& p) const {
  Layout l;
  each_number(p, l,
              [](auto from, auto& to) { to = static_cast<std::decay_t<decltype(to)>>(from); });
  l.offload = Rational::fraction(p.offload, 1000);
  l.schedule = static_cast<Schedule>(p.schedule);
  l.sp = p.sp != 0;
  l.microbatches = problem_.job->serve ? 1 : l.batch / (l.dp * l.mbs);
  if (unlike_pools_ || !domains_.stage_pool.empty()) {
    const auto orders = pool_orders(l);
    if (p.pools < orders.size()) l.stage_pool = orders[p.pools];
  }
  return l;
}

void Space::set_env(const Layout& l) {
  set_variables(problem_, l, l.tp * l.cp * l.pp * l.dp, env_);
}

void Space::turn_away(std::size_t depth, const std::string& why) {
  constexpr std::size_t kMostReasons = 4096;  // distinct ones; the rest is as the first ones are
  if (depth < deepest_) return;
  if (depth > deepest_) reasons_.clear();
  deepest_ = depth;
  if (const auto it = reasons_.find(why); it != reasons_.end())
    ++it->second;
  else if (reasons_.size() < kMostReasons)
    reasons_.emplace(why, 1);
}

std::string Space::most_frequent_reason() const {
  const auto it =
      std::max_element(reasons_.begin(), reasons_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return it == reasons_.end() ? "" : it->first;
}

std::string Space::why_not(Knob knob, std::int64_t value) const {
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

std::string Space::why_no_value(Knob knob) const {
  const Job& job = *problem_.job;
  if (knob == Knob::batch && job.batch_in_tokens)
    return fmt::format("a batch of {} tokens is no whole number of sequences of {}",
                       job.batch.str(), layout_.seq);
  if (knob == Knob::recompute && !domains_.recompute_layers.empty())
    return "recompute_layers needs recompute = full";
  if (knob == Knob::mbs)
    return fmt::format("dp = {} does not divide the batch of {} sequences", layout_.dp,
                       layout_.batch);
  return fmt::format("no value of {} is possible", name(variable(knob)));
}

void Space::cores(const std::function<void(const Layout&, Env&)>& each) {
  each_ = &each;
  layout_ = {};
  choose(0, kFirstOfLeaf, 0);
}

void Space::leaves(const Point& core, const std::function<void(const Layout&, Env&)>& each) {
  each_ = &each;
  layout_ = layout(core);
  layout_.stage_pool.clear();
  gpus_ = domains_.gpus(layout_);
  set_variables(problem_, layout_, gpus_, env_);
  choose(kFirstOfLeaf, kKnobCount, core_variables());
}

void Space::thrifty_cores(const std::function<void(const Layout&, Env&)>& each) {
  thrifty_ = true;
  cores(each);
  thrifty_ = false;
}

std::vector<Layout> Space::thriftiest(const Point& core) {
  const auto thrift = [](const Layout& l) {
    return std::make_tuple(l.zero, l.shard, l.recompute == kFullRecompute, l.offload);
  };
  std::vector<Layout> out;
  thrifty_ = true;
  leaves(core, [&](const Layout& l, Env&) {
    if (!out.empty() && thrift(l) < thrift(out.front())) return;
    if (!out.empty() && thrift(out.front()) < thrift(l)) out.clear();
    out.push_back(l);
  });
  thrifty_ = false;
  return out;
}

std::int64_t Space::leaf_count(const Point& core) {
  const Layout l = layout(core);
  set_variables(problem_, l, domains_.gpus(l), env_);
  if (!usual_leaves_) return count_leaves(l);
  // All that the usual values of a leaf's variables go by (domains.cpp).
  const std::array<std::int64_t, 4> key{l.tp > 1 ? 1 : 0, l.dp * l.cp, l.pp > 1 ? 1 : 0, l.vpp};
  auto [at, fresh] = leaf_counts_.try_emplace(key);
  if (fresh) at->second = count_leaves(l);
  return at->second;
}

std::int64_t Space::count_leaves(Layout l) {
  std::int64_t count = 0;
  const auto walk = [&](auto&& self, std::size_t k, std::int64_t times) -> void {
    if (k == kKnobCount) {
      count += times;
      return;
    }
    const auto knob = static_cast<Knob>(k);
    const std::vector<std::int64_t> values = domains_.values(knob, l, env_, core_variables());
    // Only zero says which values a later variable (shard) has.
    if (knob != Knob::zero) {
      if (!values.empty()) {
        set(l, knob, values.front());
        self(self, k + 1, times * static_cast<std::int64_t>(values.size()));
      }
      return;
    }
    for (const std::int64_t value : values) {
      set(l, knob, value);
      self(self, k + 1, times);
    }
  };
  walk(walk, kFirstOfLeaf, 1);
  const auto orders = static_cast<std::int64_t>(pool_orders(l).size());
  if (orders == 0) turn_away(kKnobCount, kNoWholeStages);
  return count * orders;
}

void Space::choose(std::size_t k, std::size_t end, std::uint64_t known) {
  if (k == end) {
    reach(end);
    return;
  }
  const auto knob = static_cast<Knob>(k);
  std::vector<std::int64_t> values;
  try {
    values = domains_.values(knob, layout_, env_, known);
  } catch (const ArithmeticError& e) {
    turn_away(k, fmt::format("{} has no value: {}", name(variable(knob)), e.what()));
    return;
  }
  if (values.empty()) turn_away(k, why_no_value(knob));
  if (thrifty_) return choose_thriftiest(k, end, std::move(values), known);
  for (const std::int64_t value : values) try_value(k, end, value, known);
}

/// The thriftiest value first, and none after one with which something was reached. Of
/// recomputation only the full one stands out.
void Space::choose_thriftiest(std::size_t k, std::size_t end, std::vector<std::int64_t> values,
                              std::uint64_t known) {
  const auto knob = static_cast<Knob>(k);
  const bool decides =
      knob == Knob::mbs || knob == Knob::zero || knob == Knob::shard || knob == Knob::offload;
  if (decides && knob != Knob::mbs) std::reverse(values.begin(), values.end());
  const auto full = std::find(values.begin(), values.end(), std::int64_t{kFullRecompute});
  const std::int64_t before = reached_;
  if (knob == Knob::recompute && full != values.end()) {
    try_value(k, end, kFullRecompute, known);
    if (reached_ > before) return;
    values.erase(full);
  }
  for (const std::int64_t value : values) {
    try_value(k, end, value, known);
    if (decides && reached_ > before) return;
  }
}

void Space::try_value(std::size_t k, std::size_t end, std::int64_t value, std::uint64_t known) {
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
  if (knob == Knob::etp) now |= bit(Var::expert_dp);
  if (knob == Knob::shard) now |= bit(Var::expert_shard);
  if (knob == Knob::mbs) {
    layout_.microbatches = problem_.job->serve ? 1 : layout_.batch / (layout_.dp * layout_.mbs);
    now |= bit(Var::microbatches) | bit(Var::target);
    // What does not divide is known by now: the rest need not be tried.
    Layout probe = layout_;
    probe.sp = false;
    probe.zero = 0;
    probe.shard = probe.dp * probe.cp;
    probe.recompute = 0;
    probe.schedule = probe.vpp > 1 ? Schedule::interleaved : Schedule::one_f_one_b;
    if (probe.vpp == 2) probe.schedule = Schedule::zb_v;  // which asks for the least
    if (std::string why = why_impossible_outside(problem_, probe); !why.empty())
      return turn_away(k, why);
  }
  // What later variables of a leaf depend on follows from the shard group alone.
  if (k < kFirstOfLeaf || knob == Knob::shard)
    set_variables(problem_, layout_, gpus_, env_);
  else if (knob == Knob::offload)
    env_[Var::offload] = layout_.offload;
  else
    env_[variable(knob)] = value;
  if (!judge_.admits(env_, now, known))
    return turn_away(k, fmt::format("the requirement '{}' does not hold", judge_.last()));
  choose(k + 1, end, now);
}

std::vector<std::vector<std::uint32_t>> Space::pool_orders(const Layout& l) const {
  if (!domains_.stage_pool.empty()) return domains_.stage_pool;
  if (!unlike_pools_) return {{}};
  // Each pool holds whole stages, in a row.
  const auto& pools = problem_.cluster->pools;
  const std::int64_t each = l.tp * l.cp * l.dp;
  std::vector<std::uint32_t> order(pools.size());
  std::iota(order.begin(), order.end(), 0);
  for (const Pool& pool : pools)
    if (pool.nodes.front() * pool.gpus_per_node % each != 0) return {};
  std::vector<std::vector<std::uint32_t>> out;
  do {
    auto& list = out.emplace_back();
    for (const std::uint32_t p : order)
      list.insert(list.end(),
                  static_cast<std::size_t>(pools[p].nodes.front() * pools[p].gpus_per_node / each),
                  p);
  } while (std::next_permutation(order.begin(), order.end()));
  return out;
}

void Space::reach(std::size_t end) {
  if (end == kFirstOfLeaf) {
    ++reached_;
    return (*each_)(layout_, env_);
  }
  if (settles_late_)
    if (const std::optional<Var> other = domains_.disagrees(layout_, env_))
      return turn_away(kKnobCount,
                       fmt::format("{} = {} is not among the values that the job gives it",
                                   name(*other), env_[*other].str()));
  if (std::string why = why_impossible_outside(problem_, layout_); !why.empty())
    return turn_away(kKnobCount, why);
  const auto orders = pool_orders(layout_);
  if (orders.empty()) return turn_away(kKnobCount, kNoWholeStages);
  for (const std::vector<std::uint32_t>& order : orders) {
    if (!order.empty() && static_cast<std::int64_t>(order.size()) != layout_.pp) {
      turn_away(
          kKnobCount,
          fmt::format("stage_pool has not one entry for each of the pp = {} stages", layout_.pp));
      continue;
    }
    layout_.stage_pool = order;
    if (std::string why = why_pools(problem_, layout_); !why.empty()) {
      turn_away(kKnobCount, why);
      continue;
    }
    ++reached_;
    (*each_)(layout_, env_);
  }
  layout_.stage_pool.clear();
}

}  // namespace plimsoll
