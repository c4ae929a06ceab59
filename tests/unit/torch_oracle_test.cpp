// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// PyTorch as an outside oracle: what its autograd saves in eager mode on the CPU is, to the byte,
// what a framework that is declared for exactly that comes to; its loss and gradients are the
// host's. The figures are those of tests/oracle/torch_cpu_eager.py, kept with torch's version.

#include <cmath>
#include <nlohmann/json.hpp>

#include "planner/stage_cost.hpp"
#include "runtime/host/host_run.hpp"
#include "runtime/host/random.hpp"
#include "tests/catch.hpp"
#include "tests/unit/priced.hpp"

using namespace plimsoll;
using namespace plimsoll::runtime::host;
using test::Priced;

namespace {

/// torch 2.15 on the CPU: RMSNorm is composed of separate kernels; SDPA's flash kernel has no
/// grouped queries; dropout multiplies by a mask in fp32; nll_loss keeps the sum of its weights.
constexpr const char* kTorch = R"(
framework torch_cpu_eager {
  context = false
  allocator = false
  pointwise = separate
  state weight : fp32
  state grad   : fp32
  on rmsnorm   { save input  save normalized  save stats : fp32 }
  on layernorm { save input  save stats : fp32 }
  on linear    { save input }
  on dropout   { where = dropout > 0  save mask : fp32 }
  on attention { where = attention == flash
    save q  save k_expanded  save v_expanded  save output  save lse : fp32 }
  on attention { where = attention == unfused and attention_dropout > 0
    save q  save k  save v  save probs  save mask : fp32  save dropped }
  on cross_entropy { save logits  save targets
    item "sum of weights" { bytes = 4 B  category = activations  lifetime = microbatch  source = "torch nll_loss" } }
}
)";

Priced model(const std::string& name, int layers) {
  const bool llama = name.find("llama") == 0;
  const std::string made =
      llama
          ? fmt::format(
                "llama {{ layers = {}  hidden = 16  heads = 4  kv_heads = {}  ffn = 24  vocab = 32 "
                "}}",
                layers, name == "llama_grouped" ? 2 : 4)
          : fmt::format("gpt {{ layers = {}  hidden = 16  heads = 4  vocab = 32  positions = 16 }}",
                        layers);
  std::string job = llama ? "" : "attention = unfused";
  if (name == "gpt_dropout") job += "  dropout = 0.1  attention_dropout = 0.1";
  return test::price(fmt::format(
      "gpu toy {{ memory = 1 GiB  bandwidth = 1 TB/s }}\n"
      "cluster box {{ gpu = toy  gpus_per_node = 1  nodes = 1 }}\n{}\nmodel tiny = {}\n"
      "train run {{ model = tiny  cluster = box  framework = torch_cpu_eager  optimizer = adamw\n"
      "  precision = fp32  seq = 16  batch = 4  {} }}\nlayout here {{ mbs = 4 }}\n",
      kTorch, made, job));
}

std::int64_t saved_bytes(const Priced& p) {
  CostModel costs(*p.problem);
  costs.set(p.layout);
  return costs.stage(0).chunks.front().saved.live;
}

nlohmann::json figures() {
  return nlohmann::json::parse(test::read(test::data("torch_cpu_eager.json")));
}

}  // namespace

TEST_CASE("torch oracle: what autograd saves, to the byte", "[host]") {
  const nlohmann::json kept = figures();
  INFO("torch " << kept["torch"]);
  REQUIRE(kept["cases"].size() == 4);
  for (const auto& [name, figure] : kept["cases"].items())
    for (int layers = 1; layers <= 3; ++layers) {
      INFO(name << ", layers: " << layers);
      const auto expected = figure["saved_bytes"][static_cast<std::size_t>(layers) - 1];
      CHECK(saved_bytes(model(name, layers)) == expected.get<std::int64_t>());
    }
}

TEST_CASE("torch oracle: loss and gradients", "[host]") {
  const nlohmann::json kept = figures();
  INFO("torch " << kept["torch"]);
  int compared = 0;
  for (const auto& [name, figure] : kept["cases"].items()) {
    if (!figure.contains("loss")) continue;
    INFO(name);
    const Priced p = model(name, 2);
    HostOptions options;
    options.steps = 1;
    options.keep_tensors = true;
    const HostRun run = run_on_host(*p.problem, p.layout, options);
    CHECK(run.losses[0] == Approx(figure["loss"].get<double>()).epsilon(1e-5));
    std::size_t number = 0;
    double largest = 0;
    for (const auto& g : figure["gradients"]) largest = std::max(largest, g["norm"].get<double>());
    for (WeightId w = 0; w < p.problem->program->weights.size(); ++w) {
      if (p.problem->program->weights[w].tied_to != kNone) continue;
      INFO("weight " << w << " '" << p.problem->program->weights[w].name << "'");
      REQUIRE(number < figure["gradients"].size());
      const auto& expected = figure["gradients"][number];
      double square = 0, dot = 0;
      for (std::size_t i = 0; i < run.gradients[0][w].size(); ++i) {
        const double g = run.gradients[0][w][i];
        square += g * g;
        dot += g * normal(mix({777, number, i}));
      }
      const double norm = expected["norm"].get<double>();
      // The bias of keys has no gradient but for rounding.
      const double allowed = 1e-5 * std::max(norm, 0.1 * largest);
      CHECK(std::abs(std::sqrt(square) - norm) <= allowed);
      CHECK(std::abs(dot - expected["dot"].get<double>()) <=
            10 * allowed);  // a sum of 16 to 1024 terms
      ++number;
      ++compared;
    }
    CHECK(number == figure["gradients"].size());
  }
  CHECK(compared == 2 * 21 + 36);
}
