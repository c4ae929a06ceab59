// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// On a GPU: what every kernel makes there against what the same kernel's arithmetic makes on the
// CPU, in whole steps of toy models, alone and with stand-ins for absent peers. Needs a GPU; run.sh
// runs it.

#include <cstdio>

#include "runtime/cuda/gpus.hpp"
#include "tests/unit/cuda_case.hpp"

using namespace plimsoll;
using namespace plimsoll::testing;

namespace {

struct Seen {
  cuda::RankRun run;
  std::vector<WholeTensors> gradients;
};

/// Rank 0's steps on a machine, its peers stood in for.
Seen steps_on(cuda::Machine& machine, const Priced& p) {
  Seen seen;
  cuda::RunOptions o;
  o.epsilon = 1e-4;
  const cuda::RankWorld world(*p.problem, p.layout, 0, o);
  WholeTensors empty;
  for (const Weight& w : p.problem->program->weights)
    empty.emplace_back(w.tied_to == kNone ? static_cast<std::size_t>(w.numel()) : 0);
  seen.gradients.assign(static_cast<std::size_t>(o.steps), empty);
  const auto peers = cuda::stand_ins(machine, cuda::places(p.layout, 0, world.expert_shard));
  cuda::Looks looks;
  looks.gradient = [&](int step, WeightId w, std::int64_t place, float x) {
    seen.gradients[static_cast<std::size_t>(step) - 1][w][static_cast<std::size_t>(place)] = x;
  };
  seen.run = cuda::run_rank(world, machine, *peers, CountingBacking::kNoLimit,
                            allocator_options(*p.problem), looks);
  return seen;
}

cuda::Machine& gpu() {
  static const std::unique_ptr<cuda::Machine> machine = cuda::open_gpu(0);
  return *machine;
}

/// fp32 sums in another order; in bf16 8 bits of mantissa.
void compare_machines(const Case& c, int gpus, const std::string& layout,
                      const std::string& precision = "fp32") {
  std::string text = plan_text(c, gpus, layout);
  text.replace(text.find("fp32"), 4, precision);
  INFO(c.model << ", " << c.job << ", " << layout << ", " << precision);
  const Priced p = price(text);
  cuda::EmulatedMachine emulated;
  const Seen expected = steps_on(emulated, p);
  const Seen found = steps_on(gpu(), p);
  const bool half = precision == "bf16";
  CHECK_FALSE(found.run.failure);
  CHECK(Int128{found.run.peak.bytes} == p.bill.stages[0].live_bytes);
  CHECK(found.run.allocator.reserved.peak == expected.run.allocator.reserved.peak);
  for (std::size_t s = 0; s < found.run.losses.size(); ++s)
    CHECK(found.run.losses[s] == Approx(expected.run.losses[s]).epsilon(half ? 0.01 : 1e-4));
  double largest = 0;
  for (const auto& g : expected.gradients[0]) largest = std::max(largest, norm(g));
  for (WeightId w = 0; w < p.problem->program->weights.size(); ++w) {
    const auto& right = expected.gradients[0][w];
    INFO("weight " << w << " '" << p.problem->program->weights[w].name << "'");
    CHECK(distance(found.gradients[0][w], right) <=
          (half ? 0.05 : 1e-4) * std::max(norm(right), 1e-3 * largest));
  }
}

const std::string kBase =
    "layers = 2  hidden = 32  heads = 4  kv_heads = 2  ffn = 48  vocab = 96  ";

}  // namespace

TEST_CASE("gpu: a llama's kernels", "[gpu][small]") {
  for (const char* precision : {"fp32", "bf16"}) {
    compare_machines({"model tiny = llama { " + kBase + " }", ""}, 1, "mbs = 2", precision);
    compare_machines({"model tiny = llama { " + kBase + " }", ""}, 4, "tp = 2  sp = true  zero = 1",
                     precision);
  }
}

TEST_CASE("gpu: dropout, biases, unfused attention, experts", "[gpu][small]") {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const char* attention : {"flash", "unfused"})
      compare_machines(
          {"model tiny = gpt { layers = 2  hidden = 32  heads = 4  vocab = 90  positions = 16 }",
           fmt::format("dropout = 0.1  attention_dropout = 0.1  attention = {}", attention)},
          1, "", precision);
    const Case experts{
        "model tiny = decoder { " + kBase + "experts = 4  top_k = 2  expert_ffn = 24 }", ""};
    compare_machines(experts, 1, "", precision);
    compare_machines(experts, 4, "ep = 4  zero = 1", precision);
  }
}

TEST_CASE("gpu: decoders of every family", "[gpu]") {
  for (const char* more :
       {"qk_norm = head  bias_qkv = true",
        "norms = parallel2  norm = layernorm  kind = gelu  "
        "gated = false",
        "norms = sandwich  plus_one = true  softcap = 5  final_softcap = 8  tied = true  kind = "
        "gelu",
        "window = 4  period = 2", "chunk = 8  nope_global = true  period = 2", "sinks = true",
        "position = alibi  embed_norm = true  norm = layernorm  bias_o = true  bias_mlp = true",
        "kind = squared_relu  gated = false", "kind = relu  gated = false  head_bias = true"})
    compare_machines({"model tiny = decoder { " + kBase + more + " }", ""}, 1, "");
}

TEST_CASE("gpu: attention over many tiles", "[gpu]") {
  Case c{
      "model tiny = llama { layers = 1  hidden = 256  heads = 2  kv_heads = 1  ffn = 64  vocab = "
      "64 }",
      ""};
  c.seq = 200;
  c.batch = 2;
  for (const char* precision : {"fp32", "bf16"}) compare_machines(c, 1, "", precision);
}

TEST_CASE("gpu: mamba2 over several stretches of its scan", "[gpu]") {
  for (const char* precision : {"fp32", "bf16"})
    for (const auto& [gpus, layout] : {std::pair{1, ""}, std::pair{2, "tp = 2  sp = true"}})
      compare_machines({kHybrid.model, "", 2, 160}, gpus, layout, precision);
}

TEST_CASE("gpu: layouts of every kind with stand-ins", "[gpu]") {
  for (const char* layout :
       {"cp = 4", "zero = 3", "pp = 4  zero = 2", "tp = 4", "recompute = full"})
    compare_machines(
        {"model tiny = llama { layers = 4  hidden = 32  heads = 4  kv_heads = 4  ffn = "
         "48  vocab = 96 }",
         ""},
        std::string(layout).find("recompute") == 0 ? 1 : 4, layout);
}

TEST_CASE("gpu: expandable segments are pages of the driver", "[gpu][small]") {
  auto backing = gpu().backing(std::int64_t{64} << 20);
  AllocatorOptions o;
  o.expandable_segments = true;
  Allocator allocator(*backing, o);
  const auto a = allocator.allocate(3 << 20), b = allocator.allocate(30 << 20);
  REQUIRE(a);
  REQUIRE(b);
  gpu().clear(reinterpret_cast<void*>(allocator.address(*b)), 30 << 20);  // NOLINT
  gpu().wait();
  CHECK_FALSE(allocator.allocate(std::int64_t{64} << 20));
  allocator.free(*a);
  allocator.free(*b);
}
