// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/conditions.hpp"

#include <fmt/format.h>

#include "planner/enumerate.hpp"
#include "tests/catch.hpp"
#include "tests/unit/world.hpp"

namespace plimsoll {
namespace {

using testing::World;

std::string text_of(const std::string& body) {
  return fmt::format(R"(
cluster c {{ gpu = h100_sxm  nodes = 1  gpus_per_node = 4 }}
model m {{
  param layers = 6, hidden = 512
  x = embedding(4096, hidden)
  repeat layers {{ x = x + swiglu(rmsnorm(x), 2048) }}
  loss = cross_entropy(linear(rmsnorm(x), 4096, split = column, name = head))
}}
train t {{ model = m  cluster = c  seq = 2Ki  batch = 16  framework = plain
  {} }}
)",
                     body);
}

/// Of a layout of two stages with three layers each.
std::optional<bool> holds(const std::string& condition) {
  const World world(text_of("require " + condition));
  LayoutValues values;
  values.env[Var::pp] = 2;
  values.env[Var::tp] = 1;
  values.stage_layers = {3, 3};
  values.recompute_layers = {0, 0};
  const Job& job = *(*world).job;
  const Condition& c = job.require.front();
  return eval_condition(world.module, job, *c.expr, values);
}

TEST_CASE("what has no value does not hold, on whichever side it stands", "[conditions]") {
  CHECK(holds("stage_layers[1] == 3") == true);
  CHECK(holds("stage_layers[7] == 3") == std::nullopt);
  CHECK(holds("stage_layers[7] == 3 or pp == 2") == true);
  CHECK(holds("pp == 2 or stage_layers[7] == 3") == true);
  CHECK(holds("stage_layers[7] == 3 and pp == 2") == false);
  CHECK(holds("pp == 2 and stage_layers[7] == 3") == false);
  CHECK(holds("not stage_layers[7] == 3") == true);
  CHECK(holds("stage_layers[7] == 3 => pp == 1") == true);
  CHECK(holds("pp == 2 => stage_layers[7] == 3") == false);
  CHECK(holds("stage_layers[7] == 3 or stage_layers[9] == 3") == std::nullopt);
  CHECK(holds("(stage_layers[7] == 3 or pp == 2) and stage_layers[0] == 3") == true);
}

TEST_CASE("the planner finds the same, whichever side comes first", "[conditions][plan]") {
  const auto best = [](const std::string& condition) {
    World world(text_of("pp in {2, 4}  require " + condition));
    PlanOptions one;
    one.top = 1;
    PlanResult r = plan(*world, one, world.diags);
    return r.best ? std::optional<Layout>(r.best->layout) : std::nullopt;
  };
  for (const auto& [left, right] : {std::pair("stage_layers[3] == 1", "stage_layers[0] == 4"),
                                    std::pair("stage_layers[2] >= 2", "stage_layers[1] <= 2"),
                                    std::pair("stage_layers[9] == 3", "stage_layers[0] >= 4")}) {
    INFO(left << " or " << right);
    const auto one = best(fmt::format("{} or {}", left, right));
    const auto other = best(fmt::format("{} or {}", right, left));
    REQUIRE(one);
    CHECK(one == other);
    const auto both = best(fmt::format("({} or {}) and pp == 2", left, right));
    REQUIRE(both);
    CHECK(both == best(fmt::format("pp == 2 and ({} or {})", right, left)));
  }
  CHECK(!best("stage_layers[9] == 3 or stage_layers[8] == 2"));
}

}  // namespace
}  // namespace plimsoll
