// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/suggest.hpp"

#include <fmt/format.h>

#include <random>

#include "planner/feasible.hpp"
#include "tests/catch.hpp"
#include "tests/unit/world.hpp"

namespace plimsoll {
namespace {

using testing::World;

std::string world_text(int nodes, int memory_mib, const std::string& body,
                       const char* framework = "megatron") {
  return fmt::format(R"(
gpu tiny = h100_sxm {{ memory = {} MiB  reserved = 0 MiB }}
cluster c {{ gpu = tiny  nodes = {}  gpus_per_node = 2  host_memory = 64 GiB  pcie = 50 GB/s }}
model m {{
  param layers = 6, hidden = 512
  x = embedding(8192, hidden)
  repeat layers {{
    x = x + gqa(rmsnorm(x), 8, 4, 64)
    x = x + swiglu(rmsnorm(x), 2048)
  }}
  loss = cross_entropy(linear(rmsnorm(x), 8192, split = column, name = head))
}}
train t {{ model = m  cluster = c  seq = 4Ki  batch = 48  framework = {}
  {} }}
)",
                     memory_mib, nodes, framework, body);
}

PlanResult planned(const std::string& text, bool first = true) {
  World world(text);
  PlanOptions options;
  options.top = 1;
  options.first_fit = first;
  PlanResult r = plan(*world, options, world.diags);
  INFO(world.diags.render(world.module.sources(), false));
  REQUIRE(!world.diags.has_errors());
  return r;
}

TEST_CASE("a quick answer is a layout that fits, and says no where nothing does", "[suggest]") {
  const std::string bodies[] = {"",
                                "require zero <= 1  require tp == 1",
                                "recompute = none  mbs = 2",
                                "require headroom >= 20%",
                                "require max(stage_layers) - min(stage_layers) <= 1",
                                "require step_time <= 40 ms",
                                "offload in {0, 1}  pp = 2"};
  int yes = 0, no = 0;
  for (const std::string& body : bodies)
    for (const int memory : {800, 1000, 1300, 1700, 2200, 3000}) {
      INFO(body << ", " << memory << " MiB");
      World world(world_text(2, memory, body));
      const auto found = any_fit(*world);
      const PlanResult r = planned(world_text(2, memory, body));
      CHECK(found.has_value() == r.best.has_value());
      if (!found) {
        ++no;
        continue;
      }
      ++yes;
      const Bill b = bill(*world, found->layout);
      CHECK(b.fits);
      CHECK(b.peak_bytes == found->peak_bytes);
      CHECK(why_impossible(*world, found->layout).empty());
    }
  CHECK(yes > 5);
  CHECK(no > 5);
}

TEST_CASE("the number of nodes that is suggested is the smallest that fits", "[suggest]") {
  int told = 0;
  for (const int memory : {50, 90, 160, 200, 300}) {
    World world(world_text(1, memory, "", "plain"));
    if (planned(world_text(1, memory, "", "plain")).best) continue;
    for (const Relaxation& r : suggest(*world)) {
      INFO(memory << " MiB: " << r.change);
      CHECK(planned(r.plan_text).best);
      if (!r.change.starts_with("use ") || !r.change.ends_with("GPUs")) continue;
      if (r.value.find_first_not_of("0123456789") != std::string::npos) continue;
      ++told;
      for (int nodes = 1; nodes < std::stoi(r.value); ++nodes)
        CHECK(!planned(world_text(nodes, memory, "", "plain")).best);
    }
  }
  CHECK(told > 0);
}

TEST_CASE("every kind of change is found where it is what it takes", "[suggest]") {
  const auto changes = [](int memory, const std::string& body) {
    World world(world_text(1, memory, body));
    std::string out;
    for (const Relaxation& r : suggest(*world)) {
      INFO(r.change);
      CHECK(planned(r.plan_text).best);
      out += r.change + "; ";
    }
    return out;
  };
  CHECK(changes(900, "").find("8-bit optimizer") != std::string::npos);
  CHECK(changes(900, "").find("of the optimizer states in host memory") != std::string::npos);
  CHECK(changes(900, "").find("train an adapter") != std::string::npos);
  CHECK(changes(900, "").find("use ") != std::string::npos);
  CHECK(changes(800, "zero = 1  recompute = none")
            .find("set recompute = full, or leave it to the planner") != std::string::npos);
  CHECK(changes(1400, "require \"whole\": recompute == none  require mbs == 24")
            .find("drop the requirement") != std::string::npos);
}

TEST_CASE("a pin that keeps everything out is told with a value that would do", "[suggest]") {
  int named = 0;
  for (const char* pin : {"recompute = none", "mbs = 24", "zero = 0", "zero in {0, 1}  pp = 1"})
    for (const int memory : {700, 800, 1000, 1200}) {
      World world(world_text(1, memory, pin));
      if (planned(world_text(1, memory, pin)).best) continue;
      for (const Relaxation& r : suggest(*world)) {
        if (!r.change.starts_with("set ")) continue;
        ++named;
        INFO(pin << ", " << memory << " MiB: " << r.change);
        const std::string line = r.change.substr(4, r.change.find(',') - 4);  // "recompute = full"
        CHECK(line.ends_with(r.value));
        CHECK(r.plan_text.find(line) != std::string::npos);
        CHECK(planned(r.plan_text).best);
      }
    }
  CHECK(named > 2);
}

TEST_CASE("where no number of GPUs would do, none does", "[suggest]") {
  const std::string body = "require tp == 1  require pp <= 2  require zero <= 1";
  World world(world_text(1, 60, body));
  const std::string why = why_never(*world);
  CHECK(why.find("pp 2, zero 1") != std::string::npos);
  for (int nodes = 1; nodes <= 64; ++nodes) {
    INFO(nodes << " nodes");
    CHECK(!planned(world_text(nodes, 60, body)).best);
  }
  World free(world_text(1, 60, ""));
  CHECK(why_never(*free).empty());
}

}  // namespace
}  // namespace plimsoll
