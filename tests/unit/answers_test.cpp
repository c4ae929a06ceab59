// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "planner/enumerate.hpp"
#include "planner/on.hpp"
#include "planner/pareto.hpp"
#include "planner/preferences.hpp"
#include "planner/questions.hpp"
#include "planner/report_plan.hpp"
#include "tests/catch.hpp"
#include "tests/unit/world.hpp"

namespace plimsoll {
namespace {

using testing::World;

/// A model of 8 layers on 8 GPUs of \a memory_mib, with what the job says besides.
std::string small(int memory_mib, const std::string& body) {
  return fmt::format(R"(
gpu tiny = h100_sxm {{ memory = {} MiB  reserved = 0 MiB }}
gpu wide = h100_sxm {{ memory = 40 GiB  reserved = 0 MiB  price = 2 USD/h }}
gpu mute {{ memory = 40 GiB }}
cluster c {{ gpu = tiny  nodes = 1  gpus_per_node = 8 }}
model m {{
  param layers = 8, hidden = 1024
  x = embedding(16384, hidden)
  repeat layers {{
    x = x + gqa(rmsnorm(x), 8, 4, 128)
    x = x + swiglu(rmsnorm(x), 4096)
  }}
  loss = cross_entropy(linear(rmsnorm(x), 16384, split = column, name = head))
}}
train t {{ model = m  cluster = c  seq = 4Ki  batch = 32  framework = plain
  {} }}
)",
                     memory_mib, body);
}

PlanResult best_of(World& world) {
  PlanOptions one;
  one.top = 1;
  PlanResult r = plan(*world, one, world.diags);
  INFO(world.diags.render(world.module.sources(), false));
  REQUIRE(!world.diags.has_errors());
  return r;
}

TEST_CASE("a row of --on is what planning its file gives", "[on]") {
  World world(small(1200, "tokens = 1G  prefer tp == 1"));
  const PlanResult own = best_of(world);
  REQUIRE(own.best);
  const std::vector<OnGpu> rows = plan_on(*world, own, {"wide", "mute", "wide", "tiny"}, {});
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].own);
  CHECK(rows[0].gpu == "tiny");
  CHECK(rows[0].best->time.nanoseconds == own.best->time.nanoseconds);
  World changed(rows[1].plan_text);
  const PlanResult direct = best_of(changed);
  REQUIRE(direct.best);
  REQUIRE(rows[1].best);
  CHECK(changed.module.cluster("c")->pools.front().gpu.name == "wide");
  CHECK(rows[1].best->layout == direct.best->layout);
  CHECK(rows[1].best->time.nanoseconds == direct.best->time.nanoseconds);
  // More memory on the same chip is never slower.
  CHECK(rows[1].best->time.nanoseconds <= own.best->time.nanoseconds);
  CHECK(rows[1].best->cost);
  CHECK(!rows[0].best->cost);
  CHECK(!rows[2].best);
  CHECK(rows[2].why == "gpu 'mute' has no field 'bandwidth', which step times need");
  const auto json = nlohmann::json::parse(report::plan_json(*world, own, rows));
  CHECK(json["on"].size() == 3);
  CHECK(json["on"][2]["best"].is_null());
}

TEST_CASE("a GPU is replaced where its cluster stands in another file", "[on]") {
  Diagnostics diags;
  CompileOptions options;
  options.load = [](const std::string& path, std::string&) -> std::optional<std::string> {
    if (path != "clusters.plan") return std::nullopt;
    return "cluster c { gpu = h100_sxm  nodes = 1  gpus_per_node = 8 }";
  };
  const Module module = compile("job.plan",
                                "use \"clusters.plan\"\n"
                                "train t { model = llama3_8b  cluster = c  seq = 4Ki  batch = 8\n"
                                "  tp = 8  pp = 1 }\n",
                                diags, options);
  REQUIRE(!diags.has_errors());
  const auto problem = make_problem(module, module.jobs().front(), diags);
  REQUIRE(problem);
  PlanOptions one;
  one.top = 1;
  const auto rows = plan_on(*problem, plan(*problem, one, diags), {"h200"}, one, options);
  REQUIRE(rows.size() == 2);
  INFO(rows[1].why);
  REQUIRE(rows[1].best);
  CHECK(rows[1].best->hbm_bytes > rows[0].best->hbm_bytes);
}

TEST_CASE("what a preference cost is what planning without it gives", "[prefer]") {
  World world(small(1200,
                    "prefer \"a\": pp >= 4 weight 50  prefer \"b\": recompute == full\n"
                    "  prefer \"c\": headroom >= 70%  prefer \"d\": pp == 3"));
  PlanResult r = best_of(world);
  REQUIRE(r.best);
  const auto costs = price_preferences(*world, r, {});
  REQUIRE(costs.size() == 4);
  for (std::size_t i = 0; i < costs.size(); ++i) {
    INFO("preference " << costs[i].preference->name);
    CHECK(costs[i].proven);
    std::string body;
    for (const PreferenceCost& c : costs) {
      const bool itself = &c == &costs[i];
      if (itself && c.met) continue;
      body += fmt::format("{} {} {} ", itself ? "require" : "prefer",
                          world.module.sources().text(c.preference->expr->span),
                          itself ? "" : fmt::format("weight {}", c.preference->weight.str()));
    }
    World changed(small(1200, body));
    const PlanResult other = best_of(changed);
    CHECK(other.best.has_value() == costs[i].other.has_value());
    if (!other.best) continue;
    CHECK(other.best->layout == costs[i].other->layout);
    const double a = r.best->value.to_double(), b = other.best->value.to_double();
    CHECK(*costs[i].cost == Approx(costs[i].met ? std::max(0.0, 1 - b / a) : b / a - 1));
  }
  CHECK(costs[0].met);
  CHECK(*costs[0].cost > 0);
  CHECK(!costs[3].met);
  CHECK(!costs[3].other);
}

TEST_CASE("no layout of --pareto is dominated, and the first is the best", "[pareto]") {
  World world(small(1500, ""));
  PlanResult r = best_of(world);
  REQUIRE(r.best);
  find_pareto(*world, r, {});
  REQUIRE(!r.pareto.empty());
  CHECK(r.pareto.size() <= kMostPareto);
  CHECK(r.pareto.front().layout == r.best->layout);
  for (std::size_t i = 1; i < r.pareto.size(); ++i) {
    CHECK(r.pareto[i].time.nanoseconds > r.pareto[i - 1].time.nanoseconds);
    CHECK(r.pareto[i].headroom() > r.pareto[i - 1].headroom());
  }
}

/// The messages of check_questions for a job with this body.
std::string questions(const std::string& body) {
  World world(small(4000, body));
  Diagnostics diags;
  check_questions(*world, diags);
  std::string out;
  for (const Diagnostic* d : diags.sorted())
    out += fmt::format("{}: {}; ", world.module.sources().text(d->span), d->message);
  return out;
}

TEST_CASE("conditions that cannot choose are warned of, others are not", "[questions]") {
  CHECK(questions("require tp <= 4  require dp >= 2  prefer pp == 1  require headroom >= 5%\n"
                  "  require mfu > 0.1 and zero in {1, 3}  prefer stage_layers[0] == 1") == "");
  CHECK(questions("require pp == 3") ==
        "pp == 3: this requirement is never true, whatever pp is; ");
  CHECK(questions("require tp * cp > 64") ==
        "tp * cp > 64: this requirement is never true, whatever tp and cp are; ");
  CHECK(questions("prefer headroom > 20") ==
        "headroom > 20: this preference is never true, whatever headroom is; ");
  CHECK(questions("tp = 2  require tp <= 4") ==
        "tp <= 4: this requirement is about nothing that is free: it always holds; ");
  CHECK(questions("tp = 2  require tp > 4") ==
        "tp > 4: this requirement is about nothing that is free: it never holds; ");
  CHECK(questions("require gpus == 8") ==
        "gpus == 8: this requirement reads nothing that is free: it always holds; ");
  CHECK(questions("require pp >= 1") ==
        "pp >= 1: this requirement is always true, whatever pp is; ");
  CHECK(questions("require zero < 0 or mbs < 1") ==
        "zero < 0 or mbs < 1: this requirement is never true, whatever zero and mbs are; ");
  CHECK(questions("tp in {2, 4}  require tp == 2") == "");
  CHECK(questions("recompute in {none, full}  require recompute == full") == "");
  CHECK(questions("recompute = none  require recompute == full") ==
        "recompute == full: this requirement is about nothing that is free: it never holds; ");
}

TEST_CASE("a conflict is minimal: without any of its lines a layout is possible", "[questions]") {
  const std::string lines[] = {"tp = 4", "pp = 4", "mbs = 1", "require zero == 1",
                               "require cp <= 2"};
  std::string all;
  for (const std::string& line : lines) all += line + "\n  ";
  World world(small(4000, all));
  const auto core = find_conflict(*world);
  REQUIRE(core.size() == 3);
  CHECK(core[0].name == "pp = 4");
  CHECK(core[1].name == "tp = 4");
  CHECK(core[0].line == core[1].line + 1);
  CHECK(core[0].file == "world.plan");
  CHECK(core[2].name.starts_with("the "));
  CHECK(core[2].name.find(" GPUs of ") != std::string::npos);
  World one(small(4000, "tp in {2, 4}\n  require \"odd\": tp == 8\n  require mbs <= 4"));
  const auto named = find_conflict(*one);
  REQUIRE(named.size() == 2);
  CHECK(named[0].name == "tp in {2, 4}");
  CHECK(named[1].name == "odd");
}

}  // namespace
}  // namespace plimsoll
