// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// What is exported, and what is refused because a tool cannot say it. tests/exchange_test.py holds
// whole exports against the tools' names and reads them back.

#include "planner/export.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/export_shape.hpp"
#include "tests/unit/priced.hpp"

using namespace plimsoll;
using namespace plimsoll::exports;
using namespace plimsoll::test;

namespace {

Priced job(const std::string& model, const std::string& fields, const std::string& layout,
           int nodes = 1) {
  return price(
      fmt::format("cluster c {{ gpu = h100_sxm nodes = {} gpus_per_node = 8 }}\n"
                  "train t {{ model = {} cluster = c seq = 4Ki batch = 256 {} }}\n"
                  "layout l {{ {} }}\n",
                  nodes, model, fields, layout));
}

Exported exported(const Priced& p, std::string_view tool) {
  const Writer* writer = find_writer(tool);
  REQUIRE(writer != nullptr);
  return export_layout(*writer, *p.problem, p.layout);
}

bool refuses(const Exported& e, std::string_view words) {
  return e.text.empty() && std::any_of(e.mistakes.begin(), e.mistakes.end(), [&](const Mistake& m) {
           return m.what.find(words) != std::string::npos && !m.help.empty();
         });
}

Shape shape(const std::string& model) {
  const Priced p = job(model, "", "tp = 1");
  return shape_of(*p.problem->program);
}

}  // namespace

TEST_CASE("shapes are read off the ops", "[export]") {
  const Shape llama = shape("llama3_70b");
  CHECK(llama.layers == 80);
  CHECK(llama.hidden == 8192);
  CHECK(llama.heads == 64);
  CHECK(llama.kv_heads == 8);
  CHECK(llama.head_dim == 128);
  CHECK(llama.ffn == 28672);
  CHECK(llama.vocab == 128256);
  CHECK(llama.rope);
  CHECK(llama.gated);
  CHECK(!llama.tied);
  CHECK(llama.rmsnorm);
  CHECK(llama.beyond.empty());

  const Shape gpt = shape("gpt3_5b");
  CHECK(gpt.positions == 2048);
  CHECK(!gpt.rope);
  CHECK(!gpt.rmsnorm);
  CHECK(!gpt.gated);
  CHECK(gpt.activation == OpKind::gelu);
  CHECK(gpt.tied);
  CHECK((gpt.bias_qkv && gpt.bias_o && gpt.bias_mlp));

  const Shape deepseek = shape("deepseek_v3");
  CHECK(deepseek.q_lora == 1536);
  CHECK(deepseek.kv_lora == 512);
  CHECK(deepseek.nope == 128);
  CHECK(deepseek.rope_dim == 64);
  CHECK(deepseek.v_dim == 128);
  CHECK(deepseek.experts == 256);
  CHECK(deepseek.top_k == 8);
  CHECK(deepseek.expert_ffn == 2048);
  CHECK(deepseek.shared_ffn == 2048);
  CHECK(deepseek.ffn == 18432);
  CHECK(std::count(deepseek.routed.begin(), deepseek.routed.end(), true) == 58);
  CHECK(deepseek.sigmoid);
  CHECK(deepseek.router_bias);
  CHECK(deepseek.beyond.empty());

  CHECK(shape("qwen3_8b").qk_norm);
  const Shape oss = shape("gpt_oss_20b");
  CHECK(oss.window == 128);
  CHECK(oss.windowed[0]);
  CHECK(!oss.windowed[1]);
  CHECK(oss.sinks);
  CHECK(!shape("gemma_2_9b").beyond.empty());
  CHECK(!shape("falcon_40b").beyond.empty());
  CHECK(!shape("olmo_2_7b").beyond.empty());
}

TEST_CASE("what a tool cannot say is refused, with its name", "[export]") {
  CHECK(
      refuses(exported(job("gemma_2_9b", "framework = megatron", "tp = 8"), "megatron"), "norms"));
  CHECK(refuses(exported(job("llama3_8b", "optimizer = adamw8bit", "tp = 8"), "megatron"),
                "adamw8bit"));
  CHECK(refuses(exported(job("llama3_8b", "adapt = lora(rank = 16, on = {q, k, v, o})", "tp = 8"),
                         "megatron"),
                "adapt"));
  CHECK(refuses(
      exported(job("llama3_8b", "framework = plain", "pp = 8 schedule = gpipe"), "megatron"),
      "gpipe"));
  CHECK(refuses(exported(job("llama3_8b", "framework = megatron", "tp = 8 zero = 1"), "deepspeed"),
                "") == false);
  CHECK(refuses(
      exported(job("llama3_8b", "framework = deepspeed", "zero = 3 shard = 4"), "deepspeed"),
      "shards over all"));
  CHECK(refuses(
      exported(job("llama3_8b", "framework = torchtitan dropout = 0.1", "zero = 3"), "torchtitan"),
      "dropout"));
  CHECK(refuses(exported(job("llama3_8b", "framework = huggingface", "zero = 1"), "accelerate"),
                "zero = 1"));
}

TEST_CASE("what a tool has otherwise is priced, and said in the file", "[export]") {
  const Priced p =
      job("llama3_70b", "framework = megatron",
          "tp = 8 pp = 4 zero = 1 recompute = full recompute_layers = [3, 0, 0, 0]", 4);
  const Exported e = exported(p, "megatron");
  REQUIRE(e.mistakes.empty());
  REQUIRE(e.warnings.size() == 1);
  CHECK(e.warnings[0].find("[3, 0, 0, 0]") != std::string::npos);
  CHECK(e.text.find("--recompute-method block --recompute-num-layers 3") != std::string::npos);
  CHECK(e.text.find("# Note: Megatron-LM recomputes") != std::string::npos);

  const Exported own =
      exported(job("llama3_8b", "framework = torchtitan", "tp = 2 zero = 3 sp = false mbs = 1"),
               "torchtitan");
  REQUIRE(own.warnings.size() == 1);
  CHECK(own.warnings[0].find("divides the sequence") != std::string::npos);
  // The bill in the head is of what runs.
  CHECK(own.text.find("tp 2 - sp") != std::string::npos);
}

TEST_CASE("stages, windows and layers of experts as Megatron-LM writes them", "[export]") {
  const Exported uneven = exported(job("llama3_70b", "framework = megatron",
                                       "tp = 8 pp = 4 stage_layers = [19, 21, 21, 19] zero = 1", 4),
                                   "megatron");
  CHECK(uneven.text.find("--pipeline-model-parallel-layout \"Et*19|t*21|t*21|t*19L\"") !=
        std::string::npos);
  const Exported routed =
      exported(job("deepseek_v3", "framework = megatron", "tp = 8 ep = 8 zero = 1", 8), "megatron");
  CHECK(routed.text.find("--moe-layer-freq \"([0]*3+[1]*58)\"") != std::string::npos);
  const Exported windows =
      exported(job("gpt_oss_20b", "framework = megatron", "tp = 2 zero = 1"), "megatron");
  CHECK(windows.mistakes.size() == 1);  // biases of attention alone
}

TEST_CASE("layers that hold nothing are no layers to a tool", "[export]") {
  const auto of = [](const std::string& pattern, const std::string& layout,
                     std::string_view tool = "megatron", const std::string& more = "") {
    return exported(
        price(fmt::format("model m = decoder {{ layers = 8 hidden = 512 heads = 8 ffn = 2048 vocab "
                          "= 1000 {} pattern = [{}] }}\n"
                          "cluster c {{ gpu = h100_sxm nodes = 1 gpus_per_node = 8 }}\n"
                          "train t {{ model = m cluster = c seq = 1Ki batch = 64 framework = {} "
                          "}}\nlayout l {{ mbs = 1 {} }}\n",
                          more, pattern, tool == "nemo" ? "megatron" : tool, layout)),
        tool);
  };
  const auto says = [](const Exported& e, std::string_view words) {
    return e.mistakes.empty() && e.text.find(words) != std::string::npos;
  };
  const std::string behind = "dense, dense, dense, empty, dense, dense, empty, empty";
  const Exported two = of(behind, "pp = 2 vpp = 2");
  CHECK(says(two, "--num-layers 5 "));
  CHECK(says(two, "--pipeline-model-parallel-layout \"Et*2|t|t*2|L\""));
  CHECK(!says(two, "--num-virtual-stages-per-pipeline-rank"));
  CHECK(says(of(behind, "pp = 2 vpp = 2", "nemo"), "  num_layers: 5\n"));
  CHECK(says(of(behind, "tp = 2"), "--num-layers 5 "));
  // All alike without what holds nothing: no table needed.
  CHECK(!says(of("dense, empty, dense, empty, dense, empty, dense, empty", "pp = 4"), "-layout"));

  // Layers of experts are counted among the others; the table of learned positions stays.
  const Exported routed =
      of("empty, dense, routed, empty, routed, routed, routed, empty", "pp = 2", "megatron",
         "experts = 8 top_k = 2 expert_ffn = 256 position = "
         "learned positions = 2048");
  CHECK(says(routed, "--moe-layer-freq \"([0]*1+[1]*4)\""));
  CHECK(says(routed, "--position-embedding-type learned_absolute"));

  // Recomputed are a chunk's first layers that hold something, as many as the layout has most.
  CHECK(says(of(behind, "pp = 2 vpp = 2 recompute = full"), "--recompute-method uniform"));
  CHECK(says(of(behind, "pp = 2 vpp = 2 recompute = full recompute_layers = [2, 2]"),
             "--recompute-method block --recompute-num-layers 1"));
  const std::string front = "empty, dense, dense, dense, dense, dense, dense, dense";
  const Exported moved = of(front, "pp = 2 recompute = full recompute_layers = [2, 2]");
  CHECK(says(moved, "--recompute-num-layers 2"));
  REQUIRE(moved.warnings.size() == 1);
  CHECK(moved.warnings[0].find("[2, 2]") != std::string::npos);
  CHECK(refuses(of("dense, dense, dense, dense, empty, dense, dense, dense",
                   "pp = 2 vpp = 2 recompute = full recompute_layers = [2, 2]"),
                "before others"));

  const Exported titan = of(behind, "pp = 2 zero = 3", "torchtitan");
  CHECK(says(titan, "[\"layers.3\", \"layers.4\", \"norm\", \"output\"]"));
  const Exported none =
      of("dense, dense, empty, empty, empty, empty, dense, dense", "pp = 4 zero = 3", "torchtitan");
  CHECK(refuses(none, "without a parameter"));
  CHECK(none.mistakes.size() == 1);
}

TEST_CASE("a recomputation mode of one's own is Megatron-LM's modules", "[export]") {
  const auto flags = [](const std::string& mode) {
    const Priced p = price("framework own = megatron { recompute selective { " + mode +
                           " } }\ncluster c { gpu = h100_sxm nodes = 1 gpus_per_node = 8 "
                           "host_memory = 1 TiB pcie = 400 GB/s }\ntrain t { model = llama3_8b "
                           "cluster = c seq = 4Ki batch = 256 framework = own }\nlayout l { tp = 8 "
                           "recompute = selective }\n");
    return exported(p, "megatron");
  };
  const auto says = [](const Exported& e, std::string_view words) {
    return e.text.find(words) != std::string::npos;
  };
  const Exported own = flags("discard = {residual_norms, dense_mlp}  offload = {attention, o}");
  CHECK(says(own, "--recompute-modules layernorm mlp"));
  CHECK(says(own, "--fine-grained-activation-offloading"));
  CHECK(says(own, "--offload-modules core_attn attn_proj"));
  CHECK(own.warnings.empty());
  const Exported unsaid = flags("drop = {attention, gate}");
  CHECK(says(unsaid, "--recompute-modules core_attn"));
  REQUIRE(unsaid.warnings.size() == 1);
  CHECK(unsaid.warnings[0].find("drop of gate") != std::string::npos);
}
