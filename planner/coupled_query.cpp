// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/coupled_query.hpp"

#include <algorithm>
#include <set>

#include "lang/diagnostics.hpp"

namespace plimsoll {

namespace {

using smt::Product;
using smt::Term;

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
    for (const CellGroup& g : of_count.second) {
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
