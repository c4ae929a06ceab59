// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// What a step takes, for the solver: the slowest stage, the sum of them, the worst tail.

#include <algorithm>
#include <array>
#include <set>

#include "planner/coupled_query.hpp"

namespace plimsoll {

namespace {

using smt::Product;
using smt::Term;

/// Bounds of the sum for so many slowest paces are told to the solver.
constexpr std::size_t kMostThresholds = 48;
/// Where lines below a table touch it, in quarters of the layers of a mean stage.
constexpr std::array<std::int64_t, 5> kEdgesAt = {2, 4, 5, 6, 8};

}  // namespace

/// \a what is at least the pace (tail) of the stage's cell.
void CoupledQuery::bound_below(std::size_t stage, Term what, bool tail) {
  const auto value = [tail](const StageCell::Way& way) { return tail ? way.tail : way.pace; };
  const auto same = [&](const StageCell& a, const StageCell& b) {
    return std::equal(a.ways.begin(), a.ways.end(), b.ways.begin(), b.ways.end(),
                      [&](const auto& x, const auto& y) {
                        return x.recomputed == y.recomputed && value(x) == value(y);
                      });
  };
  const auto groups =
      grouped(tables_.of(static_cast<std::int64_t>(stage)), offset_range_[stage], same);
  // With so many layers or more, at least the least of all those: the order encoding.
  std::map<std::int64_t, std::int64_t> least;
  std::int64_t sofar = Inner::kNoLimit;
  for (auto it = groups.rbegin(); it != groups.rend(); ++it) {
    for (const CellGroup& g : it->second) sofar = std::min(sofar, value(g.cell->first()));
    least[it->first] = sofar;
  }
  std::int64_t told = 0;
  for (const auto& [count, bound] : least) {
    if (bound <= told) continue;
    told = bound;
    std::vector<Term> literals = {at_least(what, bound)};
    if (count > count_range_[stage].first) literals.push_back(at_most(counts_[stage], count - 1));
    solver_.clause(literals);
  }
  // What that leaves open.
  for (const auto& [count, list] : groups)
    for (const CellGroup& g : list) {
      std::int64_t known = least[count];
      for (const StageCell::Way& way : g.cell->ways) {
        if (value(way) <= known) continue;
        known = value(way);
        std::vector<Term> literals = elsewhere(stage, count, g.first, g.last);
        if (way.recomputed > g.cell->first().recomputed)
          literals.push_back(at_most(recomputed_[stage], way.recomputed - 1));
        literals.push_back(at_least(what, known));
        solver_.clause(literals);
      }
    }
}

/// Lines that the pace (or the least recomputation) of a stage lies above, whatever its layers:
/// they follow from the rest, and spare the solver from adding up what every single stage could
/// hold.
void CoupledQuery::cut_below(std::size_t stage, Term what, bool recomputed) {
  std::map<std::int64_t, std::int64_t> least;
  for (const StageCell& c : tables_.of(static_cast<std::int64_t>(stage))) {
    const std::int64_t v = recomputed ? c.first().recomputed : c.first().pace;
    const auto [it, fresh] = least.try_emplace(c.count, v);
    it->second = std::min(it->second, v);
  }
  // The lower convex hull.
  std::vector<std::pair<std::int64_t, std::int64_t>> hull;
  for (const auto& p : least) {
    const auto above = [&] {
      const auto &a = hull[hull.size() - 2], &b = hull.back();
      return Int128{b.second - a.second} * (p.first - a.first) >=
             Int128{p.second - a.second} * (b.first - a.first);
    };
    while (hull.size() >= 2 && above()) hull.pop_back();
    hull.push_back(p);
  }
  // Of its edges, those around as many layers as a stage holds.
  std::set<std::size_t> edges;
  for (const std::int64_t quarters : kEdgesAt) {
    const std::int64_t at = tables_.round() * quarters / (4 * tables_.stages());
    std::size_t e = 0;
    while (e + 2 < hull.size() && hull[e + 1].first <= at) ++e;
    if (e + 1 < hull.size()) edges.insert(e);
  }
  for (const std::size_t e : edges) {
    const Int128 dn = hull[e + 1].first - hull[e].first, dv = hull[e + 1].second - hull[e].second;
    const std::array<Product, 2> line = {Product{dn, what}, Product{-dv, counts_[stage]}};
    solver_.require(solver_.at_least(solver_.sum(line), dn * hull[e].second - dv * hull[e].first));
  }
}

/// The time of a step: see Composition.
void CoupledQuery::price() {
  const std::size_t stages = counts_.size();
  std::int64_t pace = 0, tail = 0, least_tail = 0, least_pace = 0;
  Int128 most_sum = 0, least_sum = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> paces;
  for (std::size_t i = 0; i < stages; ++i) {
    std::int64_t low = Inner::kNoLimit, high = 0, low_tail = Inner::kNoLimit;
    for (const StageCell& c : tables_.of(static_cast<std::int64_t>(i)))
      for (const StageCell::Way& way : c.ways) {
        low = std::min(low, way.pace);
        high = std::max(high, way.pace);
        low_tail = std::min(low_tail, way.tail);
        tail = std::max(tail, way.tail);
      }
    paces.emplace_back(low, high);
    pace = std::max(pace, high);
    least_pace = std::max(least_pace, low);
    least_tail = std::max(least_tail, low_tail);
    most_sum += high;
    least_sum += low;
  }
  most_ = composition_.step(pace, most_sum, tail);
  std::vector<Product> time;
  const Int128 of_slowest = Int128{composition_.microbatches} * composition_.of - composition_.idle;
  slowest_ = solver_.integer("slowest", least_pace, pace);
  time.push_back({of_slowest, *slowest_});
  for (std::size_t i = 0; i < stages; ++i) bound_below(i, *slowest_, false);
  if (composition_.idle > 0) {
    const Term sum = solver_.integer("sum", static_cast<std::int64_t>(least_sum),
                                     static_cast<std::int64_t>(most_sum));
    std::vector<Product> parts;
    for (std::size_t i = 0; i < stages; ++i) {
      const Term t = solver_.integer(fmt::format("pace_{}", i), paces[i].first, paces[i].second);
      bound_below(i, t, false);
      cut_below(i, t, false);
      parts.push_back({1, t});
    }
    solver_.require(solver_.equal(sum, solver_.sum(parts)));
    relate_sum_to_slowest(sum);
    time.push_back({composition_.idle, sum});
  }
  constant_ = Int128{composition_.of} * composition_.sends;
  if (least_tail == tail) {
    constant_ += Int128{composition_.of} * tail;
  } else {
    tail_ = solver_.integer("tail", least_tail, tail);
    for (std::size_t i = 0; i < stages; ++i) bound_below(i, *tail_, true);
    time.push_back({composition_.of, *tail_});
  }
  time_ = solver_.sum(time);
}

/// What the sum is at least where no stage is slower than this: found by dynamic programming over
/// the same tables, it spares the solver most of the arithmetic.
void CoupledQuery::relate_sum_to_slowest(Term sum) {
  const std::vector<std::int64_t> all = tables_.paces();
  std::size_t first = 0, beyond = all.size();
  while (first < beyond) {  // the least pace that suffices at all
    const std::size_t middle = first + (beyond - first) / 2;
    if (tables_.least_sum(all[middle]) < 0)
      first = middle + 1;
    else
      beyond = middle;
  }
  PLIMSOLL_ASSERT(first < all.size());
  solver_.require(at_least(*slowest_, all[first]));
  const std::size_t open = all.size() - first;
  const std::size_t some = std::min(open, kMostThresholds);
  for (std::size_t k = 0; k < some; ++k) {
    // Up to the next threshold the sum cannot be less than at it.
    const std::int64_t pace = all[first + (k + 1) * open / some - 1];
    const auto least = static_cast<std::int64_t>(tables_.least_sum(pace));
    const std::array<Term, 2> either = {at_least(*slowest_, pace + 1), at_least(sum, least)};
    solver_.clause(either);
  }
}

}  // namespace plimsoll
