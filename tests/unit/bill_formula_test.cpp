// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <string>

#include "planner/peak.hpp"
#include "tests/catch.hpp"

using namespace plimsoll;

namespace {

constexpr const char* kJob = R"(
cluster pod { gpu = h100_sxm  nodes = 8  gpus_per_node = 8 }
train pretrain { model = llama3_70b  cluster = pod  seq = 8Ki  batch = 512  framework = megatron }
layout hand { tp = 8  pp = 4  zero = 1  mbs = 1 }
)";

const BillLine& line(const StageBill& stage, const std::string& name) {
  const auto at = std::find_if(stage.lines.begin(), stage.lines.end(),
                               [&](const BillLine& candidate) { return candidate.name == name; });
  REQUIRE(at != stage.lines.end());
  return *at;
}

}  // namespace

TEST_CASE("formulas of a bill say what its bytes are, and what divides them at this layout") {
  Diagnostics diags;
  const Module module = compile("job.plan", kJob, diags);
  INFO(diags.render(module.sources(), false));
  REQUIRE_FALSE(diags.has_errors());
  const auto problem = make_problem(module, module.jobs().front(), diags);
  REQUIRE(problem);
  const auto layout = layout_from(*problem, &module.layouts().front(), diags);
  REQUIRE(layout);
  const Bill priced = bill(*problem, *layout);
  const StageBill& first = priced.stages.front();
  REQUIRE(first.in_flight == 4);
  REQUIRE(first.layers == 20);

  // 2 B of 8192 tokens x 8192, divided by tp: 16 MiB a layer and micro-batch.
  const BillLine& q = line(first, "attention q");
  CHECK(q.formula == "4 in flight * 20 layers * 16,384 * mbs * seq / (cp * tp)");
  CHECK(q.bytes == Int128{80} * 16'384 * 8192 / 8);
  CHECK(q.divided_by == "tp, cp");

  // Gate and up together; the layer in backward has freed its own.
  const BillLine& glu = line(first, "glu input");
  CHECK(glu.formula == "79 layers in flight * 114,688 * mbs * seq / (cp * tp)");
  CHECK(glu.bytes == Int128{79} * 114'688 * 8192 / 8);

  // zero = 1 shards masters and moments, not weights.
  CHECK(line(first, "weights").divided_by == "tp");
  CHECK(line(first, "master weights").divided_by == "tp, shard");
  // More ranks make these larger.
  CHECK(line(first, "NCCL, dp").divided_by.empty());
}
