// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// The weights of all ranks of a tp, pp and ep group add up to the unsharded model: every divided
// weight once, every replicated one once a rank, the tied head once more where it lies on another
// stage than its embedding.

#include <cstdlib>
#include <iostream>
#include <random>

#include "lang/module.hpp"
#include "planner/peak.hpp"
#include "tests/catch.hpp"
#include "tests/unit/seed.hpp"

using namespace plimsoll;

namespace {

Int128 weights_of(const StageBill& stage, bool experts) {
  Int128 sum = 0;
  for (const BillLine& line : stage.lines)
    if (line.category == Category::weights && line.name.starts_with("experts'") == experts)
      sum += line.bytes;
  return sum;
}

/// What the ranks of one replica hold together, in elements, counted from the program alone.
struct Expected {
  Int128 dense = 0, experts = 0;
};

Expected expected(const Program& program, const Layout& l) {
  Expected e;
  for (const Weight& w : program.weights) {
    if (w.tied_to != kNone) continue;
    const Int128 numel = Int128{w.rows} * w.cols * w.copies;
    if (w.experts != kNone)
      e.experts += numel * (w.split == Split::none ? l.etp : 1);
    else
      e.dense += numel * (w.split == Split::none ? l.tp : 1);
  }
  if (l.pp == 1) return e;
  for (const Weight& w : program.weights)
    if (w.tied_to != kNone) e.dense += Int128{w.rows} * w.cols;
  return e;
}

}  // namespace

TEST_CASE("weights of all ranks add up to the whole model", "[peak][property]") {
  const unsigned seed = test::seed_of_run();
  INFO("PLIMSOLL_SEED=" << seed);
  std::mt19937 random(seed);
  const auto one_of = [&](std::initializer_list<int> list) {
    return list.begin()[random() % list.size()];
  };
  int compared = 0, with_experts = 0;
  for (int round = 0; round < 200; ++round) {
    const bool moe = random() % 2;
    const int tp = one_of({1, 2, 4}), pp = one_of({1, 2, 3, 4}), ep = moe ? one_of({1, 2, 4}) : 1;
    const int etp = moe ? one_of({1, 2}) : 1;
    const std::string text = fmt::format(
        "model m = decoder {{ layers = {} hidden = 64 heads = 8 kv_heads = {} ffn = {} vocab = 512 "
        "head_dim = 8 tied = {}\n"
        "  norm = {} bias_qkv = {} bias_o = true {} }}\n"
        "cluster c {{ gpu = h100_sxm nodes = 6 gpus_per_node = 8 }}\n"
        "train j {{ model = m cluster = c seq = 64 batch = 96 framework = plain }}\n"
        "layout l {{ tp = {} pp = {} ep = {} etp = {} }}\n",
        one_of({4, 5, 7}), one_of({4, 8}), one_of({128, 192}), random() % 2 ? "true" : "false",
        random() % 2 ? "rmsnorm" : "layernorm", random() % 2 ? "true" : "false",
        moe ? "experts = 8 top_k = 2 expert_ffn = 32 shared = 64 first_dense = 1 expert_bias = "
              "true router_bias = true"
            : "",
        tp, pp, ep, etp);
    INFO(text);
    Diagnostics diags;
    const Module module = compile("shares.plan", text, diags);
    INFO(diags.render(module.sources(), false));
    REQUIRE(!diags.has_errors());
    const auto problem = make_problem(module, module.jobs().front(), diags);
    REQUIRE(problem);
    Diagnostics impossible;
    const auto layout = layout_from(*problem, &module.layouts().front(), impossible);
    if (!layout) continue;
    const Bill b = bill(*problem, *layout);
    Int128 dense = 0, experts = 0;
    for (const StageBill& stage : b.stages) {
      dense += weights_of(stage, false) * layout->tp;
      experts += weights_of(stage, true) * layout->ep * layout->etp;
    }
    const Expected e = expected(*problem->program, *layout);
    CHECK(to_string(dense) == to_string(2 * e.dense));
    CHECK(to_string(experts) == to_string(2 * e.experts));
    ++compared;
    with_experts += experts > 0;
  }
  std::cout << "shares: seed " << seed << ", " << compared << " layouts, " << with_experts
            << " with experts\n";
  CHECK(compared > 60);
  CHECK(with_experts > 15);
}
