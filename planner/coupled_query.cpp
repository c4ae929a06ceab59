// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/coupled_query.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "lang/diagnostics.hpp"

namespace plimsoll {

namespace {

using smt::Product;
using smt::Term;

/// Bounds of the sum for so many slowest paces are told to the solver.
constexpr std::size_t kMostThresholds = 48;
/// Where lines below a table touch it, in quarters of the layers of a mean stage.
constexpr std::array<std::int64_t, 5> kEdgesAt = {2, 4, 5, 6, 8};

/// Cells of one count that say the same, on neighbouring offsets but for those that hold no cell.
struct Group {
  std::int64_t first = 0, last = 0;  ///< offsets
  const StageCell* cell = nullptr;
};

/// By count, the groups of a stage's cells. \a same: do two cells say the same?
template <class Same>
std::map<std::int64_t, std::vector<Group>> grouped(const std::vector<StageCell>& cells,
                                                   std::pair<std::int64_t, std::int64_t> offsets,
                                                   Same same) {
  std::map<std::int64_t, std::vector<Group>> out;
  for (const StageCell& c : cells) {
    std::vector<Group>& list = out[c.count];
    if (list.empty())
      list.push_back({offsets.first, offsets.second, &c});
    else if (!same(*list.back().cell, c)) {
      list.back().last = c.offset - 1;
      list.push_back({c.offset, offsets.second, &c});
    }
  }
  return out;
}

}  // namespace

CoupledQuery::CoupledQuery(const StageTables& tables, const Composition& composition,
                           std::int64_t chunks)
    : tables_(tables), composition_(composition), chunks_(chunks) {
  deal();
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    forbid_gaps(i);
    if (!tables_.by_recomputed()) continue;
    allow_recomputed(i);
    cut_below(i, recomputed_[i], true);
  }
  price();
}

/// Layers of each stage, which add up.
void CoupledQuery::deal() {
  const auto stages = static_cast<std::size_t>(tables_.stages());
  std::vector<Product> all;
  for (std::size_t i = 0; i < stages; ++i) {
    const std::vector<StageCell>& cells = tables_.of(static_cast<std::int64_t>(i));
    std::pair<std::int64_t, std::int64_t> counts{tables_.round(), 0},
        offsets = counts, recomputed{Inner::kNoLimit, 0};
    const auto widen = [](auto& range, std::int64_t v) {
      range.first = std::min(range.first, v);
      range.second = std::max(range.second, v);
    };
    for (const StageCell& c : cells) {
      widen(counts, c.count);
      widen(offsets, c.offset);
      for (const StageCell::Way& way : c.ways) widen(recomputed, way.recomputed);
    }
    count_range_.push_back(counts);
    offset_range_.push_back(offsets);
    recomputed_range_.push_back(recomputed);
    counts_.push_back(solver_.integer(fmt::format("layers_{}", i), counts.first, counts.second));
    if (tables_.by_recomputed())
      recomputed_.push_back(
          solver_.integer(fmt::format("recomputed_{}", i), recomputed.first, recomputed.second));
    all.push_back({1, counts_.back()});
  }
  offsets_.resize(stages);
  solver_.require(solver_.equal(solver_.sum(all), solver_.constant(tables_.round())));
}

Term CoupledQuery::at_least(Term x, std::int64_t v) {
  const auto [it, fresh] = at_least_.try_emplace({x.id, v});
  if (fresh) it->second = solver_.at_least(x, v);
  return it->second;
}

Term CoupledQuery::at_most(Term x, std::int64_t v) {
  const auto [it, fresh] = at_most_.try_emplace({x.id, v});
  if (fresh) it->second = solver_.at_most(x, v);
  return it->second;
}

/// A Boolean that implies the atom, to be assumed.
Term CoupledQuery::literal(Term atom) {
  const auto [it, fresh] = assumed_.try_emplace({atom.id, 0});
  if (fresh) {
    it->second = solver_.boolean(fmt::format("assume_{}", assumed_.size()));
    solver_.require(solver_.implies(it->second, atom));
  }
  return it->second;
}

/// Layers of a round in front of a stage, stage > 0.
Term CoupledQuery::offset(std::size_t stage) {
  if (!offsets_[stage]) {
    std::vector<Product> before = {{1, counts_[stage - 1]}};
    if (stage > 1) before.push_back({1, offset(stage - 1)});
    const auto [low, high] = offset_range_[stage];
    offsets_[stage] = solver_.integer(fmt::format("offset_{}", stage), low, high);
    solver_.require(solver_.equal(*offsets_[stage], solver_.sum(before)));
  }
  return *offsets_[stage];
}

std::vector<Term> CoupledQuery::elsewhere(std::size_t stage, std::int64_t count, std::int64_t first,
                                          std::int64_t last) {
  std::vector<Term> out;
  const auto outside = [&](auto&& term, const std::pair<std::int64_t, std::int64_t>& range,
                           std::int64_t from, std::int64_t to) {
    if (from > range.first) out.push_back(at_most(term(), from - 1));
    if (to < range.second) out.push_back(at_least(term(), to + 1));
  };
  outside([&] { return counts_[stage]; }, count_range_[stage], count, count);
  if (stage > 0) outside([&] { return offset(stage); }, offset_range_[stage], first, last);
  return out;
}

/// Where no number of layers fits, whatever it takes.
void CoupledQuery::forbid_gaps(std::size_t stage) {
  const auto at = static_cast<std::int64_t>(stage);
  std::map<std::int64_t, std::vector<std::int64_t>> fits, fails;  // offsets by count
  for (const StageCell& c : tables_.of(at)) fits[c.count].push_back(c.offset);
  const auto [low, high] = count_range_[stage];
  for (const StageGap& gap : tables_.gaps(at))
    for (std::int64_t c = std::max(gap.first, low); c <= std::min(gap.last, high); ++c)
      fails[c].push_back(gap.offset);
  for (std::int64_t c = low; c <= high; ++c) {
    if (!fits.contains(c)) {
      const auto [first, last] = offset_range_[stage];
      solver_.clause(elsewhere(stage, c, first, last));
      continue;
    }
    // Offsets that fail with none that fits between them, at once.
    const std::vector<std::int64_t>& good = fits[c];
    std::vector<std::int64_t>& bad = fails[c];
    std::sort(bad.begin(), bad.end());
    for (std::size_t i = 0; i < bad.size();) {
      const auto next = std::upper_bound(good.begin(), good.end(), bad[i]);
      std::size_t j = i + 1;
      while (j < bad.size() && (next == good.end() || bad[j] < *next)) ++j;
      solver_.clause(elsewhere(stage, c, bad[i], bad[j - 1]));
      i = j;
    }
  }
}

/// Which numbers of recomputed layers go with a count.
void CoupledQuery::allow_recomputed(std::size_t stage) {
  const auto same = [](const StageCell& a, const StageCell& b) {
    return std::equal(a.ways.begin(), a.ways.end(), b.ways.begin(), b.ways.end(),
                      [](const auto& x, const auto& y) { return x.recomputed == y.recomputed; });
  };
  const Term r = recomputed_[stage];
  const auto [low, high] = recomputed_range_[stage];
  const auto by_count =
      grouped(tables_.of(static_cast<std::int64_t>(stage)), offset_range_[stage], same);
  for (const auto& of_count : by_count)
    for (const Group& g : of_count.second) {
      const auto demand = [&](std::vector<Term> literals) {
        const std::vector<Term> other = elsewhere(stage, of_count.first, g.first, g.last);
        literals.insert(literals.end(), other.begin(), other.end());
        solver_.clause(literals);
      };
      const std::vector<StageCell::Way>& ways = g.cell->ways;
      if (ways.front().recomputed > low) demand({at_least(r, ways.front().recomputed)});
      if (ways.back().recomputed < high) demand({at_most(r, ways.back().recomputed)});
      for (std::size_t k = 1; k < ways.size(); ++k)
        if (ways[k].recomputed > ways[k - 1].recomputed + 1)
          demand({at_most(r, ways[k - 1].recomputed), at_least(r, ways[k].recomputed)});
    }
}

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
    for (const Group& g : it->second) sofar = std::min(sofar, value(g.cell->first()));
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
    for (const Group& g : list) {
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

std::vector<Linear> CoupledQuery::stage_layers() const {
  std::vector<Linear> out;
  for (std::size_t i = 0; i < counts_.size(); ++i)
    out.push_back({{{chunks_, counts_[i]}},
                   0,
                   count_range_[i].first * chunks_,
                   count_range_[i].second * chunks_});
  return out;
}

std::vector<Linear> CoupledQuery::recompute_layers() const {
  std::vector<Linear> out;
  for (std::size_t i = 0; i < recomputed_.size(); ++i)
    out.push_back(
        {{{1, recomputed_[i]}}, 0, recomputed_range_[i].first, recomputed_range_[i].second});
  return out;
}

Term CoupledQuery::within(std::int64_t nanoseconds) {
  const Int128 bound = Int128{std::min(nanoseconds, most_)} * composition_.of - constant_;
  return literal(solver_.at_most(time_, bound));
}

Term CoupledQuery::layers_at_most(std::size_t stage, std::int64_t count) {
  return literal(at_most(counts_[stage], count));
}

Term CoupledQuery::layers_at_least(std::size_t stage, std::int64_t count) {
  return literal(at_least(counts_[stage], count));
}

Term CoupledQuery::recomputed_at_most(std::size_t stage, std::int64_t recomputed) {
  return literal(at_most(recomputed_[stage], recomputed));
}

Term CoupledQuery::recomputed_at_least(std::size_t stage, std::int64_t recomputed) {
  return literal(at_least(recomputed_[stage], recomputed));
}

void CoupledQuery::require_one(const std::vector<Term>& of,
                               const std::vector<std::vector<std::int64_t>>& lists,
                               std::int64_t unit) {
  std::vector<Term> any;
  for (const std::vector<std::int64_t>& list : lists) {
    bool possible = list.size() == of.size();
    std::vector<Term> all;
    for (std::size_t i = 0; possible && i < list.size(); ++i) {
      possible = list[i] % unit == 0;
      all.push_back(at_least(of[i], list[i] / unit));
      all.push_back(at_most(of[i], list[i] / unit));
    }
    if (possible) any.push_back(solver_.all(all));
  }
  solver_.clause(any);
}

void CoupledQuery::require_layers(const std::vector<std::vector<std::int64_t>>& lists) {
  require_one(counts_, lists, chunks_);
}

void CoupledQuery::require_recomputed(const std::vector<std::vector<std::int64_t>>& lists) {
  require_one(recomputed_, lists, 1);
}

void CoupledQuery::block(const Dealt& dealt, const EntriesRead& read) {
  std::vector<Term> other;
  const auto differ = [&](const std::vector<Term>& of, const std::vector<std::int64_t>& values,
                          const std::optional<std::set<std::size_t>>& entries) {
    for (std::size_t i = 0; i < of.size(); ++i) {
      if (entries && !entries->contains(i)) continue;
      other.push_back(at_most(of[i], values[i] - 1));
      other.push_back(at_least(of[i], values[i] + 1));
    }
  };
  differ(counts_, dealt.counts, read.stage_layers);
  differ(recomputed_, dealt.recomputed, read.recompute_layers);
  solver_.clause(other);
}

/// The last model; nullopt where it has a stage that no step within the cutoff has, which is told
/// to the solver then.
std::optional<Dealt> CoupledQuery::decode() {
  Dealt out;
  std::int64_t at = 0, slowest = 0, tail = 0;
  Int128 sum = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    const std::int64_t count = solver_.value(counts_[i]);
    const StageCell* cell = tables_.find(static_cast<std::int64_t>(i), at, count);
    if (cell == nullptr) {
      solver_.clause(elsewhere(i, count, at, at));
      return std::nullopt;
    }
    const StageCell::Way* way = &cell->ways.front();
    if (tables_.by_recomputed()) {
      const std::int64_t recomputed = solver_.value(recomputed_[i]);
      const auto is = std::find_if(cell->ways.begin(), cell->ways.end(),
                                   [&](const auto& w) { return w.recomputed == recomputed; });
      PLIMSOLL_ASSERT(is != cell->ways.end());
      way = &*is;
    }
    out.counts.push_back(count);
    out.recomputed.push_back(way->recomputed);
    slowest = std::max(slowest, way->pace);
    tail = std::max(tail, way->tail);
    sum += way->pace;
    at += count;
  }
  out.nanoseconds = composition_.step(slowest, sum, tail);
  return out;
}

CoupledQuery::Found CoupledQuery::check(std::int64_t units, std::span<const Term> assumptions,
                                        const std::function<bool()>& stop) {
  const std::int64_t end = solver_.units() + units;
  for (;;) {
    Found found;
    found.answer = solver_.check(end - solver_.units(), assumptions, stop);
    if (found.answer != smt::Answer::sat) return found;
    if (std::optional<Dealt> dealt = decode()) {
      found.dealt = std::move(*dealt);
      return found;
    }
  }
}

}  // namespace plimsoll
