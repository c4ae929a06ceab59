// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/core_claim.hpp"

#include <fmt/format.h>

#include <random>
#include <set>

#include "planner/peak.hpp"
#include "planner/space.hpp"
#include "tests/catch.hpp"
#include "tests/unit/world.hpp"

using namespace plimsoll;

namespace {

using Core = std::array<std::int64_t, kCoreKnobs>;

/// The cores that the search lists.
std::set<Core> listed(const Problem& p) {
  Diagnostics diags;
  Pricer pricer(p);
  Judge judge(p, pricer, diags);
  REQUIRE(!diags.has_errors());
  Space space(p, judge);
  std::set<Core> out;
  space.cores([&](const Layout& l, Env&) {
    CHECK(
        out.insert({l.nodes, l.seq, l.batch, l.tp, l.cp, l.pp, l.ep, l.etp, l.vpp, l.mbs}).second);
  });
  return out;
}

std::string text(const std::string& cluster, const std::string& model, const std::string& rest) {
  return fmt::format(
      "cluster c {{ gpu = h100_sxm  {} }}\n"
      "train t {{ model = {}  cluster = c  {} }}\n",
      cluster, model, rest);
}

/// The claim allows what the search lists, and is proven over it; and not over less.
void compare(const std::string& plan) {
  INFO(plan);
  const testing::World world(plan);
  const Problem& p = *world;
  const std::set<Core> cores = listed(p);
  const std::optional<CoreClaim> claim = core_claim(p);
  REQUIRE(claim.has_value());
  std::set<Core> claimed;
  for_each_point(claim->claim, [&](ClaimValues point) {
    CHECK(claimed.insert(claim->core(point)).second);
    return true;
  });
  for (const Core& c : cores) {
    INFO("only the search has " << fmt::format("{}", fmt::join(c, " ")));
    CHECK(claimed.contains(c));
  }
  for (const Core& c : claimed) {
    INFO("only the claim has " << fmt::format("{}", fmt::join(c, " ")));
    CHECK(cores.contains(c));
  }
  const auto over = [&](const std::set<Core>& met) {
    return certify(claim->claim, [&](ClaimValues point) {
      return met.contains(claim->core(point)) ? Verdict::no_better : Verdict::missing;
    });
  };
  const Certificate whole = over(cores);
  CHECK(whole.status == Certificate::proven);
  CHECK(whole.points == static_cast<std::int64_t>(cores.size()));
  if (cores.empty()) return;
  std::set<Core> less = cores;
  less.erase(std::next(less.begin(), static_cast<std::ptrdiff_t>(less.size() / 2)));
  CHECK(over(less).status == Certificate::mismatch);
}

}  // namespace

TEST_CASE("the claim of a proof is what the search lists", "[certificate]") {
  compare(text("nodes = 1  gpus_per_node = 8", "llama3_8b", "seq = 8Ki  batch = 64"));
  compare(text("nodes in 1..6  gpus_per_node = 8", "llama3_8b",
               "seq = 8Ki  batch = 48  minimize gpus"));
  compare(text("nodes = 8  gpus_per_node = 8", "llama3_70b",
               "seq in {8Ki, 12Ki, 32Ki}  batch = 4Mi tokens  maximize seq"));
  compare(text("nodes = 3  gpus_per_node = 8", "llama3_8b", "seq = 4Ki  batch in {48, 50, 96}"));
  compare(text("nodes = 4  gpus_per_node = 8", "mixtral_8x7b", "seq = 8Ki  batch = 128"));
  compare(text("nodes = 16  gpus_per_node = 8", "deepseek_v3",
               "seq = 4Ki  batch = 1024  ep in {8, 16, 64}  etp in {1, 2}"));
}

TEST_CASE("the claim of a proof has the job's values and requirements", "[certificate]") {
  const std::string nodes = "nodes = 4  gpus_per_node = 8";
  for (const char* rest : {
           "tp = 4  pp in {2, 3, 4}",
           "tp in {1, 2, 8, 16}  cp in {1, 2, 3}  mbs in {1, 3, 5}",
           "vpp in {1, 2, 3, 4, 5, 10, 11}  pp in {2, 4}",
           "mbs = tp  cp = 2",
           "pp = 32 / tp",
           "require tp * pp <= 8  require dp >= 2",
           "require microbatches >= 4 * pp",
           "require mod(dp, 3) == 1 or tp == gpus_per_node",
           "require seq / cp > 2000  require gpus / tp >= 16",
           "require batch / (dp - 2) > 3",
           "require tp > 100",
           "require max(stage_layers) <= 12  require zero <= 1 and tp <= 4",
           "require recompute == none  require headroom >= 5%",
           "stage_layers in {[16, 16], [8, 8, 8, 8], [7, 9, 9, 7]}",
           "dp = 4",
           "sp = tp > 1  zero = 1",
           "tp in {2, pp}",
       })
    compare(text(nodes, "llama3_8b", fmt::format("seq = 8Ki  batch = 64  {}", rest)));
  for (const char* rest : {"ep = tp", "etp = 1  require ep >= 2", "ep in {1, 2, 3, 8}"})
    compare(text(nodes, "mixtral_8x7b", fmt::format("seq = 8Ki  batch = 64  {}", rest)));
  compare(
      "cluster c { gpu = h100_sxm  nodes = 2  gpus_per_node = 8 }\n"
      "serve s { model = llama3_70b  cluster = c  context = 32Ki }\n");
  compare(
      "cluster c { pool a { gpu = h100_sxm  nodes = 2  gpus_per_node = 8 }\n"
      "            pool b { gpu = a100_80gb  nodes = 2  gpus_per_node = 8 } }\n"
      "train t { model = llama3_8b  cluster = c  seq = 8Ki  batch = 64 }\n");
}
