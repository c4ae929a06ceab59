// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/thrifty.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "planner/peak.hpp"
#include "planner/questions.hpp"
#include "tests/catch.hpp"
#include "tests/unit/world.hpp"

namespace plimsoll {
namespace {

using testing::World;

std::string text_of(const std::string& body, const std::string& cluster = "") {
  return fmt::format(R"(
cluster c {{ gpu = h100_sxm  nodes = 2  gpus_per_node = 4  {} }}
model m {{
  param layers = 4, hidden = 512
  x = embedding(4096, hidden)
  repeat layers {{
    x = x + gqa(rmsnorm(x), 8, 4, 64)
    x = x + swiglu(rmsnorm(x), 2048)
  }}
  loss = cross_entropy(linear(rmsnorm(x), 4096, split = column, name = head))
}}
train t {{ model = m  cluster = c  seq = 2Ki  batch = 24  framework = megatron
  {} }}
)",
                     cluster, body);
}

/// What thrifty_layouts() says, by looking at every leaf.
std::vector<Layout> by_looking(Space& space) {
  std::map<std::array<std::int64_t, 9>, std::vector<Layout>> cores;
  space.cores([&](const Layout& l, Env&) {
    auto& best = cores[{l.nodes, l.seq, l.batch, l.tp, l.cp, l.pp, l.ep, l.etp, l.vpp}];
    if (!best.empty() && best.front().mbs < l.mbs) return;
    best.assign(1, l);
  });
  const auto thrift = [](const Layout& l) {
    return std::make_tuple(l.zero, l.shard, l.recompute == kFullRecompute, l.offload);
  };
  std::vector<Layout> out;
  for (const auto& [key, core] : cores) {
    std::vector<Layout> leaves;
    space.leaves(space.point(core.front()), [&](const Layout& l, Env&) {
      if (!leaves.empty() && thrift(l) < thrift(leaves.front())) return;
      if (!leaves.empty() && thrift(leaves.front()) < thrift(l)) leaves.clear();
      leaves.push_back(l);
    });
    out.insert(out.end(), leaves.begin(), leaves.end());
  }
  return out;
}

TEST_CASE("the thriftiest layouts are those that every leaf says", "[thrifty]") {
  for (const char* body :
       {"", "require zero <= 1", "recompute in {none, selective}", "require mbs >= 2 and tp <= 2",
        "offload in {0, 0.5, 1}  require zero == 2 or offload == 0", "shard in {1, 2}",
        "require recompute != full or zero <= 2", "sp = tp > 2  require shard <= 4",
        "schedule in {1f1b, zb_h1}", "require (zero == 3) => (mbs >= 4)"}) {
    INFO(body);
    World world(text_of(body, "host_memory = 1 TiB  pcie = 50 GB/s"));
    Pricer pricer(*world);
    Judge judge(*world, pricer, world.diags);
    Space space(*world, judge);
    std::vector<Layout> found;
    thrifty_layouts(space, [&](const Layout& l) {
      found.push_back(l);
      return true;
    });
    CHECK(!found.empty());
    auto expected = by_looking(space);
    const auto order = [](const Layout& a, const Layout& b) {
      const auto key = [](const Layout& l) {
        return std::make_tuple(l.tp, l.cp, l.pp, l.vpp, l.mbs, l.sp, l.zero, l.shard, l.recompute,
                               static_cast<int>(l.schedule), l.offload);
      };
      return key(a) < key(b);
    };
    std::sort(found.begin(), found.end(), order);
    std::sort(expected.begin(), expected.end(), order);
    CHECK(found == expected);
  }
}

TEST_CASE("offloaded states must fit the ranks' share of host memory", "[host-memory]") {
  const auto planned = [](const std::string& host, const std::string& body) {
    World world(text_of(body, fmt::format("host_memory = {}  pcie = 50 GB/s", host)));
    PlanOptions one;
    one.top = 1;
    PlanResult r = plan(*world, one, world.diags);
    REQUIRE(!world.diags.has_errors());
    return r;
  };
  const PlanResult plenty = planned("1 TiB", "offload = 1  zero = 0  tp = 1  pp = 1  cp = 1");
  REQUIRE(plenty.best);
  // Masters and two moments, four bytes each, of all parameters: on every GPU, with zero = 0.
  World world(text_of("offload = 1", "host_memory = 1 TiB  pcie = 50 GB/s"));
  const Int128 all = 12 * Int128{world.problem->program->parameter_count()};
  CHECK(plenty.best->host_bytes == all);
  CHECK(plenty.best->host_share == (Int128{1} << 40) / 4);

  const std::string pins = "offload = 1  zero = 0  tp = 1  pp = 1  cp = 1";
  const auto bytes = [](Int128 n) { return fmt::format("{} B", static_cast<std::int64_t>(n)); };
  CHECK(planned(bytes(4 * all), pins).best);
  const PlanResult short_of = planned(bytes(4 * all - 4), pins);
  CHECK(short_of.status == PlanResult::infeasible);
  REQUIRE(short_of.tightest);
  CHECK(short_of.tightest->host_bytes > short_of.tightest->host_share);
  CHECK(short_of.tightest->peak_bytes < short_of.tightest->hbm_bytes);
  // Half of it does; so do states that ranks share.
  CHECK(planned(bytes(2 * all), "offload = 0.5  zero = 0  tp = 1  pp = 1  cp = 1").best);
  CHECK(planned(bytes(all), "offload = 1  zero = 1  tp = 1  pp = 1  cp = 1").best);
  // Where it is free, what is found fits.
  const PlanResult free = planned(bytes(2 * all), "offload in {0.5, 1}  minimize peak");
  REQUIRE(free.best);
  CHECK(free.best->host_bytes <= free.best->host_share);
}

}  // namespace
}  // namespace plimsoll
