// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/why.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "planner/explain.hpp"
#include "planner/growth.hpp"
#include "tests/catch.hpp"
#include "tests/unit/world.hpp"

namespace plimsoll {
namespace {

using testing::World;

std::string world_text(int memory_mib, const std::string& body) {
  return fmt::format(R"(
gpu tiny = h100_sxm {{ memory = {} MiB  reserved = 0 MiB }}
cluster c {{ gpu = tiny  nodes = 1  gpus_per_node = 4 }}
model m {{
  param layers = 4, hidden = 512
  x = embedding(8192, hidden)
  repeat layers {{
    x = x + gqa(rmsnorm(x), 8, 4, 64)
    x = x + swiglu(rmsnorm(x), 2048)
  }}
  loss = cross_entropy(linear(rmsnorm(x), 8192, split = column, name = head))
}}
train t {{ model = m  cluster = c  seq = 4Ki  batch = 48  framework = plain
  {} }}
)",
                     memory_mib, body);
}

Layout best_layout(const World& world) {
  Diagnostics diags;
  const PlanResult r = plan(*world, {}, diags);
  REQUIRE(r.best);
  return r.best->layout;
}

bool fits(const World& world, Layout l) {
  resolve(*world, l);
  return why_impossible(*world, l).empty() && Pricer(*world).peak(l).fits;
}

TEST_CASE("growth finds the largest that fits, and the next that does not", "[why]") {
  for (const int memory : {600, 1500, 6000}) {
    const World world(world_text(memory, "tp in {1, 2}"));
    const Layout l = best_layout(world);
    for (const Growth& g : growth(*world, l)) {
      INFO(memory << " MiB, " << describe(*world, l) << ": " << g.knob);
      const auto with = [&](std::int64_t value) {
        Layout x = l;
        (g.knob == "seq" ? x.seq : g.knob == "mbs" ? x.mbs : x.batch) = value;
        return fits(world, x);
      };
      CHECK(g.largest >= g.now);
      CHECK(with(g.largest));
      if (g.next > 0) CHECK(!with(g.next));
      if (g.endless) continue;
      // Nothing between them fits, tried one by one.
      for (std::int64_t v = g.largest + 1; v <= std::min(g.next, g.largest + 5000); ++v)
        if (v % 1024 == 0 || g.knob != "seq") CHECK(!with(v));
    }
  }
}

TEST_CASE("a layout is set beside the planner's, and beside what memory keeps away", "[why]") {
  const World world(world_text(1500, ""));
  Diagnostics diags;
  const PlanResult planned = plan(*world, {}, diags);
  REQUIRE(planned.best);
  Layout slow = planned.best->layout;
  slow.recompute = 1;
  slow.recompute_layers = slow.stage_layers;
  PlanOptions options;
  options.top = 2;
  const Why because = why(*world, slow, options);
  REQUIRE(because.own);
  CHECK(because.own->priced.time.nanoseconds == Clock(*world).step(slow).nanoseconds);
  REQUIRE(because.others.size() == 2);
  CHECK(because.others[0].priced.layout == planned.best->layout);
  const Why of_best = why(*world, planned.best->layout, options);
  REQUIRE(of_best.others.size() == 2);
  CHECK(of_best.others[0].priced.layout == planned.alternatives.front().layout);
  for (const Rival& r : of_best.beyond) {
    CHECK(r.priced.peak_bytes > r.priced.hbm_bytes);
    CHECK(r.priced.hbm_bytes == planned.best->hbm_bytes);
    CHECK(r.priced.time.nanoseconds < planned.best->time.nanoseconds);
  }
  for (const Rival& r : because.others) {
    Int128 sum = 0;
    for (const Int128 bytes : r.categories) sum += bytes;
    CHECK(sum == r.priced.peak_bytes);
  }
  const World roomy(world_text(60'000, ""));
  CHECK(why(*roomy, best_layout(roomy), options).beyond.empty());
}

TEST_CASE("single steps tell their time", "[why]") {
  const World world(world_text(3000, "require tp <= 2"));
  const Layout l = best_layout(world);
  const auto steps = single_steps(*world, l);
  REQUIRE(steps.size() > 4);
  for (const SingleStep& s : steps) {
    INFO(s.change);
    CHECK(s.nanoseconds == Clock(*world).step(s.layout).nanoseconds);
    CHECK(why_impossible(*world, s.layout).empty());
  }
  const Bill b = bill(*world, l);
  const auto json = nlohmann::json::parse(
      report::explain_json(report::heading(*world, l), b, steps, why(*world, l, {})));
  CHECK(json["schema"] == "plimsoll.explain/1");
  CHECK(json["steps"].size() == steps.size());
  CHECK(json["binds"]["peak_bytes"] == static_cast<std::int64_t>(b.peak_bytes));
}

}  // namespace
}  // namespace plimsoll
