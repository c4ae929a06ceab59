// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Predicted beside observed: what agrees, what does not, and what runs out of memory.

#include "runtime/verify.hpp"

#include "runtime/report_verify.hpp"
#include "tests/unit/priced.hpp"

using namespace plimsoll;
using namespace plimsoll::runtime;
using namespace plimsoll::test;

namespace {

const char* const kSmall =
    "model m = decoder { layers = 8 hidden = 256 heads = 8 kv_heads = 4 ffn = 512 vocab = 4096 }\n"
    "cluster c { gpu = h100_sxm nodes = 1 gpus_per_node = 8 }\n"
    "train t { model = m cluster = c seq = 1024 batch = 64 framework = megatron }\n"
    "layout l { tp = 2 pp = 2 zero = 1 mbs = 1 }\n";

std::string text(const Priced& p, const Verification& v) {
  return report::verify_text(report::heading(*p.problem, p.layout), p.bill, *p.problem, v, {});
}

}  // namespace

TEST_CASE("every rank's run is its bill", "[verify]") {
  const Priced p = price(kSmall);
  const Verification v =
      verify_dry(*p.problem, p.bill, chosen_ranks(p.bill, {RankChoice::all, 0}), std::nullopt);
  CHECK(v.agrees);
  CHECK(v.worst_difference == 0);
  CHECK(!v.failure);
  REQUIRE(v.ranks.size() == 8);
  for (std::int64_t r = 0; r < 8; ++r) {
    const RankCheck& check = v.ranks[static_cast<std::size_t>(r)];
    CHECK(check.rank == r);
    CHECK(check.stage == r / 4);
    CHECK(check.predicted == check.observed);
    CHECK(check.reserved >= check.observed);
    CHECK(check.predicted_moment == check.observed_moment);
  }
  CHECK(text(p, v).starts_with("agrees: 8 ranks"));
  CHECK(chosen_ranks(p.bill, {}) ==
        std::vector<std::int64_t>{rank_in_stage(p.layout, 0, p.bill.peak_stage)});
  CHECK(chosen_ranks(p.bill, {RankChoice::one, 5}) == std::vector<std::int64_t>{5});
}

TEST_CASE("a bill that is wrong is found out, by item and category", "[verify]") {
  Priced p = price(kSmall);
  StageBill& stage = p.bill.stages.front();
  std::string changed;
  for (BillLine& line : stage.lines)
    if (line.category == Category::activations) {
      line.bytes -= 4096;
      changed = line.name;
      break;
    }
  stage.live_bytes -= 4096;
  REQUIRE(!changed.empty());
  const Verification v = verify_dry(*p.problem, p.bill, {0, 4}, std::nullopt);
  CHECK(!v.agrees);
  CHECK(v.worst_difference == 4096);
  REQUIRE(v.ranks.size() == 2);
  CHECK(v.ranks[0].difference() == 4096);
  CHECK(v.ranks[1].difference() == 0);
  REQUIRE(v.ranks[0].items.size() == 1);
  CHECK(v.ranks[0].items[0].name == changed);
  REQUIRE(v.ranks[0].categories.size() == 1);
  CHECK(v.ranks[0].categories[0].category == Category::activations);
  const std::string said = text(p, v);
  CHECK(said.starts_with("disagrees: rank 0 held 4.00 KiB more than the bill says, on dry"));
  CHECK(said.find(changed) != std::string::npos);
}

TEST_CASE("a run that may not have enough memory says what it lacked, and leaves nothing",
          "[verify]") {
  const Priced p = price(kSmall);
  const Verification free = verify_dry(*p.problem, p.bill, {0}, std::nullopt);
  const std::int64_t needs = free.ranks.front().reserved;
  CHECK(verify_dry(*p.problem, p.bill, {0}, needs).agrees);
  // Whatever the limit, the executor is stopped in mid-step and frees all (asserted inside).
  for (std::int64_t limit = 1; limit < needs; limit += needs / 37) {
    INFO(limit);
    const Verification v = verify_dry(*p.problem, p.bill, {0}, limit);
    if (v.agrees) continue;  // the allocator gives back what it caches, and goes on
    REQUIRE(v.failure);
    CHECK(v.ranks.empty());
    CHECK(v.failure->bytes > 0);
    CHECK(!v.failure->tensor.empty());
    CHECK(v.failure->reserved <= limit);
    std::int64_t sum = 0;
    for (const std::int64_t bytes : v.failure->categories) sum += bytes;
    CHECK(sum == v.failure->live);
    CHECK(text(p, v).starts_with("out of memory: rank 0 could not have"));
  }
}
