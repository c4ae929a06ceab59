// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/coupled.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>

#include "lang/conditions.hpp"
#include "lang/diagnostics.hpp"
#include "planner/enumerate.hpp"
#include "tests/catch.hpp"
#include "tests/unit/seed.hpp"

namespace plimsoll {
namespace {

constexpr int kConditions = 14;

std::int64_t below(std::mt19937& random, std::int64_t n) {
  return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random);
}

/// A condition over lists, of every kind that the language has.
std::string condition(std::mt19937& random, std::int64_t pp, std::int64_t layers) {
  const auto stage = [&] { return below(random, pp); };
  const auto s = [&] { return fmt::format("stage_layers[{}]", stage()); };
  const auto r = [&] { return fmt::format("recompute_layers[{}]", stage()); };
  const auto k = [&] { return std::max<std::int64_t>(layers / pp, 1) + below(random, 3) - 1; };
  switch (below(random, 30)) {
    case 0:
      return fmt::format("max(stage_layers) - min(stage_layers) <= {}", below(random, 4));
    case 1:
      return fmt::format("{} <= {}", s(), k());
    case 2:
      return fmt::format("{} >= {}", s(), k());
    case 3:
      return fmt::format("{} < {}", s(), s());
    case 4:
      return fmt::format("abs({} - {}) <= {}", s(), s(), below(random, 3));
    case 5:
      return fmt::format("sum(recompute_layers) <= {}", below(random, layers + 1));
    case 6:
      return fmt::format("{} == {}", r(), r());
    case 7:
      return fmt::format("mod({}, 2) == {}", s(), below(random, 2));
    case 8:
      return fmt::format("{} // 2 >= {}", s(), below(random, 3));
    case 9:
      return fmt::format("{} in {{{}, {}..{}}}", s(), below(random, 3), 3, 4 + below(random, 3));
    case 10:
      return fmt::format("{} > 2 => {} <= {}", s(), s(), k());
    case 11:
      return fmt::format("if({} > {}, {} == 0, {} >= 2)", s(), k(), r(), s());
    case 12:
      return fmt::format("not ({} == {})", s(), k());
    case 13:
      return fmt::format("{} * {} >= {}", s(), s(), k());
    case 14:
      return fmt::format("stage_layers[{}] <= {}", below(random, 8), k());
    case 15:
      return fmt::format("pp > 3 => stage_layers[3] >= {}", k());
    case 16:
      return fmt::format("{} <= {} or stage_layers[{}] >= 2", s(), k(), below(random, 8));
    case 17:
      return fmt::format("max({}, {}) <= 1.5 * min(stage_layers)", s(), r());
    case 18:
      return fmt::format("round(sum(recompute_layers) / 3) == {}", below(random, 3));
    case 19:
      return fmt::format("2 * {} + {} - {} / 2 <= {}", s(), s(), s(), 2 * k());
    case 20:
      return fmt::format("{} in 1..{} and {} != {}", s(), 1 + k(), s(), s());
    case 21:
      return fmt::format("ceil({} / 2) + floor({} / 3) >= {}", s(), s(), below(random, 4));
    case 22:
      return fmt::format("{} in stage_layers and len(stage_layers) == pp", 1 + below(random, 4));
    case 23:
      return fmt::format("max(recompute_layers) >= {} or dp > 100", below(random, 3));
    case 24:
      return fmt::format("({} >= 2) == ({} >= 2)", s(), s());
    case 25:
      return fmt::format("{} / {} <= 1.{}", s(), s(), below(random, 9));
    case 26:
      return fmt::format("{} / {} in {{1, 2..3}}", s(), s());
    case 27:
      return fmt::format("{} * {} in {}..{}", s(), s(), k(), 4 + 3 * k());
    case 28:
      return fmt::format("mod({}, {}) == {}", s(), s(), below(random, 2));
    default:
      return fmt::format("sum(stage_layers) - 2 * {} >= {}", s(), k());
  }
}

/// Two kinds of layers, so that it matters which ones a stage holds; or one.
std::string world(std::mt19937& random, std::int64_t narrow, std::int64_t wide, std::int64_t pp) {
  std::string text = fmt::format(R"(
gpu tiny = h100_sxm {{ memory = 80 GiB  reserved = 0 MiB }}
cluster c {{ gpu = tiny  nodes = 1  gpus_per_node = {} }}
model m {{
  param hidden = 512
  x = embedding(8192, hidden)
  repeat {} {{ x = x + swiglu(rmsnorm(x), 512) }}
)",
                                 pp, narrow);
  if (wide > 0)
    text += fmt::format(
        "  repeat {} {{ x = x + gqa(rmsnorm(x), 8, 4, 64)\n"
        "              x = x + swiglu(rmsnorm(x), 3072) }}\n",
        wide);
  text += "  loss = cross_entropy(linear(rmsnorm(x), 8192, split = column, name = head))\n}\n";
  text +=
      fmt::format("train t {{ model = m  cluster = c  seq = 2Ki  batch = {}  framework = plain\n",
                  pp * (1 + below(random, 3)));
  for (int i = 0; i < kConditions; ++i)
    text += "  require " + condition(random, pp, narrow + wide) + "\n";
  return text + "}\n";
}

struct Compiled {
  Module module;
  std::optional<Problem> problem;
};

std::unique_ptr<Compiled> compiled(const std::string& text) {
  Diagnostics diags;
  auto out = std::make_unique<Compiled>(Compiled{compile("coupled.plan", text, diags), {}});
  INFO(text);
  INFO(diags.render(out->module.sources(), false));
  REQUIRE(!diags.has_errors());
  out->problem = make_problem(out->module, *find_job(out->module, "t", diags), diags);
  REQUIRE(out->problem.has_value());
  return out;
}

/// Every way that fits, the best first.
std::vector<InnerSolution> every_way(Inner& inner, const Problem& p) {
  const std::int64_t stages = inner.stages(), round = inner.round_layers(), vpp = inner.chunks();
  std::vector<InnerSolution> out;
  std::map<std::array<std::int64_t, 4>, StageChoice> known;
  std::vector<std::int64_t> counts, again;
  const auto go = [&](auto&& self, std::int64_t offset, std::int64_t slowest, std::int64_t tail,
                      Int128 sum) -> void {
    const auto stage = static_cast<std::int64_t>(counts.size());
    if (stage == stages) {
      if (offset != round) return;
      InnerSolution s;
      for (const std::int64_t n : counts) s.stage_layers.push_back(n * vpp);
      if (inner.recomputes()) s.recompute_layers = again;
      s.nanoseconds = inner.composition().step(slowest, sum, tail);
      out.push_back(std::move(s));
      return;
    }
    for (std::int64_t n = 1; offset + n <= round - (stages - stage - 1); ++n)
      for (std::int64_t r = 0; r <= (inner.recomputes() ? n * vpp : 0); ++r) {
        const std::array<std::int64_t, 4> key = {stage, offset, n, r};
        if (!known.contains(key)) known[key] = inner.with(stage, offset, n, r);
        const StageChoice& c = known[key];
        if (!c.fits) continue;
        counts.push_back(n);
        again.push_back(r);
        self(self, offset + n, std::max(slowest, c.pace), std::max(tail, c.tail), sum + c.pace);
        counts.pop_back();
        again.pop_back();
      }
  };
  if (round >= stages) go(go, 0, 0, 0, 0);
  const std::vector<std::int64_t> usual = default_stage_layers(p.program->layer_count, stages);
  std::sort(out.begin(), out.end(), [&](const InnerSolution& a, const InnerSolution& b) {
    const auto key = [&](const InnerSolution& s) {
      return std::pair(s.nanoseconds, s.stage_layers != usual);
    };
    if (key(a) != key(b)) return key(a) < key(b);
    return std::tie(a.stage_layers, a.recompute_layers) <
           std::tie(b.stage_layers, b.recompute_layers);
  });
  return out;
}

struct Tally {
  int problems = 0, none = 0, bound = 0, asked = 0, recomputed = 0, turned_away = 0;
};

/// Checks one outer layout with some sets of the job's conditions.
void check_layout(const Problem& p, Inner& inner, const Layout& l, std::mt19937& random,
                  Tally& tally, bool dismiss) {
  const std::vector<InnerSolution> ways = every_way(inner, p);
  Env env = environment(p, l, 0);
  for (int set = 0; set < 3; ++set) {
    CoupledConditions conditions;
    std::string names;
    for (std::int64_t n = 1 + below(random, 2); n > 0; --n) {
      const Condition& c = p.job->require[static_cast<std::size_t>(below(random, kConditions))];
      conditions.require.push_back(c.expr);
      names += c.name + "; ";
    }
    // What only a priced layout can tell: here, a whim of ours.
    const std::int64_t whim = 1 + below(random, 5);
    const auto pleases = [&](const InnerSolution& s) {
      return (s.nanoseconds + 3 * s.stage_layers.front()) % whim == 0;
    };
    if (dismiss) conditions.accept = pleases;
    std::int64_t seen = 0;
    const InnerSolution* expected = nullptr;
    for (const InnerSolution& s : ways) {
      LayoutValues values{env, s.stage_layers, s.recompute_layers, {}, {}};
      values.recompute_layers.resize(s.stage_layers.size());
      if (dismiss && !pleases(s)) continue;
      ++seen;
      if (std::all_of(conditions.require.begin(), conditions.require.end(), [&](const auto* e) {
            return eval_condition(*p.module, *p.job, *e, values).value_or(false);
          })) {
        expected = &s;
        break;
      }
    }
    INFO("pp " << l.pp << " vpp " << l.vpp << " layers " << p.program->layer_count << " recompute "
               << l.recompute << ": " << names << (dismiss ? " whim " : "")
               << (dismiss ? whim : 0));
    const CoupledResult found = solve_coupled(inner, p, l, conditions);
    ++tally.problems;
    tally.asked += found.checks > 0;
    REQUIRE(found.status == (expected ? CoupledResult::optimal : CoupledResult::none));
    if (!expected) {
      ++tally.none;
      CHECK(!found.best);
      continue;
    }
    CHECK(found.first_of_equals);
    CHECK(*found.best == *expected);
    CHECK(found.lower_bound == expected->nanoseconds);
    tally.bound += expected->nanoseconds > ways.front().nanoseconds;
    tally.turned_away += seen > 1;
    tally.recomputed += std::any_of(expected->recompute_layers.begin(),
                                    expected->recompute_layers.end(), [](auto r) { return r > 0; });
    // With a cutoff: the same, or nothing.
    CHECK(solve_coupled(inner, p, l, conditions, expected->nanoseconds).best == *expected);
    const CoupledResult faster = solve_coupled(inner, p, l, conditions, expected->nanoseconds - 1);
    CHECK(faster.status == CoupledResult::none);
    CHECK(faster.lower_bound >= expected->nanoseconds);
    // Too few units: what comes out is true, if less.
    CoupledBudget few;
    few.units = 1 + below(random, 4000);
    const CoupledResult early = solve_coupled(inner, p, l, conditions, Inner::kNoLimit, few);
    CHECK(early.status != CoupledResult::none);
    CHECK(early.lower_bound <= expected->nanoseconds);
    if (early.best) CHECK(early.best->nanoseconds >= expected->nanoseconds);
    if (early.status == CoupledResult::optimal) {
      CHECK(early.best->nanoseconds == expected->nanoseconds);
      if (early.first_of_equals) CHECK(*early.best == *expected);
    }
  }
}

}  // namespace

TEST_CASE("dealing layers under conditions equals trying every list", "[planner][coupled]") {
  const unsigned seed = test::seed_of_run();
  std::mt19937 random(seed);
  INFO("PLIMSOLL_SEED=" << seed);
  Tally tally;
  for (int i = 0; i < 60; ++i) {
    const bool recompute = i % 2 == 1;
    const std::int64_t pp = 2 + below(random, recompute ? 2 : 7);
    const std::int64_t vpp = 1 + below(random, 2);
    const std::int64_t most = recompute ? 6 : 12;
    const std::int64_t rounds = std::min(pp + below(random, 4), most);
    const std::int64_t layers = vpp == 2 && 2 * rounds <= most ? 2 * rounds : rounds;
    const std::int64_t narrow = 1 + below(random, layers);
    const auto made = compiled(world(random, narrow, layers - narrow, pp));
    const Problem& p = *made->problem;
    Clock clock(p);
    Inner inner(p, clock);
    Layout l;
    l.pp = pp;
    l.vpp = layers == rounds ? 1 : 2;
    l.recompute = recompute ? kFullRecompute : RecomputeMode{0};
    resolve(p, l);
    l.stage_layers.clear();  // they would be pinned
    l.recompute_layers.clear();
    if (l.microbatches % pp != 0) l.vpp = 1, l.schedule = Schedule::one_f_one_b;
    // Memory as large as the fastest way needs, and around it.
    inner.set(l);
    const auto free = solve(inner, p);
    REQUIRE(free.has_value());
    std::int64_t need = 0, offset = 0;
    for (std::size_t s = 0; s < free->stage_layers.size(); ++s) {
      const std::int64_t count = free->stage_layers[s] / l.vpp;
      need = std::max(need, inner.bytes(static_cast<std::int64_t>(s), offset, count,
                                        recompute ? free->recompute_layers[s] : 0));
      offset += count;
    }
    for (const int percent : {115, 104, 98, 92}) {
      inner.set(l, need * percent / 100);
      if (recompute && percent == 115) continue;
      check_layout(p, inner, l, random, tally, percent == 104);
    }
  }
  std::printf(
      "coupled: seed %u, %d problems, %d without a way, %d slower for the conditions, %d asked a "
      "solver, %d with recomputation, %d past others\n",
      seed, tally.problems, tally.none, tally.bound, tally.asked, tally.recomputed,
      tally.turned_away);
  CHECK(tally.none > 0);
  CHECK(tally.bound > 0);
  CHECK(tally.asked > 0);
  CHECK(tally.recomputed > 0);
}

TEST_CASE("without full recomputation each stage has 0 recomputed layers", "[planner][coupled]") {
  const auto best = [](const std::string& require) {
    const auto made = compiled(fmt::format(R"(
cluster c {{ gpu = h100_sxm  nodes = 1  gpus_per_node = 4 }}
model m {{
  x = embedding(8192, 512)
  repeat 6 {{ x = x + swiglu(rmsnorm(x), 2048) }}
  loss = cross_entropy(linear(rmsnorm(x), 8192, split = column, name = head))
}}
train t {{ model = m  cluster = c  seq = 2Ki  batch = 16  pp = 2 {} }}
)",
                                           require));
    Diagnostics diags;
    const PlanResult result = plan(*made->problem, {}, diags);
    REQUIRE(result.status == PlanResult::optimal);
    return result.best->layout;
  };
  const Layout free = best("");
  REQUIRE(free.recompute == 0);
  CHECK(best("require recompute_layers[0] == 0") == free);
  CHECK(best("require sum(recompute_layers) <= 1") == free);
  const Layout some = best("require max(recompute_layers) >= 1");
  CHECK(some.recompute == kFullRecompute);
  CHECK(some.recompute_layers[0] + some.recompute_layers[1] == 1);
}

}  // namespace plimsoll
