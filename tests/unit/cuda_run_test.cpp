// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// The device cuda, but for the GPU: its orders and the arithmetic of its kernels give the host's
// loss, gradients and parameters, in the memory that the bill says.

#include "tests/unit/cuda_case.hpp"

using namespace plimsoll;
using namespace plimsoll::testing;

namespace {

const std::string kBase =
    "layers = 2  hidden = 16  heads = 4  kv_heads = 2  ffn = 24  vocab = 32  ";

}  // namespace

TEST_CASE("cuda run: one rank, tensor parallelism, pipelines", "[cuda]") {
  check_on_cuda(kLlama, {{1, ""},
                         {1, "recompute = full"},
                         {2, "tp = 2"},
                         {4, "tp = 4  sp = true"},
                         {2, "pp = 2"},
                         {2, "pp = 2  vpp = 2"}});
}

TEST_CASE("cuda run: ZeRO and context parallelism", "[cuda]") {
  check_on_cuda(kLlama, {{2, "zero = 0"},
                         {2, "zero = 1"},
                         {2, "zero = 2"},
                         {4, "zero = 3"},
                         {2, "cp = 2"},
                         {4, "cp = 4  mbs = 2"},
                         {8, "tp = 2  cp = 2  zero = 3"},
                         {8, "tp = 2  pp = 2  sp = true  zero = 1"}});
}

TEST_CASE("cuda run: experts", "[cuda]") {
  const Case mixtral{
      "model tiny = decoder { " + kBase + "experts = 4  top_k = 2  expert_ffn = 12 }", ""};
  check_on_cuda(mixtral, {{1, ""},
                          {2, "ep = 2"},
                          {4, "ep = 4  zero = 1"},
                          {2, "tp = 2  sp = true  etp = 2"},
                          {4, "tp = 2  sp = true  etp = 2  ep = 2"},
                          {4, "ep = 2  zero = 3"},
                          {2, "tp = 2  etp = 1"},
                          {4, "cp = 2  ep = 2"}});
  const Case deepseek{
      "model tiny = decoder { layers = 3  hidden = 16  heads = 2  ffn = 24  vocab = 32  "
      "experts = 4  top_k = 1  expert_ffn = 12  shared = 8  first_dense = 1  score = "
      "sigmoid  kv_lora = 8  q_lora = 12  nope = 6  rope_dim = 4  v_dim = 8 }",
      ""};
  check_on_cuda(deepseek, {{1, ""}, {2, "ep = 2"}, {4, "tp = 2  sp = true  ep = 2  etp = 1"}});
}

TEST_CASE("cuda run: GPT with dropout, biases, tied head and positions", "[cuda]") {
  for (const char* attention : {"flash", "unfused"}) {
    const Case gpt{
        "model tiny = gpt { layers = 4  hidden = 16  heads = 4  vocab = 30  positions = 16 }",
        fmt::format("dropout = 0.1  attention_dropout = 0.1  attention = {}", attention)};
    check_on_cuda(gpt, {{1, ""},
                        {1, "recompute = selective"},
                        {2, "tp = 2  sp = true"},
                        {2, "cp = 2"},
                        {4, "pp = 2  zero = 2"},
                        {8, "tp = 2  pp = 2  sp = true  zero = 3"}});
  }
}

TEST_CASE("cuda run: decoders of every family", "[cuda]") {
  for (const char* more :
       {"qk_norm = head  bias_qkv = true", "qk_norm = full", "norms = parallel",
        "norms = parallel2  norm = layernorm  kind = gelu  gated = false", "norms = post",
        "norms = sandwich  plus_one = true  softcap = 5  final_softcap = 8  tied = true  kind = "
        "gelu",
        "window = 4  period = 2", "chunk = 8  nope_global = true  period = 2", "sinks = true",
        "position = alibi  embed_norm = true  norm = layernorm  bias_o = true  bias_mlp = true",
        "kind = squared_relu  gated = false", "kind = relu  gated = false  head_bias = true"}) {
    INFO(more);
    check_on_cuda({"model tiny = decoder { " + kBase + more + " }", ""},
                  {{1, ""}, {2, "tp = 2"}, {4, "tp = 4  sp = true"}});
  }
}

TEST_CASE("cuda run: mamba2 beside attention", "[cuda]") {
  const std::string hybrid =
      "model tiny {\n  x = embedding(32, 16)\n  repeat 2 {\n"
      "    x = x + mamba2(rmsnorm(x), heads = 4, head_dim = 4, state = 3, groups = 2)\n"
      "    x = x + gqa(rmsnorm(x), 4, 2, 4)\n  }\n"
      "  loss = cross_entropy(linear(rmsnorm(x), 32, split = column, name = head))\n}";
  check_on_cuda({hybrid, ""}, {{1, ""},
                               {2, "tp = 2"},
                               {2, "tp = 2  sp = true"},
                               {4, "pp = 2  zero = 1"},
                               {2, "zero = 3"},
                               {1, "recompute = full"}});
  // Longer than the stretches whose states a scan holds: two whole ones and a half.
  check_on_cuda({hybrid, "", 4, 160}, {{1, ""}, {2, "tp = 2  sp = true"}});
}
