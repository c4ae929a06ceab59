// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "runtime/host/host_device.hpp"
#include "runtime/host/host_run.hpp"
#include "tests/catch.hpp"
#include "tests/unit/host_chain.hpp"
#include "tests/unit/priced.hpp"

/// Runs of toy models on the host, held against one rank's and against the chain rule.
namespace plimsoll::testing {

using namespace runtime;
using namespace runtime::host;
using test::price;
using test::Priced;

inline constexpr double kTolerance = 1e-5;  // of a gradient's norm
inline constexpr double kLearningRate = 1e-3;
inline constexpr double kRounding = 1e-6;

struct Case {
  std::string model, job;
  int batch = 8, seq = 16;
};

/// The case on so many GPUs, in a layout.
inline std::string plan_text(const Case& c, int gpus, const std::string& layout) {
  return fmt::format(
      "gpu toy {{ memory = 1 GiB  bandwidth = 1 TB/s  nvlink = 100 GB/s }}\n"
      "cluster box {{ gpu = toy  gpus_per_node = {}  nodes = 1 }}\n"
      "{}\n"
      "train run {{ model = tiny  cluster = box  framework = plain  optimizer = adamw\n"
      "  precision = fp32  seq = {}  batch = {}\n  {} }}\n"
      "layout here {{ {} }}\n",
      gpus, c.model, c.seq, c.batch, c.job, layout);
}

inline double norm(const std::vector<float>& a) {
  double sum = 0;
  for (const float x : a) sum += static_cast<double>(x) * x;
  return std::sqrt(sum);
}
inline double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return std::sqrt(sum);
}

inline HostOptions options() {
  HostOptions o;
  o.keep_tensors = true;
  o.learning_rate = kLearningRate;
  // Rounding in fp32 is some 1e-7 of the largest gradients, which are about 0.3 here. Where a
  // gradient is near 0, Adam's step changes by up to rounding / epsilon of the learning rate, so
  // that a thousandth asks for an epsilon above 3e-5.
  o.epsilon = 1e-4;
  return o;
}

inline HostRun run(const Priced& p, const HostOptions& o = options()) {
  REQUIRE(why_not_on_host(*p.problem, p.layout) == "");
  REQUIRE(why_impossible(*p.problem, p.layout) == "");
  return run_on_host(*p.problem, p.layout, o);
}

/// Compares weight by weight; says which one is farthest off.
inline void check_equal(const Priced& p, const HostRun& expected, const HostRun& found,
                        double tolerance = kTolerance) {
  REQUIRE(found.losses.size() == expected.losses.size());
  for (std::size_t step = 0; step < found.losses.size(); ++step)
    CHECK(found.losses[step] == Approx(expected.losses[step]).epsilon(tolerance));
  for (std::size_t step = 0; step < found.gradients.size(); ++step) {
    double off = 0, moved = 0, largest = 0;
    for (const auto& gradient : expected.gradients[step])
      largest = std::max(largest, norm(gradient));
    std::string worst_gradient, worst_parameter;
    for (WeightId w = 0; w < p.problem->program->weights.size(); ++w) {
      const Weight& weight = p.problem->program->weights[w];
      if (weight.tied_to != kNone) continue;
      const std::string what = fmt::format("weight {} '{}', {}", w, weight.name, name(weight.role));
      const auto& right = expected.gradients[step][w];
      // A bias of keys shifts all of a query's scores alike: its gradient is 0 but for rounding,
      // and Adam makes steps of what rounding left.
      if (norm(right) <= kRounding * largest) {
        CHECK(norm(found.gradients[step][w]) <= kRounding * largest);
        CHECK(weight.role == Role::bias);
        CHECK(weight.name == "k");
        continue;
      }
      const double error = distance(found.gradients[step][w], right) / norm(right);
      if (!(error <= off)) worst_gradient = what;  // a NaN is worst of all
      if (!(error <= off)) off = error;
      for (std::size_t i = 0; i < right.size(); ++i) {
        const double by = std::abs(found.parameters[step][w][i] - expected.parameters[step][w][i]);
        if (!(by <= moved)) worst_parameter = what;
        if (!(by <= moved)) moved = by;
      }
    }
    INFO("step " << step + 1 << ": gradients of " << worst_gradient << ", values of "
                 << worst_parameter);
    CHECK(off <= tolerance);
    CHECK(moved <= kLearningRate / 1000);
  }
}

/// Every rank's peak is its stage's bill, and nothing is left over.
inline void check_memory(const Priced& p, const HostRun& found) {
  CHECK_FALSE(found.failure);
  for (std::size_t rank = 0; rank < found.ranks.size(); ++rank) {
    const auto stage =
        static_cast<std::size_t>(place_of(p.layout, static_cast<std::int64_t>(rank)).stage);
    INFO("rank " << rank << ", stage " << stage);
    CHECK(Int128{found.ranks[rank].peak.bytes} == p.bill.stages[stage].live_bytes);
    CHECK(found.ranks[rank].left == 0);
  }
}

/// The chain rule over the program's ops, in double, each value and gradient in memory of its own:
/// what the executor's order of events must come to on one rank.
inline void check_chain_rule(const Case& c, const std::string& recompute = "") {
  const Priced p = price(plan_text(c, 1, fmt::format("mbs = {}  {}", c.batch, recompute)));
  HostOptions o = options();
  o.steps = 1;
  const HostRun found = run(p, o);
  o.learning_rate = 0;
  const HostRun start = run(p, o);
  const Problem& problem = *p.problem;
  const Job& job = *problem.job;
  ops::Variant variant;
  variant.attention = job.attention;
  variant.dropout = !job.dropout.is_zero();
  variant.attention_dropout = !job.attention_dropout.is_zero();
  const Program& program = *problem.program;
  HostChain chain(program,
                  ops::Shapes(program, p.module->pool(), problem.inventory.facts.imbalance,
                              problem.inventory.facts.vocab_multiple),
                  environment(problem, p.layout, 0), variant);
  chain.facts.dropout = job.dropout.to_double();
  chain.facts.attention_dropout = job.attention_dropout.to_double();
  chain.facts.loss_scale = 1.0 / (c.batch * c.seq);
  for (WeightId w = 0; w < program.weights.size(); ++w)
    if (program.weights[w].tied_to == kNone)
      chain.weight(w).assign(start.parameters[0][w].begin(), start.parameters[0][w].end());
  CHECK(chain.objective() == Approx(found.losses[0]).epsilon(kTolerance));
  const auto expected = chain.gradients({});
  double off = 0, largest = 0;
  std::string worst;
  for (const auto& gradient : expected) largest = std::max(largest, HostChain::norm(gradient));
  const std::size_t inputs = expected.size() - program.weights.size();
  for (WeightId w = 0; w < program.weights.size(); ++w) {
    if (program.weights[w].tied_to != kNone) continue;
    const std::vector<double>& right = expected[inputs + w];
    std::vector<double> difference(found.gradients[0][w].begin(), found.gradients[0][w].end());
    REQUIRE(difference.size() == right.size());
    for (std::size_t i = 0; i < right.size(); ++i) difference[i] -= right[i];
    const double whole = HostChain::norm(right);
    const double error = HostChain::norm(difference) / std::max(whole, kRounding * largest);
    if (whole > kRounding * largest && !(error <= off)) {
      off = error;
      worst = fmt::format("weight {} '{}', {}", w, program.weights[w].name,
                          name(program.weights[w].role));
    }
  }
  INFO("by the chain rule; farthest off: " << worst);
  CHECK(off <= kTolerance);
}

/// Runs each layout of \a layouts (GPUs and fields) and holds it against one rank.
inline void check_layouts(const Case& c, const std::vector<std::pair<int, std::string>>& layouts) {
  check_chain_rule(c);
  const Priced one = price(plan_text(c, 1, ""));
  const HostRun expected = run(one);
  check_memory(one, expected);
  CHECK(expected.losses.front() > 0);
  for (WeightId w = 0; w < one.problem->program->weights.size(); ++w)
    if (one.problem->program->weights[w].tied_to == kNone)
      CHECK(norm(expected.gradients[0][w]) > 0);
  for (const auto& [gpus, layout] : layouts) {
    INFO(gpus << " GPUs, " << layout);
    const Priced p = price(plan_text(c, gpus, layout));
    const HostRun found = run(p);
    check_equal(p, expected, found);
    check_memory(p, found);
  }
}

/// What decoders of all families have besides the common fields.
inline constexpr const char* kDecoderFamilies[] = {
    "qk_norm = head  bias_qkv = true",
    "qk_norm = full",
    "norms = parallel",
    "norms = parallel2  norm = layernorm  kind = gelu  gated = false",
    "norms = post",
    ("norms = sandwich  plus_one = true  softcap = 5  final_softcap = 8  tied = true  kind = "
     "gelu"),
    "window = 4  period = 2",
    "chunk = 8  nope_global = true  period = 2",
    "sinks = true",
    "position = alibi  embed_norm = true  norm = layernorm  bias_o = true  bias_mlp = true",
    "kind = squared_relu  gated = false",
    "kind = relu  gated = false  head_bias = true"};

inline const std::string kDecoder =
    "layers = 2  hidden = 16  heads = 4  kv_heads = 2  ffn = 24  vocab = 32  ";
inline Case decoder_with(const std::string& more) {
  return {"model tiny = decoder { " + kDecoder + more + " }", ""};
}
inline const Case kMixtral = decoder_with("experts = 4  top_k = 2  expert_ffn = 12");
inline const Case kDeepseek{
    "model tiny = decoder { layers = 3  hidden = 16  heads = 2  ffn = 24  vocab = 32  "
    "experts = 4  top_k = 1  expert_ffn = 12  shared = 8  first_dense = 1  score = "
    "sigmoid  kv_lora = 8  q_lora = 12  nope = 6  rope_dim = 4  v_dim = 8 }",
    ""};
/// With dropout in both places.
inline Case gpt_with(const std::string& attention) {
  return {"model tiny = gpt { layers = 4  hidden = 16  heads = 4  vocab = 30  positions = 16 }",
          fmt::format("dropout = 0.1  attention_dropout = 0.1  attention = {}", attention)};
}
/// Mamba-2 beside attention.
inline const Case kHybrid{
    "model tiny {\n  x = embedding(32, 16)\n  repeat 2 {\n"
    "    x = x + mamba2(rmsnorm(x), heads = 4, head_dim = 4, state = 3, groups = 2)\n"
    "    x = x + gqa(rmsnorm(x), 4, 2, 4)\n  }\n"
    "  loss = cross_entropy(linear(rmsnorm(x), 32, split = column, name = head))\n}",
    ""};

inline const Case kLlama{
    "model tiny = llama { layers = 4  hidden = 16  heads = 4  kv_heads = 2  ffn = 24  vocab = 32 }",
    ""};

}  // namespace plimsoll::testing
