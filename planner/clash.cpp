// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/clash.hpp"

#include <algorithm>
#include <map>
#include <memory>

#include "lang/diagnostics.hpp"
#include "planner/segments.hpp"
#include "planner/smallest_core.hpp"
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
      : original_(problem), problem_(problem), clock_(problem_), pricer_(problem_) {
    collect();
  }

  const std::vector<Thing>& things() const { return things_; }
  bool can_hold(const std::vector<bool>& chosen);
  /// The layout that comes nearest to holding, and what its counted memory exceeds the GPU's by.
  std::optional<Layout> nearest(const std::vector<bool>& chosen, Int128& over);
  CoreItem item(const Thing&, const std::optional<StageBill>&) const;

 private:
  /// The job with some of the requirements and pins alone, and its thriftiest layouts. Stays where
  /// it is: the judge points into the job.
  struct Case {
    Job job;
    Diagnostics ignored;  // compile() has reported what is wrong with conditions
    std::optional<Judge> judge;
    std::optional<Space> space;
    std::vector<Layout> layouts;
    std::size_t held = 0;  ///< the layout that held last, which may hold again
  };

  void collect();
  Case& choose(const std::vector<bool>& chosen);
  void fill(Case&, const std::vector<bool>& lines);
  bool fits(const Layout&, Case&);
  Inner& inner();

  const Problem& original_;
  Problem problem_;  ///< of the case at hand
  Clock clock_;
  Pricer pricer_;
  std::map<CategoryMask, std::unique_ptr<Inner>> inner_;      ///< by what counts
  std::map<std::vector<bool>, std::unique_ptr<Case>> cases_;  ///< by requirements and pins
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

Clash::Case& Clash::choose(const std::vector<bool>& chosen) {
  counted_ = kEverything;
  std::vector<bool> lines;
  for (std::size_t i = 0; i < things_.size(); ++i) {
    if (things_[i].kind != Thing::category)
      lines.push_back(chosen[i]);
    else if (!chosen[i])
      counted_ &= ~(CategoryMask{1} << things_[i].index);
  }
  auto [at, fresh] = cases_.try_emplace(lines);
  if (fresh) at->second = std::make_unique<Case>();
  problem_.job = &at->second->job;
  if (fresh) fill(*at->second, lines);
  return *at->second;
}

void Clash::fill(Case& c, const std::vector<bool>& lines) {
  c.job = *original_.job;
  c.job.prefer.clear();
  c.job.objective = {};
  std::vector<bool> kept(c.job.require.size(), true);
  // Categories come last among the things.
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i]) continue;
    if (things_[i].kind == Thing::requirement)
      kept[things_[i].index] = false;
    else
      c.job.layout.erase(things_[i].variable);
  }
  std::vector<Condition> require;
  for (std::size_t i = 0; i < kept.size(); ++i)
    if (kept[i]) require.push_back(c.job.require[i]);
  c.job.require = std::move(require);
  c.judge.emplace(problem_, pricer_, c.ignored);
  c.space.emplace(problem_, *c.judge);
  thrifty_layouts(*c.space, [&](const Layout& l) {
    c.layouts.push_back(l);
    return true;
  });
}

Inner& Clash::inner() {
  auto& inner = inner_[counted_];
  if (!inner) inner = std::make_unique<Inner>(problem_, clock_, counted_);
  return *inner;
}

/// Does some way of dealing the layers fit, in the time that is required?
bool Clash::fits(const Layout& l, Case& c) {
  try {
    Env& env = c.space->env();
    c.space->set_env(l);
    if (!set_within_memory(inner(), problem_, l, *c.judge, env)) return false;
    if (!c.judge->bounds_time()) return can_fit(inner());
    const auto fastest = solve(inner(), problem_);
    if (!fastest) return false;
    Priced p;
    p.layout = with_lists(l, *fastest);
    p.time = clock_.step(p.layout);
    c.judge->set_derived(p, env);
    return c.judge->in_time(env);
  } catch (const ArithmeticError&) {
    return false;  // it has no price; another may
  }
}

bool Clash::can_hold(const std::vector<bool>& chosen) {
  Case& c = choose(chosen);
  if (c.layouts.empty()) return false;
  if (fits(c.layouts[c.held], c)) return true;
  for (std::size_t i = 0; i < c.layouts.size(); ++i)
    if (i != c.held && fits(c.layouts[i], c)) {
      c.held = i;
      return true;
    }
  return false;
}

std::optional<Layout> Clash::nearest(const std::vector<bool>& chosen, Int128& over) {
  Case& c = choose(chosen);
  const auto least = least_of_all(inner(), problem_, *c.space);
  if (!least) return std::nullopt;
  over = least->bytes - usable_memory(problem_, least->layout, 0);
  return least->layout;
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
      if (*out.bytes == 0 && original_.job->layout.contains("offload")) {
        out.name += " in host memory";
        out.bytes.reset();
      }
  }
  return out;
}

/// Of a server: the lines of its job alone. Its memory is told beside the nearest layout.
void find_serve_clash(const Problem& problem, PlanResult& result,
                      const std::function<bool()>& stop) {
  Clash clash(problem);
  std::vector<Thing> lines;
  for (const Thing& thing : clash.things())
    if (thing.kind != Thing::category) lines.push_back(thing);
  const auto can_serve = [&](const std::vector<bool>& chosen) {
    Job job = *problem.job;
    job.prefer.clear();
    std::vector<Condition> require;
    for (const Condition& c : problem.job->require)
      if (c.from_framework) require.push_back(c);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].kind == Thing::requirement && chosen[i])
        require.push_back(problem.job->require[lines[i].index]);
      if (lines[i].kind == Thing::pin && !chosen[i]) job.layout.erase(lines[i].variable);
    }
    job.require = std::move(require);
    Problem same = problem;
    same.job = &job;
    PlanOptions any;
    any.first_fit = true;
    any.stop = stop;
    Diagnostics said;
    return plan(same, any, said).status != PlanResult::infeasible;
  };
  CoreBudget budget;
  budget.stop = stop;
  const std::vector<std::int64_t> weights(lines.size(), 1);
  if (const auto core = smallest_core(weights, can_serve, budget))
    for (const std::size_t i : core->members)
      result.core.push_back(clash.item(lines[i], std::nullopt));
}

void clash_of(const Problem& problem, PlanResult& result, const std::function<bool()>& stop) {
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

}  // namespace

void find_clash(const Problem& problem, PlanResult& result, const std::function<bool()>& stop) {
  if (problem.job->serve) return find_serve_clash(problem, result, stop);
  if (!replays(problem) || !result.tightest) return clash_of(problem, result, stop);
  // With the segments that the nearest layout was found to have, where the factor says less.
  Problem same = problem;
  const Bill nearest = peak_bill(problem, result.tightest->layout);
  const StageBill& s = nearest.stages[static_cast<std::size_t>(nearest.peak_stage)];
  if (s.allocated_bytes > 0)
    same.inventory.reserved_factor = std::max(
        same.inventory.reserved_factor, Rational::fraction(s.reserved_bytes, s.allocated_bytes));
  clash_of(same, result, stop);
}

}  // namespace plimsoll
