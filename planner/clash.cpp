// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/clash.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "lang/diagnostics.hpp"
#include "planner/inner.hpp"
#include "planner/judge.hpp"
#include "planner/smallest_core.hpp"
#include "planner/space.hpp"
#include "planner/thrifty.hpp"

namespace plimsoll {

namespace {

/// One of the things that may clash.
struct Thing {
  enum Kind : std::uint8_t { requirement, pin, category } kind = requirement;
  std::size_t index = 0;  ///< of the requirement or the category
  std::string variable;   ///< of a pin
};

class Clash {
 public:
  explicit Clash(const Problem& problem)
      : original_(problem),
        job_(*problem.job),
        problem_(problem),
        clock_(problem_),
        pricer_(problem_) {
    problem_.job = &job_;
    collect();
  }

  const std::vector<Thing>& things() const { return things_; }
  bool can_hold(const std::vector<bool>& chosen);
  /// The layout that comes nearest to holding, and what its counted memory exceeds the GPU's by.
  std::optional<Layout> nearest(const std::vector<bool>& chosen, Int128& over);
  CoreItem item(const Thing&, const std::optional<StageBill>&) const;

 private:
  void collect();
  void choose(const std::vector<bool>& chosen);
  bool fits(const Layout&, Judge&, Space&);

  const Problem& original_;
  Job job_;          ///< with the chosen requirements and pins alone
  Problem problem_;  ///< of job_
  Clock clock_;
  Pricer pricer_;
  std::map<CategoryMask, std::unique_ptr<Inner>> inner_;  ///< by what counts
  CategoryMask counted_ = kEverything;
  std::vector<Thing> things_;
};

void Clash::collect() {
  for (std::size_t i = 0; i < original_.job->require.size(); ++i)
    if (!original_.job->require[i].from_framework) things_.push_back({Thing::requirement, i, ""});
  for (const auto& [variable, choice] : original_.job->layout)
    if (variable != "seq" && variable != "batch") things_.push_back({Thing::pin, 0, variable});
  std::vector<bool> used(kCategoryCount, false);
  for (const Item& item : original_.inventory.items)
    used[static_cast<std::size_t>(item.category)] = true;
  for (std::size_t c = 0; c < kCategoryCount; ++c)
    if (used[c]) things_.push_back({Thing::category, c, ""});
}

void Clash::choose(const std::vector<bool>& chosen) {
  job_ = *original_.job;
  job_.prefer.clear();
  job_.objective = {};
  counted_ = kEverything;
  std::vector<bool> kept(job_.require.size(), true);
  for (std::size_t i = 0; i < things_.size(); ++i) {
    if (chosen[i]) continue;
    switch (things_[i].kind) {
      case Thing::requirement:
        kept[things_[i].index] = false;
        break;
      case Thing::pin:
        job_.layout.erase(things_[i].variable);
        break;
      case Thing::category:
        counted_ &= ~(CategoryMask{1} << things_[i].index);
    }
  }
  std::vector<Condition> require;
  for (std::size_t i = 0; i < kept.size(); ++i)
    if (kept[i]) require.push_back(original_.job->require[i]);
  job_.require = std::move(require);
  auto& inner = inner_[counted_];
  if (!inner) inner = std::make_unique<Inner>(problem_, clock_, counted_);
}

/// Does some way of dealing the layers fit, in the time that is required?
bool Clash::fits(const Layout& l, Judge& judge, Space& space) {
  Inner& inner = *inner_[counted_];
  space.set_env(l);
  const auto memory = static_cast<std::int64_t>(usable_memory(problem_, l, 0));
  const std::int64_t cap = judge.memory_cap(space.env(), memory, 0);
  if (cap < 0) return false;
  // With unlike memories each stage has its own.
  inner.set(l, l.stage_pool.empty() ? cap : Inner::kNoLimit);
  if (!judge.bounds_time()) return can_fit(inner);
  const auto fastest = solve(inner, problem_);
  if (!fastest) return false;
  Priced p;
  p.layout = with_lists(l, *fastest);
  p.time = clock_.step(p.layout);
  judge.set_derived(p, space.env());
  return judge.in_time(space.env());
}

bool Clash::can_hold(const std::vector<bool>& chosen) {
  choose(chosen);
  Diagnostics ignored;  // compile() has reported what is wrong with conditions
  Judge judge(problem_, pricer_, ignored);
  Space space(problem_, judge);
  bool found = false;
  thrifty_layouts(space, [&](const Layout& l) {
    try {
      found = fits(l, judge, space);
    } catch (const ArithmeticError&) {
      // It has no price; another may.
    }
    return !found;
  });
  return found;
}

std::optional<Layout> Clash::nearest(const std::vector<bool>& chosen, Int128& over) {
  choose(chosen);
  Diagnostics ignored;
  Judge judge(problem_, pricer_, ignored);
  Space space(problem_, judge);
  Inner& inner = *inner_[counted_];
  std::optional<Layout> best;
  std::int64_t below = Inner::kNoLimit;
  thrifty_layouts(space, [&](const Layout& l) {
    try {
      const auto least = solve_for_peak(inner, problem_, l, below);
      if (!least) return true;
      std::int64_t peak = 0, offset = 0;
      for (std::int64_t i = 0; i < l.pp; ++i) {
        const auto k = static_cast<std::size_t>(i);
        const std::int64_t count = least->stage_layers[k] / l.vpp;
        const std::int64_t again = least->recompute_layers.empty() ? 0 : least->recompute_layers[k];
        peak = std::max(peak, inner.bytes(i, offset, count, again));
        offset += count;
      }
      below = peak - 1;
      best = with_lists(l, *least);
      over = peak - usable_memory(problem_, l, 0);
    } catch (const ArithmeticError&) {
      // It has no price; another may.
    }
    return true;
  });
  return best;
}

CoreItem Clash::item(const Thing& thing, const std::optional<StageBill>& stage) const {
  CoreItem out;
  const auto place = [&](Span span) {
    const Sources& sources = original_.module->sources();
    out.file = sources[span.file].name();
    out.line = sources[span.file].position(span.begin).line;
  };
  switch (thing.kind) {
    case Thing::requirement: {
      const Condition& c = original_.job->require[thing.index];
      out.name = c.name;
      place(c.span);
      break;
    }
    case Thing::pin: {
      const Choice& c = original_.job->layout.at(thing.variable);
      out.name = std::string(original_.module->sources().text(c.span));
      if (out.name.find(thing.variable) == std::string::npos)
        out.name = fmt::format("{} = {}", thing.variable, out.name);
      place(c.span);
      break;
    }
    case Thing::category:
      out.name = std::string(name(static_cast<Category>(thing.index)));
      out.bytes = stage ? stage->categories[thing.index] : Int128{0};
  }
  return out;
}

}  // namespace

void find_clash(const Problem& problem, PlanResult& result, const std::function<bool()>& stop) {
  Clash clash(problem);
  const std::vector<Thing>& things = clash.things();
  const std::vector<std::int64_t> weights(things.size(), 1);
  CoreBudget budget;
  budget.stop = stop;
  const std::optional<SmallestCore> core = smallest_core(
      weights, [&](const std::vector<bool>& chosen) { return clash.can_hold(chosen); }, budget);
  if (!core) return;
  std::vector<bool> chosen(things.size(), false);
  for (const std::size_t i : core->members) chosen[i] = true;
  std::optional<StageBill> stage;
  const bool of_memory = std::any_of(core->members.begin(), core->members.end(),
                                     [&](auto i) { return things[i].kind == Thing::category; });
  if (of_memory) {
    Int128 over = 0;
    if (const auto nearest = clash.nearest(chosen, over)) {
      stage = Pricer(problem).lines(*nearest);
      result.core_over = over;
    }
  }
  for (const std::size_t i : core->members) result.core.push_back(clash.item(things[i], stage));
}

}  // namespace plimsoll
