// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// The split is right: a sharded run's loss, gradients and parameters are those of one rank, from
// nothing but what was declared saved, in memory that is spoilt where it is not written; and the
// most that a rank holds is what its bill says.

#include "tests/unit/host_case.hpp"

using namespace plimsoll;
using namespace plimsoll::testing;

TEST_CASE("host run: one rank computes something that is right", "[host]") {
  const Priced p = price(plan_text(kLlama, 1, ""));
  const HostRun found = run(p);
  check_memory(p, found);
  // Weights are random: the loss begins near that of a guess.
  CHECK(found.losses.front() == Approx(std::log(32.0)).margin(1.0));
}

TEST_CASE("host run: tensor parallelism, with and without sequence parallelism", "[host]") {
  check_layouts(kLlama,
                {{2, "tp = 2"}, {2, "tp = 2  sp = true"}, {4, "tp = 4"}, {4, "tp = 4  sp = true"}});
}

TEST_CASE("host run: pipelines", "[host]") {
  check_layouts(
      kLlama,
      {{2, "pp = 2"}, {4, "pp = 4"}, {2, "pp = 2  vpp = 2"}, {2, "pp = 2  schedule = gpipe"}});
}

TEST_CASE("host run: ZeRO", "[host]") {
  check_layouts(kLlama, {{2, "zero = 0"},
                         {2, "zero = 1"},
                         {2, "zero = 2"},
                         {2, "zero = 3"},
                         {4, "zero = 3"},
                         {4, "zero = 2  mbs = 2"}});
}

TEST_CASE("host run: context parallelism", "[host]") {
  check_layouts(kLlama, {{2, "cp = 2"}, {4, "cp = 4  mbs = 2"}});
  // Heads exchanged instead of keys and values passed around.
  const Priced one = price(plan_text(kLlama, 1, ""));
  const HostRun expected = run(one);
  HostOptions o = options();
  o.ring = false;
  for (const auto& [gpus, layout] :
       {std::pair{2, "cp = 2"}, std::pair{4, "cp = 2  mbs = 2  zero = 3"}}) {
    INFO(layout);
    const Priced p = price(plan_text(kLlama, gpus, layout));
    const HostRun found = run(p, o);
    check_equal(p, expected, found);
    check_memory(p, found);
  }
}

TEST_CASE("host run: mamba2 beside attention", "[host]") {
  check_layouts(
      kHybrid,
      {{2, "tp = 2"}, {2, "tp = 2  sp = true"}, {4, "pp = 2  zero = 1"}, {1, "recompute = full"}});
}

TEST_CASE("host run: mixtures of everything on 8 ranks", "[host]") {
  check_layouts(kLlama, {{8, "tp = 2  pp = 2  sp = true  zero = 1"},
                         {8, "tp = 2  cp = 2  zero = 3"},
                         {8, "pp = 2  vpp = 2  cp = 2  zero = 2"},
                         {8, "tp = 4  pp = 2  sp = true"},
                         {8, "tp = 2  pp = 4"},
                         {8, "zero = 3  mbs = 1  shard = 4"}});
}

TEST_CASE("host run: experts", "[host]") {
  check_layouts(kMixtral, {{2, "ep = 2"},
                           {4, "ep = 4  zero = 1"},
                           {2, "tp = 2  sp = true  etp = 2"},
                           {4, "tp = 2  sp = true  etp = 1  ep = 2"},
                           {4, "tp = 2  sp = true  etp = 2  ep = 2"},
                           {4, "ep = 2  zero = 3"},
                           {8, "tp = 2  pp = 2  ep = 2  etp = 1  sp = true  zero = 2"},
                           {2, "tp = 2  etp = 1"},
                           {4, "cp = 2  ep = 2"}});
  // A capacity whose slots the turns fill.
  const Case capped = decoder_with("experts = 4  top_k = 2  expert_ffn = 12  capacity = 1");
  check_layouts(capped, {{2, "ep = 2"}, {4, "tp = 2  sp = true  etp = 2  ep = 2"}});
  const Case dropping = decoder_with("experts = 4  top_k = 2  expert_ffn = 12  capacity = 1.25");
  const Priced refused = price(plan_text(dropping, 2, "ep = 2"));
  CHECK(why_not_on_host(*refused.problem, refused.layout).find("capacity = 1.25") !=
        std::string::npos);
  check_layouts(kDeepseek,
                {{2, "ep = 2"}, {2, "tp = 2"}, {4, "tp = 2  sp = true  ep = 2  etp = 1"}});
}

TEST_CASE("host run: GPT with dropout, biases, tied head and positions", "[host]") {
  for (const char* attention : {"flash", "unfused"}) {
    check_layouts(gpt_with(attention), {{2, "tp = 2"},
                                        {2, "tp = 2  sp = true"},
                                        {2, "pp = 2"},
                                        {2, "cp = 2"},
                                        {2, "pp = 2  vpp = 2  zero = 0"},
                                        {4, "pp = 2  zero = 2"},
                                        {4, "pp = 4"},
                                        {8, "tp = 2  pp = 2  sp = true  zero = 3"}});
  }
}

TEST_CASE("host run: decoders of every family", "[host]") {
  for (const char* more : kDecoderFamilies) {
    INFO(more);
    check_layouts(decoder_with(more),
                  {{2, "tp = 2"}, {4, "tp = 4  sp = true"}, {2, "cp = 2"}, {2, "pp = 2"}});
  }
}

TEST_CASE("host run: what is recomputed is what was", "[host]") {
  for (const char* job : {"dropout = 0.1", "attention = unfused  attention_dropout = 0.2"}) {
    const Case gpt{"model tiny = gpt { layers = 4  hidden = 16  heads = 4  vocab = 32 }", job};
    check_chain_rule(gpt, "recompute = full");
    check_chain_rule(gpt, "recompute = selective");
    check_layouts(gpt, {{1, "recompute = full"},
                        {1, "recompute = selective"},
                        {4, "tp = 2  pp = 2  sp = true  recompute = full"},
                        {2, "tp = 2  recompute = selective"},
                        {2, "pp = 2  recompute = full  recompute_layers = [1, 2]"}});
  }
}
