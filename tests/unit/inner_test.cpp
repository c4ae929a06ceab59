// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/inner.hpp"

#include <fmt/format.h>

#include <random>

#include "lang/diagnostics.hpp"
#include "planner/peak.hpp"
#include "tests/catch.hpp"
#include "tests/unit/seed.hpp"

namespace plimsoll {
namespace {

/// Two kinds of layers, so that it matters which ones a stage holds; one where \a narrow is 0.
std::string world(int narrow, int wide, int gpus, int batch) {
  const std::string first =
      narrow == 0 ? "" : fmt::format("repeat {} {{ x = x + swiglu(rmsnorm(x), 512) }}", narrow);
  return fmt::format(R"(
gpu tiny = h100_sxm {{ memory = 80 GiB  reserved = 0 MiB }}
cluster c {{ gpu = tiny  nodes = 1  gpus_per_node = {} }}
model m {{
  param hidden = 512
  x = embedding(8192, hidden)
  {}
  repeat {} {{ x = x + gqa(rmsnorm(x), 8, 4, 64)
              x = x + swiglu(rmsnorm(x), 3072) }}
  loss = cross_entropy(linear(rmsnorm(x), 8192, split = column, name = head))
}}
train t {{ model = m  cluster = c  seq = 2Ki  batch = {}  framework = plain }}
)",
                     gpus, first, wide, batch);
}

struct Compiled {
  Module module;
  std::optional<Problem> problem;
};

std::unique_ptr<Compiled> compiled(const std::string& text) {
  Diagnostics diags;
  auto out = std::make_unique<Compiled>(Compiled{compile("inner.plan", text, diags), {}});
  REQUIRE(!diags.has_errors());
  out->problem = make_problem(out->module, *find_job(out->module, "t", diags), diags);
  REQUIRE(out->problem.has_value());
  return out;
}

std::int64_t below(std::mt19937& random, std::int64_t n) {
  return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random);
}

/// What a bill says of a solution.
Layout as_layout(Layout outer, const InnerSolution& s) {
  outer.stage_layers = s.stage_layers;
  outer.recompute_layers = s.recompute_layers;
  return outer;
}

}  // namespace

TEST_CASE("dealing layers by dynamic programming equals trying every list", "[planner]") {
  const unsigned seed = test::seed_of_run();
  std::mt19937 random(seed);
  INFO("PLIMSOLL_SEED=" << seed);
  int worlds = 0, infeasible = 0, uneven = 0, partly = 0;
  for (int i = 0; i < 40; ++i) {
    const auto pp = 1 + below(random, 4);
    const auto vpp = pp > 1 ? 1 + below(random, 2) : 1;
    const auto rounds = pp + below(random, 3);
    const auto layers = rounds * vpp;
    const auto narrow = i % 3 == 0 ? 0 : 1 + below(random, std::max<std::int64_t>(layers - 1, 1));
    const auto made = compiled(world(
        static_cast<int>(narrow), static_cast<int>(std::max<std::int64_t>(layers - narrow, 1)),
        static_cast<int>(pp), static_cast<int>(pp * (1 + below(random, 3)))));
    const Problem& p = *made->problem;
    Clock clock(p);
    Inner inner(p, clock);
    Pricer pricer(p);
    for (RecomputeMode mode = 0; mode < 2; ++mode) {
      Layout l;
      l.pp = pp;
      l.vpp = vpp;
      l.recompute = mode;
      resolve(p, l);
      l.stage_layers.clear();
      l.recompute_layers.clear();
      if (!why_impossible_outside(p, l).empty()) continue;
      // Caps around what an ordinary split needs, so that some bind and some cannot be met.
      inner.set(l);
      const auto free = solve_by_trying(inner, p);
      if (!free) continue;
      const Int128 need = pricer.peak(as_layout(l, *free)).bytes;
      for (const int percent : {100, 97, 90, 80, 65, 50}) {
        inner.set(l, static_cast<std::int64_t>(need) * percent / 100);
        const auto tried = solve_by_trying(inner, p);
        const auto found = solve(inner, p);
        INFO("pp " << pp << " vpp " << vpp << " layers " << p.program->layer_count << " mode "
                   << mode << " cap " << percent << " %");
        REQUIRE(found.has_value() == tried.has_value());
        CHECK(can_fit(inner) == tried.has_value());
        ++worlds;
        if (!found) {
          ++infeasible;
          continue;
        }
        CHECK(*found == *tried);
        CHECK(!solve(inner, p, found->nanoseconds - 1).has_value());
        CHECK(solve(inner, p, found->nanoseconds) == found);
        // The evaluator says the same.
        const Layout whole = as_layout(l, *found);
        CHECK(clock.step(whole).nanoseconds == found->nanoseconds);
        CHECK(pricer.peak(whole).bytes <= need * percent / 100);
        uneven += found->stage_layers != default_stage_layers(p.program->layer_count, pp);
        for (std::size_t k = 0; k < found->recompute_layers.size(); ++k)
          partly +=
              found->recompute_layers[k] > 0 && found->recompute_layers[k] < found->stage_layers[k];
      }
    }
  }
  std::printf(
      "inner: seed %u, %d problems, %d infeasible, %d uneven, %d stages partly recomputed\n", seed,
      worlds, infeasible, uneven, partly);
  CHECK(infeasible > 0);
  CHECK(uneven > 0);
  CHECK(partly > 0);
}

TEST_CASE("a stage recomputes the fewest layers with which it fits", "[planner]") {
  const unsigned seed = test::seed_of_run();
  std::mt19937 random(seed);
  INFO("PLIMSOLL_SEED=" << seed);
  int asked = 0, partly = 0, never = 0;
  for (int i = 0; i < 24; ++i) {
    const std::int64_t pp = 2 + below(random, 3), vpp = 1 + below(random, 3);
    const std::int64_t layers = pp * vpp * (2 + below(random, 3));
    const std::int64_t narrow = i % 2 == 0 ? 0 : 1 + below(random, layers - 1);
    std::string text = world(static_cast<int>(narrow), static_cast<int>(layers - narrow),
                             static_cast<int>(2 * pp), static_cast<int>(4 * pp));
    const std::string plain = "framework = plain";
    const char* frameworks[] = {"megatron", "torchtitan", "plain"};
    text.replace(text.find(plain), plain.size(), fmt::format("framework = {}", frameworks[i % 3]));
    const auto made = compiled(text);
    const Problem& p = *made->problem;
    Clock clock(p);
    Inner inner(p, clock);
    Layout l;
    l.pp = pp;
    l.vpp = vpp;
    l.recompute = kFullRecompute;
    l.zero = static_cast<int>(below(random, 4));
    l.mbs = 1 + below(random, 2);
    resolve(p, l);
    l.stage_layers.clear();
    l.recompute_layers.clear();
    if (!why_impossible_outside(p, l).empty()) continue;
    for (int k = 0; k < 40; ++k) {
      const std::int64_t stage = below(random, pp);
      const std::int64_t offset = stage == 0 ? 0 : 1 + below(random, layers / vpp - 1);
      const std::int64_t count = 1 + below(random, layers / vpp - offset);
      inner.set(l);
      const std::int64_t some = inner.bytes(stage, offset, count, below(random, count * vpp + 1));
      inner.set(l, some + below(random, 3) - 1 - (k % 4 == 0 ? some / 50 : 0));
      std::int64_t fewest = 0;
      while (fewest <= count * vpp && !inner.with(stage, offset, count, fewest).fits) ++fewest;
      const StageChoice& least = inner.least(stage, offset, count);
      INFO("pp " << pp << " vpp " << vpp << " stage " << stage << " offset " << offset << " count "
                 << count << "\n"
                 << text);
      ++asked;
      REQUIRE(least.fits == (fewest <= count * vpp));
      if (least.fits) CHECK(least.recomputed == fewest);
      partly += least.fits && fewest > 0;
      never += !least.fits;
    }
  }
  std::printf("fewest layers: seed %u, %d stages, %d recompute some, %d do not fit\n", seed, asked,
              partly, never);
  CHECK(partly > 50);
  CHECK(never > 20);
}

TEST_CASE("stages whose offloaded states exceed the host's share are not dealt", "[planner]") {
  int bound = 0, infeasible = 0;
  for (const int pp : {1, 2, 3})
    for (const int narrow : {0, 2}) {
      const auto made = compiled(world(narrow, 5 - narrow, pp, pp));
      Cluster cluster = *made->problem->cluster;
      Problem p = *made->problem;
      p.cluster = &cluster;
      Layout l;
      l.pp = pp;
      l.recompute = 1;
      l.offload = Rational::fraction(1, 2);
      resolve(p, l);
      l.stage_layers.clear();
      l.recompute_layers.clear();
      const auto share = [&](Int128 bytes) {
        cluster.host_memory = bytes * cluster.pools[0].gpus_per_node;
      };
      share(Int128{1} << 50);
      Clock clock(p);
      Inner inner(p, clock);
      Pricer pricer(p);
      inner.set(l);
      const auto free = solve_by_trying(inner, p);
      REQUIRE(free);
      const Int128 need = pricer.peak(as_layout(l, *free)).host_bytes;
      CHECK(need > 0);
      for (const int percent : {100, 99, 90, 80, 70, 60, 50, 30}) {
        INFO("pp " << pp << " narrow " << narrow << " share " << percent << " %");
        share(need * percent / 100);
        Inner limited(p, clock);
        limited.set(l);
        const auto tried = solve_by_trying(limited, p);
        const auto found = solve(limited, p);
        CHECK(found == tried);
        CHECK(can_fit(limited) == tried.has_value());
        infeasible += !found;
        if (!found) continue;
        bound += found->stage_layers != free->stage_layers;
        const Pricer::Peak peak = pricer.peak(as_layout(l, *found));
        CHECK(peak.fits);
        CHECK(peak.host_bytes <= need * percent / 100);
      }
    }
  CHECK(bound > 0);
  CHECK(infeasible > 0);
}

TEST_CASE("stages on unlike GPUs are dealt as trying every list deals them", "[planner]") {
  int found_some = 0, uneven = 0, infeasible = 0;
  for (const char* first : {"tiny", "slow"})
    for (const std::vector<std::uint32_t>& pools :
         {std::vector<std::uint32_t>{0, 1}, {1, 0}, {0, 1, 1}, {1, 0, 0}, {0, 0, 1, 1}})
      for (const int layers : {5, 8}) {
        std::string text = world(0, layers, 1, 12);
        const std::string one = "cluster c { gpu = tiny  nodes = 1  gpus_per_node = 1 }";
        const auto gpus = [&](std::uint32_t pool) {
          return std::count(pools.begin(), pools.end(), pool);
        };
        text.replace(
            text.find(one), one.size(),
            fmt::format(
                "gpu slow = a100_80gb {{ memory = 80 GiB  reserved = 0 MiB }}\ncluster c {{ "
                "pool a {{ gpu = {}  nodes = 1  gpus_per_node = {} }}  pool b {{ gpu = {}  "
                "nodes = 1  gpus_per_node = {} }} }}",
                first, gpus(0), first == std::string_view("tiny") ? "slow" : "tiny", gpus(1)));
        const auto made = compiled(text);
        const Problem& p = *made->problem;
        Clock clock(p);
        Inner inner(p, clock);
        Pricer pricer(p);
        Layout l;
        l.pp = std::ssize(pools);
        l.recompute = kFullRecompute;
        l.stage_pool = pools;
        resolve(p, l);
        l.stage_layers.clear();
        l.recompute_layers.clear();
        inner.set(l);
        const auto free = solve_by_trying(inner, p);
        REQUIRE(free);
        const Int128 need = pricer.peak(as_layout(l, *free)).bytes;
        for (const int percent : {100, 95, 85, 70, 50}) {
          INFO(text << "cap " << percent << " %, stage 0 on pool " << pools[0]);
          inner.set(l, static_cast<std::int64_t>(need) * percent / 100);
          const auto tried = solve_by_trying(inner, p);
          const auto found = solve(inner, p);
          CHECK(found == tried);
          if (!tried) {
            ++infeasible;
            continue;
          }
          CHECK(solve(inner, p, tried->nanoseconds) == tried);
          CHECK(!solve(inner, p, tried->nanoseconds - 1));
          ++found_some;
          uneven += tried->stage_layers != default_stage_layers(layers, l.pp);
        }
      }
  CHECK(found_some > 40);
  CHECK(uneven > 20);
  CHECK(infeasible > 5);
}

TEST_CASE("lists that a job pins are kept to", "[planner]") {
  const auto made = compiled(world(3, 4, 3, 6));
  const Problem& p = *made->problem;
  Clock clock(p);
  Inner inner(p, clock);
  Layout l;
  l.pp = 3;
  l.recompute = 1;
  resolve(p, l);
  l.stage_layers = {1, 2, 4};
  l.recompute_layers = {1, 0, 2};
  inner.set(l);
  const auto both = solve(inner, p);
  REQUIRE(both.has_value());
  CHECK(both->stage_layers == l.stage_layers);
  CHECK(both->recompute_layers == l.recompute_layers);
  CHECK(both->nanoseconds == clock.step(l).nanoseconds);
  l.recompute_layers = {1, 3, 2};  // of a stage of two layers
  inner.set(l);
  CHECK(!solve(inner, p).has_value());
  l.stage_layers.clear();
  inner.set(l);
  const auto found = solve(inner, p), tried = solve_by_trying(inner, p);
  REQUIRE(found.has_value());
  REQUIRE(tried.has_value());
  CHECK(found->stage_layers == tried->stage_layers);
  CHECK(found->recompute_layers == tried->recompute_layers);
  CHECK(found->nanoseconds == tried->nanoseconds);
}

TEST_CASE("the least peak is one that some way has, and none has less", "[planner]") {
  const auto made = compiled(world(3, 4, 3, 6));
  const Problem& p = *made->problem;
  Clock clock(p);
  Inner inner(p, clock);
  Pricer pricer(p);
  for (RecomputeMode mode = 0; mode < 2; ++mode) {
    Layout l;
    l.pp = 3;
    l.recompute = mode;
    resolve(p, l);
    l.stage_layers.clear();
    l.recompute_layers.clear();
    const auto found = solve_for_peak(inner, p, l);
    REQUIRE(found.has_value());
    const Int128 peak = pricer.peak(as_layout(l, *found)).bytes;
    CHECK(peak > 0);
    inner.set(l, static_cast<std::int64_t>(peak));
    CHECK(solve_by_trying(inner, p) == found);
    inner.set(l, static_cast<std::int64_t>(peak) - 1);
    CHECK(!solve_by_trying(inner, p).has_value());
  }
}

}  // namespace plimsoll
