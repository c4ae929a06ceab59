// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <string>

#include "planner/enumerate.hpp"
#include "planner/links.hpp"
#include "tests/catch.hpp"
#include "tests/unit/world.hpp"

/// What an attacker found in the planner: numbers at the edges, and searches that find nothing.
namespace plimsoll {
namespace {

using testing::World;

std::string train(const std::string& entries, const std::string& batch = "64",
                  const std::string& gpu = "h100_sxm") {
  return "cluster c { gpu = " + gpu + "  nodes = 2  gpus_per_node = 8 }\n" +
         "train j { model = llama3_8b  cluster = c  seq = 8Ki  batch = " + batch + "\n" + entries +
         " }\n";
}

PlanResult planned(World& world, std::int64_t top = 1) {
  PlanOptions options;
  options.top = top;
  return plan(*world, options, world.diags);
}

std::string said(const World& world) { return world.diags.render(world.module.sources(), false); }

}  // namespace

TEST_CASE("a batch of more than 32 bits is planned", "[plan]") {
  World world(train("", "2147483648"));
  const PlanResult r = planned(world);
  REQUIRE(r.best);
  CHECK(r.best->layout.batch == 2147483648);
  CHECK(r.best->time.nanoseconds > 0);
}

TEST_CASE("steps too long for their nanoseconds are an error, not a negative time", "[plan]") {
  World world(train("", "1000000000000000"));
  CHECK_FALSE(planned(world).best);
  CHECK(said(world).find("no layout of 'j' can be priced: a step of") != std::string::npos);
}

TEST_CASE("an objective without a value is an error at the objective", "[plan]") {
  for (const std::string objective : {"1 / (tp - 4)", "peak * peak * peak * peak"}) {
    World world(train("tp = 4  minimize " + objective));
    CHECK_FALSE(planned(world).best);
    CHECK(said(world).find("the objective '" + objective + "' has no value") != std::string::npos);
  }
}

TEST_CASE("GPUs without rates are named, and assumed links told", "[plan]") {
  World bare("gpu g { memory = 80 GiB  sm = 90 }\n" + train("", "64", "g"));
  CHECK_FALSE(planned(bare).best);
  CHECK(said(bare).find("has no field 'bandwidth'") != std::string::npos);
  World silent("gpu g = h100_sxm { nic = 0 B/s }\n" + train("", "64", "g"));
  CHECK(planned(silent).best);
  CHECK(said(silent).find("warning: gpu 'g' has no nic; step times assume 25 GB/s") !=
        std::string::npos);
}

TEST_CASE("where no layout is possible, the reason is told", "[plan]") {
  World schedule(train("schedule = zb_v"));
  const PlanResult none = planned(schedule);
  CHECK(none.status == PlanResult::infeasible);
  CHECK(none.why == "the requirement 'schedules that Megatron-LM runs' does not hold");
  World required(train("require tp == 3"));
  CHECK(planned(required).why == "the requirement 'tp == 3' does not hold");
}

TEST_CASE("offload needs host memory and the way to it", "[plan]") {
  World world(train("offload = 50%"));
  CHECK_FALSE(planned(world).best);
  CHECK(said(world).find("has no 'host_memory' and 'pcie'") != std::string::npos);
}

TEST_CASE("a server's replicas are searched and its sequences honoured", "[plan][serve]") {
  const std::string head = "cluster c { gpu = h100_sxm  nodes = 1  gpus_per_node = 8 }\n";
  const std::string job = "serve s { model = llama3_8b  cluster = c\ncontext = 8Ki\n";
  World most(head + job + "tp = 1  pp = 1 }\n");
  const PlanResult r = planned(most);
  REQUIRE(r.best);
  CHECK(r.best->layout.dp == 8);
  CHECK(r.best->layout.sequences == bill(*most, r.best->layout).sequences);
  World some(head + job + "sequences = 100 }\n");
  REQUIRE(planned(some).best);
  CHECK(planned(some).best->layout.sequences == 100);
  World many(head + job + "sequences = 100000 }\n");
  CHECK(planned(many).status == PlanResult::infeasible);
}

TEST_CASE("the slowest boundary between stages counts", "[time]") {
  World world(train(""));
  const Links links(*world.problem->cluster, world.problem->cluster->pools.front().gpu);
  const double bytes = 1e9;
  CHECK(links.send_between_stages(bytes, 2, 4) == links.send(bytes, 2));  // within a node
  CHECK(links.send_between_stages(bytes, 2, 8) == links.send(bytes, 8));
  CHECK(links.send(bytes, 8) > links.send(bytes, 2));
}

TEST_CASE("what does not divide is left out before anything is priced", "[plan]") {
  World free(train("")), named(train("tp in 1..4000  pp in 1..4000"));
  const PlanResult a = planned(free), b = planned(named);
  REQUIRE(a.best);
  REQUIRE(b.best);
  CHECK(a.best->time.nanoseconds == b.best->time.nanoseconds);
}

}  // namespace plimsoll
