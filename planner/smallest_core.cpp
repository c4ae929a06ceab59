// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/smallest_core.hpp"

#include <algorithm>
#include <numeric>

#include "lang/diagnostics.hpp"
#include "planner/smt.hpp"

namespace plimsoll {

namespace {

using Set = std::vector<bool>;

bool within(const Set& inner, const Set& outer) {
  for (std::size_t i = 0; i < inner.size(); ++i)
    if (inner[i] && !outer[i]) return false;
  return true;
}

/// The oracle, and what follows from its answers so far.
class Asked {
 public:
  Asked(const Satisfiable& oracle, const CoreBudget& budget) : oracle_(oracle), budget_(budget) {}

  /// nullopt: the budget is spent.
  std::optional<bool> satisfiable(const Set& chosen) {
    for (const Set& can : can_)
      if (within(chosen, can)) return true;
    for (const Set& cannot : cannot_)
      if (within(cannot, chosen)) return false;
    if (calls_ >= budget_.calls || (budget_.stop && budget_.stop())) return std::nullopt;
    ++calls_;
    const bool yes = oracle_(chosen);
    std::vector<Set>& list = yes ? can_ : cannot_;
    // What the new answer implies need not be kept.
    std::erase_if(list,
                  [&](const Set& old) { return yes ? within(old, chosen) : within(chosen, old); });
    list.push_back(chosen);
    return yes;
  }
  std::int64_t calls() const { return calls_; }

 private:
  const Satisfiable& oracle_;
  const CoreBudget& budget_;
  std::vector<Set> can_, cannot_;
  std::int64_t calls_ = 0;
};

std::vector<std::size_t> members(const Set& set) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < set.size(); ++i)
    if (set[i]) out.push_back(i);
  return out;
}

/// Indices, the heaviest first and of equals the last.
std::vector<std::size_t> heaviest_first(std::span<const std::int64_t> weights) {
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return weights[a] != weights[b] ? weights[a] > weights[b] : a > b;
  });
  return order;
}

/// Deletes from \a core, which cannot hold, until each member is needed or the budget is spent.
SmallestCore by_deletion(Set core, std::span<const std::int64_t> weights, Asked& asked) {
  SmallestCore out;
  out.minimal = true;
  for (const std::size_t i : heaviest_first(weights)) {
    if (!core[i]) continue;
    core[i] = false;
    const std::optional<bool> can = asked.satisfiable(core);
    if (!can) out.minimal = false;
    if (can.value_or(true)) core[i] = true;
  }
  out.members = members(core);
  out.calls = asked.calls();
  return out;
}

/// Adds to \a set, which can hold, whatever still can. nullopt: the budget is spent.
std::optional<Set> grown(Set set, std::span<const std::int64_t> weights, Asked& asked) {
  for (const std::size_t i : heaviest_first(weights)) {
    if (set[i]) continue;
    set[i] = true;
    const std::optional<bool> can = asked.satisfiable(set);
    if (!can) return std::nullopt;
    if (!*can) set[i] = false;
  }
  return set;
}

}  // namespace

std::optional<SmallestCore> core_by_deletion(std::span<const std::int64_t> weights,
                                             const Satisfiable& oracle, const CoreBudget& budget) {
  Asked asked(oracle, budget);
  const Set everything(weights.size(), true);
  if (asked.satisfiable(everything).value_or(true)) return std::nullopt;
  return by_deletion(everything, weights, asked);
}

std::optional<SmallestCore> smallest_core(std::span<const std::int64_t> weights,
                                          const Satisfiable& oracle, const CoreBudget& budget) {
  Asked asked(oracle, budget);
  const Set everything(weights.size(), true);
  if (asked.satisfiable(everything).value_or(true)) return std::nullopt;
  // First a core that serves if the budget does not last for the smallest.
  const SmallestCore fallback = by_deletion(everything, weights, asked);
  const auto give_up = [&] {
    SmallestCore out = fallback;
    out.calls = asked.calls();
    return out;
  };
  smt::HittingSets sets(weights);
  for (;;) {
    const std::optional<Set> proposed = sets.lightest(budget.units - sets.units());
    if (!proposed) return give_up();
    const std::optional<bool> can = asked.satisfiable(*proposed);
    if (!can) return give_up();
    if (!*can) return SmallestCore{members(*proposed), true, true, asked.calls()};
    const std::optional<Set> most = grown(*proposed, weights, asked);
    if (!most) return give_up();
    Set left = *most;
    left.flip();
    const std::vector<std::size_t> left_out = members(left);
    // All of them together cannot hold, so a monotone oracle leaves something out.
    PLIMSOLL_ASSERT(!left_out.empty());
    sets.hit(left_out);
  }
}

}  // namespace plimsoll
