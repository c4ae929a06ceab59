// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <array>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "planner/certificate.hpp"
#include "planner/enumerate.hpp"
#include "planner/inner.hpp"
#include "planner/judge.hpp"
#include "planner/space.hpp"

/// The search behind plan(), private to planner/. Cores wait in the order of their bounds; one that
/// comes first is opened and its leaves wait in turn; a leaf that comes first has its stages
/// settled (search_stages.cpp); the search ends when what comes first cannot be among the best any
/// more.
namespace plimsoll {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// What one search may ask of the solver in all, in its own units (some seconds), and how many ways
/// of dealing layers a condition that only a priced layout decides may turn away: of one outer
/// layout, and in all. Past that the answer is the best found, with a gap.
inline constexpr std::int64_t kSolverUnits = 40'000'000;
inline constexpr std::int64_t kTurnedAway = 16;
inline constexpr std::int64_t kMostTurnedAway = 240;
/// How often the stages of one outer layout are settled anew because of their segments.
inline constexpr int kMostRefusals = 64;

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

using PointKey = std::array<std::int64_t, 17>;

PointKey key_of(const Point&);
PointKey core_key(Point);  ///< of what a core decides

struct PointHash {
  std::size_t operator()(const PointKey& k) const {
    std::uint64_t h = 1469598103934665603ull;
    for (const std::int64_t v : k) h = (h ^ static_cast<std::uint64_t>(v)) * 1099511628211ull;
    return static_cast<std::size_t>(h ^ (h >> 29));
  }
};

/// The best bound comes first, equal ones in the order of enumeration.
struct Later {
  bool operator()(const Entry& a, const Entry& b) const {
    return std::tie(a.score, a.ns, a.number) > std::tie(b.score, b.ns, b.number);
  }
};

/// Of two layouts that hold, which one comes first?
bool better(const Priced&, const Priced&);

/// One search; made for one call of run().
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
  void bound_core(const Layout&, Env&, Entry&);
  void bound_leaf(const Layout&, Env&, Entry&);
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
  void solve_for_time(const Entry&, const Layout&, std::int64_t cap);
  void solve_coupled_stages(const Entry&, const Layout&, std::int64_t cap);
  /// Prices what was found; false where it breaks a requirement, or its segments do not fit.
  bool settle(const Layout&, const Entry&);
  /// Do its segments fit, and does it meet all that the entry asks for, as a bill of it says?
  bool holds_replayed(const Priced&, const Entry&);
  /// Tells the dynamic programme of the stages whose segments do not fit. False where all do.
  bool refuse_stages(const Layout&, std::int64_t cap);
  /// The entry's answer is open: it ran into a limit of its own.
  void leave_open(const Entry&);
  /// The numbers that are printed, in the place of those that the search went by.
  void set_exact(Priced&);
  Priced priced(const Layout&);
  std::optional<Layout> without_recompute(const Layout&);
  void give_up_preferences(const Entry&);
  /// Weights, added up, of the preferences that need not or do not hold, the outer variables set.
  Rational unmet_percent(const Entry&);
  std::int64_t cap_of(const Layout&, const Entry&);
  std::int64_t cutoff_of(const Entry&) const;
  bool price_serving(Priced&);
  void serve(const Entry&);
  /// Errors of a search that found nothing because nothing could be computed.
  bool report_without_value();
  void remember(Priced);
  bool full() const { return static_cast<std::int64_t>(best_.size()) >= keep_; }
  void find_tightest();
  /// Has a solver certify that no core was left out, and looks at each again. Throws InternalError
  /// where one was.
  void prove();
  Verdict known(const Layout& core);
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
  std::vector<Priced> best_;                             ///< sorted
  std::unordered_map<PointKey, bool, PointHash> cores_;  ///< those that were met: opened?
  std::unordered_set<PointKey, PointHash> settled_;      ///< leaves that were looked into
  std::map<std::uint64_t, std::vector<const Condition*>> coupling_;  ///< by preferences kept
  std::int64_t solver_units_ = kSolverUnits, turned_away_ = kMostTurnedAway;  ///< left
  /// Ways off the front of time and peak were not looked at, and the objective may like them.
  bool open_objective_ = false;
  double undecided_ = kInfinity;  ///< the least score of what the solver left open
  bool refused_ = false;          ///< segments ruled out some layout
  bool refused_front_ = false;    ///< segments ruled out a way, and others were not looked at
  std::string unpriced_;          ///< why the first layout without a price has none
  PlanResult result_;
};

}  // namespace plimsoll
