// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/coupled.hpp"

#include <algorithm>

#include "lang/conditions.hpp"
#include "lang/diagnostics.hpp"
#include "planner/coupled_query.hpp"
#include "planner/coupled_tables.hpp"
#include "planner/list_terms.hpp"

namespace plimsoll {

namespace {

using smt::Answer;
using smt::Term;

/// The first step beyond a bound that is tried is that part of it.
constexpr std::int64_t kFirstGap = 512;
/// Units that a question may take which need not be answered; twice as many after each that was
/// not.
constexpr std::int64_t kFirstShare = 100'000;
/// Times that a condition on concrete lists may be told to the solver.
constexpr std::int64_t kMostBroken = 20'000;

class Search {
 public:
  Search(Inner& inner, const Problem& problem, const Layout& outer, const CoupledConditions& given,
         std::int64_t cutoff, const CoupledBudget& budget)
      : inner_(inner), problem_(problem), given_(given), cutoff_(cutoff), budget_(budget) {
    Layout bare = outer;
    bare.stage_layers.clear();
    bare.recompute_layers.clear();
    values_.env = environment(problem, bare, 0);
    for (const std::uint32_t pool : outer.stage_pool)
      values_.stage_pool.push_back(problem.cluster->pools[pool].name);
    for (const ast::Expr* e : given.require)
      for (const ast::Expr* part : conjuncts(*e))
        if (!reads_derived(problem, *part)) parts_.push_back(part);  // else accept decides
    by_recomputed_ = inner.recomputes() && reads_recomputed();
  }

  CoupledResult run();

 private:
  struct Attempt {
    std::optional<Dealt> dealt;
    bool proven = false;  ///< `dealt` is the fastest, or there is none
  };

  bool reads_recomputed() const;
  void solve();
  bool try_simple_ways();
  void ask();
  Attempt fastest();
  void first_of_equals(Dealt&);
  bool lower_lists(Dealt&, bool layers, std::vector<Term> fixed);
  CoupledQuery::Found check(std::vector<Term> assumptions, std::int64_t nanoseconds,
                            std::int64_t units);
  void require_conditions();

  std::vector<std::int64_t> usual() const;
  std::optional<InnerSolution> priced(const std::vector<std::int64_t>& counts,
                                      const std::vector<std::int64_t>* recomputed);
  InnerSolution lists(const Dealt&) const;
  std::optional<bool> holds(const ast::Expr&, const InnerSolution&) const;
  bool meets(const InnerSolution&, const std::vector<const ast::Expr*>&) const;
  bool acceptable(const InnerSolution&);
  bool stopped() const { return budget_.stop && budget_.stop(); }
  std::int64_t units_left() const { return budget_.units - query_->solver().units(); }

  Inner& inner_;
  const Problem& problem_;
  const CoupledConditions& given_;
  std::int64_t cutoff_;
  const CoupledBudget& budget_;
  LayoutValues values_;
  std::vector<const ast::Expr*> parts_;     ///< operands of `and`, but those that accept decides
  std::vector<const ast::Expr*> concrete_;  ///< of them, those that only lists decide
  bool by_recomputed_ = false;
  std::int64_t turned_away_ = 0;  ///< by accept
  std::int64_t broken_ = 0;       ///< conditions on concrete lists, told to the solver
  std::int64_t share_ = kFirstShare;
  std::optional<StageTables> tables_;
  std::optional<CoupledQuery> query_;
  CoupledResult result_;
};

bool Search::reads_recomputed() const {
  return given_.accept || !given_.recompute_layers.empty() ||
         std::any_of(given_.require.begin(), given_.require.end(),
                     [](const ast::Expr* e) { return names_list(*e, "recompute_layers"); });
}

/// Counts a round of the default split; empty where it cannot be cut in chunks.
std::vector<std::int64_t> Search::usual() const {
  std::vector<std::int64_t> layers =
      default_stage_layers(problem_.program->layer_count, inner_.stages());
  for (std::int64_t& n : layers) {
    if (n % inner_.chunks() != 0 || n == 0) return {};
    n /= inner_.chunks();
  }
  return layers;
}

/// Of the evaluator; with the least recomputation where \a recomputed is not given.
std::optional<InnerSolution> Search::priced(const std::vector<std::int64_t>& counts,
                                            const std::vector<std::int64_t>* recomputed) {
  InnerSolution out;
  std::int64_t slowest = 0, tail = 0, offset = 0;
  Int128 sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto stage = static_cast<std::int64_t>(i);
    StageChoice c;
    if (recomputed != nullptr)
      c = inner_.with(stage, offset, counts[i], (*recomputed)[i]);
    else
      c = inner_.least(stage, offset, counts[i]);
    if (!c.fits) return std::nullopt;
    slowest = std::max(slowest, c.pace);
    tail = std::max(tail, c.tail);
    sum += c.pace;
    offset += counts[i];
    out.stage_layers.push_back(counts[i] * inner_.chunks());
    if (inner_.recomputes()) out.recompute_layers.push_back(c.recomputed);
  }
  out.nanoseconds = inner_.composition().step(slowest, sum, tail);
  return out;
}

std::optional<bool> Search::holds(const ast::Expr& e, const InnerSolution& s) const {
  LayoutValues values = values_;
  values.stage_layers = s.stage_layers;
  values.recompute_layers = s.recompute_layers;
  if (values.recompute_layers.empty()) values.recompute_layers.assign(s.stage_layers.size(), 0);
  return eval_condition(*problem_.module, *problem_.job, e, values);
}

bool Search::meets(const InnerSolution& s, const std::vector<const ast::Expr*>& parts) const {
  const auto among = [](const auto& lists, const std::vector<std::int64_t>& list) {
    return lists.empty() || std::find(lists.begin(), lists.end(), list) != lists.end();
  };
  return among(given_.stage_layers, s.stage_layers) &&
         (!inner_.recomputes() || among(given_.recompute_layers, s.recompute_layers)) &&
         std::all_of(parts.begin(), parts.end(),
                     [&](const ast::Expr* e) { return holds(*e, s).value_or(false); });
}

bool Search::acceptable(const InnerSolution& s) {
  if (!given_.accept || given_.accept(s)) return true;
  ++turned_away_;
  return false;
}

CoupledResult Search::run() {
  solve();
  if (query_) {
    result_.units = query_->solver().units();
    result_.checks = query_->solver().checks();
  }
  if (result_.status == CoupledResult::optimal) result_.lower_bound = result_.best->nanoseconds;
  if (result_.status == CoupledResult::none)
    result_.lower_bound = cutoff_ == Inner::kNoLimit ? cutoff_ : cutoff_ + 1;
  return result_;
}

void Search::solve() {
  if (inner_.round_layers() < inner_.stages()) {
    result_.status = CoupledResult::none;
    return;
  }
  if (try_simple_ways()) return;
  const std::int64_t below = result_.best ? result_.best->nanoseconds - 1 : cutoff_;
  tables_.emplace(inner_, by_recomputed_, below);
  if (tables_->empty()) {
    result_.status = result_.best ? CoupledResult::optimal : CoupledResult::none;
    return;
  }
  query_.emplace(*tables_, inner_.composition(), inner_.chunks());
  require_conditions();
  ask();
}

/// The way that is the fastest without conditions, and the default split: the first is the answer
/// if it meets them, the second is a bound, and the answer if it is as fast.
bool Search::try_simple_ways() {
  const std::optional<InnerSolution> free = plimsoll::solve(inner_, problem_, cutoff_);
  if (!free) {
    result_.status = CoupledResult::none;
    return true;
  }
  result_.lower_bound = free->nanoseconds;
  if (meets(*free, parts_) && acceptable(*free)) {
    result_.best = free;
    result_.status = CoupledResult::optimal;
    return true;
  }
  const std::vector<std::int64_t> split = usual();
  if (split.empty()) return false;
  const std::optional<InnerSolution> of_split = priced(split, nullptr);
  if (!of_split || of_split->nanoseconds > cutoff_ || *of_split == *free ||
      !meets(*of_split, parts_) || !acceptable(*of_split))
    return false;
  result_.best = of_split;
  if (of_split->nanoseconds > free->nanoseconds) return false;
  result_.status = CoupledResult::optimal;
  return true;
}

void Search::require_conditions() {
  const std::vector<Linear> nothing(static_cast<std::size_t>(inner_.stages()));
  ListTerms terms(problem_, values_, query_->solver(), query_->stage_layers(),
                  by_recomputed_ ? query_->recompute_layers() : nothing);
  for (const ast::Expr* part : parts_) {
    if (const std::optional<Term> term = terms.lower(*part))
      query_->solver().require(*term);
    else
      concrete_.push_back(part);
  }
  if (!given_.stage_layers.empty()) query_->require_layers(given_.stage_layers);
  if (by_recomputed_ && !given_.recompute_layers.empty())
    query_->require_recomputed(given_.recompute_layers);
}

InnerSolution Search::lists(const Dealt& dealt) const {
  InnerSolution out;
  for (const std::int64_t n : dealt.counts) out.stage_layers.push_back(n * inner_.chunks());
  if (inner_.recomputes()) out.recompute_layers = dealt.recomputed;
  return out;
}

/// The conditions that only concrete lists decide are told to the solver where it breaks one: as
/// what the entries that the condition names may not be together.
CoupledQuery::Found Search::check(std::vector<Term> assumptions, std::int64_t nanoseconds,
                                  std::int64_t units) {
  const std::int64_t end = query_->solver().units() + std::min(units, units_left());
  assumptions.push_back(query_->within(nanoseconds));
  CoupledQuery::Found found;
  for (;;) {
    if (stopped() || broken_ >= kMostBroken) return {};
    found = query_->check(end - query_->solver().units(), assumptions, budget_.stop);
    if (found.answer != Answer::sat) break;
    const InnerSolution here = lists(found.dealt);
    const auto broken = std::find_if(concrete_.begin(), concrete_.end(), [&](const ast::Expr* e) {
      return !holds(*e, here).value_or(false);
    });
    if (broken == concrete_.end()) break;
    ++broken_;
    query_->block(found.dealt, entries_read(**broken));
  }
  if (found.answer == Answer::sat && found.dealt.nanoseconds > nanoseconds)
    throw InternalError(
        fmt::format("a split of {} ns came out where at most {} ns were asked for\n{}",
                    found.dealt.nanoseconds, nanoseconds, query_->solver().smt2()));
  return found;
}

/// The fastest way that was not turned away yet, from result_.lower_bound on. A question that is
/// not answered for its share of the units is left, and asked again with all that remain at the
/// end.
Search::Attempt Search::fastest() {
  const std::int64_t most =
      std::min(query_->most_nanoseconds(), result_.best ? result_.best->nanoseconds - 1 : cutoff_);
  std::int64_t& low = result_.lower_bound;
  Attempt out;
  if (low > most) return {std::nullopt, true};
  // Upwards from the bound until there is one …
  for (std::int64_t gap = 0; !out.dealt; gap = gap == 0 ? 1 + low / kFirstGap : 4 * gap) {
    const std::int64_t asked = gap >= most - low ? most : low + gap;
    CoupledQuery::Found found = check({}, asked, asked == most ? units_left() : share_);
    if (found.answer == Answer::sat) {
      out.dealt = std::move(found.dealt);
    } else if (found.answer == Answer::unsat) {
      if (asked == most) return {std::nullopt, true};
      low = asked + 1;
    } else if (asked == most || units_left() <= 0) {
      return out;
    } else {
      share_ *= 2;
    }
  }
  // … then down to it.
  for (std::int64_t from = low; low < out.dealt->nanoseconds;) {
    const std::int64_t best = out.dealt->nanoseconds, gap = best - from;
    const std::int64_t asked = gap > from / 1024 ? from + gap / 2 : best - 1;
    CoupledQuery::Found found = check({}, asked, gap <= 1 ? units_left() : share_);
    if (found.answer == Answer::sat) {
      out.dealt = std::move(found.dealt);
      from = std::min(from, out.dealt->nanoseconds);
    } else if (found.answer == Answer::unsat) {
      low = from = asked + 1;
    } else if (gap <= 1 || units_left() <= 0) {
      return out;
    } else {
      from = asked + 1;
      share_ *= 2;
    }
  }
  out.proven = true;
  return out;
}

/// Lowers one list of \a dealt entry by entry to the first in the order of lists, at no more time.
/// False where the units ran out.
bool Search::lower_lists(Dealt& dealt, bool layers, std::vector<Term> fixed) {
  const std::int64_t most = dealt.nanoseconds;
  for (std::size_t i = 0; i < dealt.counts.size(); ++i) {
    const auto entry = [&] { return layers ? dealt.counts[i] : dealt.recomputed[i]; };
    for (;;) {
      std::vector<Term> assumptions = fixed;
      assumptions.push_back(layers ? query_->layers_at_most(i, entry() - 1)
                                   : query_->recomputed_at_most(i, entry() - 1));
      CoupledQuery::Found found = check(std::move(assumptions), most, units_left());
      if (found.answer == Answer::unknown) return false;
      if (found.answer == Answer::unsat) break;
      dealt = std::move(found.dealt);
    }
    fixed.push_back(layers ? query_->layers_at_most(i, entry())
                           : query_->recomputed_at_most(i, entry()));
    fixed.push_back(layers ? query_->layers_at_least(i, entry())
                           : query_->recomputed_at_least(i, entry()));
  }
  return true;
}

/// Among equally fast ways the default split, else the first in the order of lists.
void Search::first_of_equals(Dealt& dealt) {
  const auto pinned = [&](const std::vector<std::int64_t>& counts) {
    std::vector<Term> out;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      out.push_back(query_->layers_at_most(i, counts[i]));
      out.push_back(query_->layers_at_least(i, counts[i]));
    }
    return out;
  };
  bool done = false;
  if (const std::vector<std::int64_t> split = usual(); !split.empty() && by_recomputed_) {
    CoupledQuery::Found found = check(pinned(split), dealt.nanoseconds, units_left());
    done = found.answer == Answer::sat;
    if (done) dealt = std::move(found.dealt);
    if (found.answer == Answer::unknown) result_.first_of_equals = false;
  }
  // Without numbers of recomputed layers to choose, the default split was tried before.
  if (!done && !lower_lists(dealt, true, {})) result_.first_of_equals = false;
  if (by_recomputed_ && result_.first_of_equals && !lower_lists(dealt, false, pinned(dealt.counts)))
    result_.first_of_equals = false;
}

void Search::ask() {
  for (;;) {
    Attempt attempt = fastest();
    if (!attempt.dealt) {
      if (!attempt.proven) return;  // unknown
      result_.status = result_.best ? CoupledResult::optimal : CoupledResult::none;
      return;
    }
    if (attempt.proven) first_of_equals(*attempt.dealt);
    std::optional<InnerSolution> found =
        priced(attempt.dealt->counts, by_recomputed_ ? &attempt.dealt->recomputed : nullptr);
    if (!found || found->nanoseconds != attempt.dealt->nanoseconds)
      throw InternalError("the evaluator prices a split otherwise than the solver\n" +
                          query_->solver().smt2());
    if (!meets(*found, parts_))
      throw InternalError("a split does not meet a condition that the solver was told\n" +
                          query_->solver().smt2());
    if (acceptable(*found)) {
      result_.best = std::move(found);
      if (attempt.proven) result_.status = CoupledResult::optimal;
      return;
    }
    if (!attempt.proven || turned_away_ >= budget_.turned_away) return;
    query_->block(*attempt.dealt, {});
  }
}

}  // namespace

CoupledResult solve_coupled(Inner& inner, const Problem& problem, const Layout& outer,
                            const CoupledConditions& conditions, std::int64_t cutoff,
                            const CoupledBudget& budget) {
  return Search(inner, problem, outer, conditions, cutoff, budget).run();
}

}  // namespace plimsoll
