// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "planner/import.hpp"

#include <algorithm>

#include "planner/import_words.hpp"
#include "tests/catch.hpp"
#include "tests/unit/priced.hpp"

using namespace plimsoll;
using namespace plimsoll::imports;

namespace {

Imported from_flags(const std::string& text, std::int64_t gpus = 8,
                    const std::string& gpu = "b200") {
  Request request;
  request.name = "run.sh";
  request.text = text;
  request.gpu = gpu;
  request.gpus = gpus;
  return import_plan("megatron", request);
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const char* const kScript = R"(#!/bin/bash
# Llama 3 70B's shape, 12 layers
export CUDA_DEVICE_MAX_CONNECTIONS=1
LAYERS=12
NNODES=${NNODES:-1}
GPUS=$((4 * 2))
MODEL_ARGS=(
    --num-layers $LAYERS          # of 80
    --hidden-size 8192 --ffn-hidden-size 28672
    --num-attention-heads 64 --group-query-attention --num-query-groups 8
    --normalization RMSNorm --swiglu --disable-bias-linear --position-embedding-type rope
    --untie-embeddings-and-output-weights
    --attention-dropout 0 --hidden-dropout 0.0
    --seq-length 4096 --max-position-embeddings 4096
)
TRAIN="--micro-batch-size 1 --global-batch-size 16 \
    --bf16 --lr 3e-4"
torchrun --nproc_per_node ${GPUS} --nnodes $NNODES pretrain_gpt.py \
    ${MODEL_ARGS[@]} $TRAIN \
    --pipeline-model-parallel-size=2 --use-distributed-optimizer \
    --cross-entropy-loss-fusion --cross-entropy-fusion-impl te \
    --no-create-attention-mask-in-dataloader --vocab-size 128256 2>&1 | tee log.txt
)";

}  // namespace

TEST_CASE("a launch script of Megatron-LM becomes the run that it is", "[import]") {
  Request request;
  request.text = kScript;
  request.gpu = "B200-SXM";
  const Imported imported = import_plan("", request);  // recognised; GPUs from the script
  for (const Mistake& m : imported.mistakes) INFO(m.what);
  REQUIRE(imported.mistakes.empty());
  CHECK(imported.notes.empty());
  const auto priced = test::price(imported.plan);
  REQUIRE(priced.bill.stages.size() == 2);
  // MEGATRON.md 8: measured 68,149.2 and 64,479.2 MiB on the two stages of this very run.
  CHECK(static_cast<double>(static_cast<std::int64_t>(priced.bill.stages[0].live_bytes)) /
            (1 << 20) ==
        Approx(68149.2).epsilon(0.0005));
  CHECK(static_cast<double>(static_cast<std::int64_t>(priced.bill.stages[1].live_bytes)) /
            (1 << 20) ==
        Approx(64479.2).epsilon(0.0005));
  // What is printed is canonical, and imports say what they assumed.
  CHECK(says(imported.plan, "model m = decoder {\n"));
  CHECK_FALSE(says(imported.plan, "Assumed"));
}

TEST_CASE("one run in four spellings is one plan", "[import]") {
  const std::string flags =
      "--num-layers 4 --hidden-size 256 --num-attention-heads 8 --seq-length 512 "
      "--micro-batch-size 2 --global-batch-size 16 --bf16 --tensor-model-parallel-size 2 "
      "--vocab-size 1000 --swiglu";
  const std::string one = from_flags(flags).plan;
  REQUIRE_FALSE(one.empty());
  const std::string yaml =
      "ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\nMODEL_ARGS:\n  --num-layers: 4\n"
      "  --hidden-size: 256\n  --num-attention-heads: 8\n  --seq-length: 512\n"
      "  --micro-batch-size: 2\n  --global-batch-size: 16\n  --bf16: true\n  --fp16: false\n"
      "  --tensor-model-parallel-size: 2\n  --vocab-size: \"1000\"  # padded\n  --swiglu: true\n";
  CHECK(from_flags(yaml).plan == one);
  std::string json = "[";
  std::string lines;
  for (std::size_t at = 0; at < flags.size();) {
    const std::size_t end = std::min(flags.find(' ', at), flags.size());
    json += (json.size() > 1 ? ", \"" : "\"") + flags.substr(at, end - at) + "\"";
    lines += flags.substr(at, end - at) + "\n";
    at = end + 1;
  }
  CHECK(from_flags(json + "]").plan == one);
  CHECK(from_flags(lines).plan == one);
}

TEST_CASE("flags that no bill knows are errors, unknown ones are told", "[import]") {
  const std::string flags =
      "--num-layers 4 --hidden-size 256 --num-attention-heads 8 --seq-length 512 "
      "--micro-batch-size 2 --bf16 --vocab-size 1000 ";
  const Imported unknown = from_flags(flags + "--sequence-paralell --fancy-new-thing 3");
  CHECK_FALSE(unknown.plan.empty());
  REQUIRE(unknown.notes.size() == 2);
  CHECK(unknown.notes[0] ==
        "--sequence-paralell is not known and was left out (did you mean --sequence-parallel?)");
  CHECK(unknown.notes[1] == "--fancy-new-thing is not known and was left out");

  const Imported unmodelled = from_flags(flags + "--cpu-offloading-num-layers 2");
  CHECK(unmodelled.plan.empty());
  REQUIRE(unmodelled.mistakes.size() == 1);
  CHECK(unmodelled.mistakes[0].what ==
        "--cpu-offloading-num-layers changes memory in a way that no bill knows yet");

  const Imported open = from_flags(flags + "--tensor-model-parallel-size $TP");
  REQUIRE(open.mistakes.size() == 1);
  CHECK(open.mistakes[0].what == "nothing sets $TP, the value of --tensor-model-parallel-size");

  const Imported none = from_flags("--bf16");
  CHECK(none.mistakes.size() == 5);
  CHECK(import_plan("megatrom", {}).mistakes.at(0).help == "did you mean 'megatron'?");
}

TEST_CASE("a table of layers and layers as slots cut the model as Megatron-LM does", "[import]") {
  const std::string flags =
      "--hidden-size 256 --num-attention-heads 8 --seq-length 512 --micro-batch-size 1 "
      "--global-batch-size 32 --bf16 --vocab-size 1000 --pipeline-model-parallel-size 4 ";
  const Imported slots = from_flags(flags +
                                    "--num-layers 6 --num-virtual-stages-per-pipeline-rank 2 "
                                    "--account-for-embedding-in-pipeline-split "
                                    "--account-for-loss-in-pipeline-split");
  CHECK(says(slots.plan, "pattern = [empty, dense, dense, dense, dense, dense, dense, empty]"));
  const Imported table =
      from_flags(flags + "--num-layers 14 --pipeline-model-parallel-layout Et*3|tttt|(t)*4|t*3L");
  CHECK(says(table.plan, "stage_layers = [3, 4, 4, 3]"));
}

TEST_CASE("layers that fill up a chunk stand behind those that are recomputed", "[import]") {
  const std::string flags =
      "--hidden-size 256 --num-attention-heads 8 --seq-length 512 --micro-batch-size 1 "
      "--global-batch-size 32 --bf16 --vocab-size 1000 --pipeline-model-parallel-size 2 "
      "--num-layers 10 --num-virtual-stages-per-pipeline-rank 2 "
      "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split "
      "--recompute-granularity full ";
  const Imported some = from_flags(flags + "--recompute-method block --recompute-num-layers 2");
  CHECK(says(some.plan,
             "pattern = [dense, dense, empty, dense, dense, dense, dense, dense, dense, dense, "
             "dense, empty]"));
  CHECK(says(some.plan, "recompute_layers = [4, 4]"));
  const Imported all = from_flags(flags + "--recompute-method uniform");
  CHECK(says(all.plan, "recompute_layers = [6, 5]"));
}

TEST_CASE("an fp8 recipe's name alone makes the precision-aware optimizer's masters fp32",
          "[import]") {
  const std::string flags =
      "--num-layers 4 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 "
      "--max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 8 --bf16 "
      "--use-distributed-optimizer --use-precision-aware-optimizer --main-grads-dtype bf16 "
      "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 --vocab-size 32000 ";
  const auto stage = [&](const std::string& more) {
    const Imported imported = from_flags(flags + more);
    REQUIRE(imported.mistakes.empty());
    return test::price(imported.plan).bill.stages.at(0);
  };
  const auto masters = [](const StageBill& of) { return test::category(of, Category::master); };
  const auto steady = [](const StageBill& of) {
    return static_cast<std::int64_t>(of.steady_allocated_bytes);
  };
  const StageBill remainders = stage(""), own = stage("--fp8-recipe tensorwise");
  CHECK(masters(stage("--fp8-recipe delayed")) == masters(remainders));
  CHECK(masters(own) == 2 * masters(remainders));
  // Their gradients are copied to fp32 until the next step; those that Transformer Engine's Adam
  // reads from the buffer are not.
  CHECK(steady(own) - steady(remainders) == 3 * masters(remainders));
}

TEST_CASE("shared experts beside the exchange keep their gathered input", "[import]") {
  const std::string flags =
      "--num-layers 4 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 "
      "--max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 8 --bf16 "
      "--disable-bias-linear --num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 4 "
      "--moe-token-dispatcher-type alltoall --moe-grouped-gemm --vocab-size 32000 "
      "--expert-tensor-parallel-size 1 --tensor-model-parallel-size 2 --sequence-parallel "
      "--moe-shared-expert-intermediate-size 2048 ";
  const auto live = [&](const std::string& more) {
    const Imported imported = from_flags(flags + more);
    REQUIRE(imported.mistakes.empty());
    const auto priced = test::price(imported.plan);
    return static_cast<std::int64_t>(priced.bill.stages[0].live_bytes);
  };
  // 1024 tokens of 2 * 1024 bytes in each of four layers.
  CHECK(live("--moe-shared-expert-overlap") - live("") == 4 * 1024 * 2 * 1024);
}

TEST_CASE("deterministic runs keep the rows that index_add_ adds up", "[import]") {
  const std::string flags =
      "--num-layers 4 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 "
      "--max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 8 --bf16 "
      "--disable-bias-linear --num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 4 "
      "--moe-token-dispatcher-type alltoall --moe-grouped-gemm --vocab-size 32000 "
      "--deterministic-mode ";
  const auto rows = [&](const std::string& more) {
    const Imported imported = from_flags(flags + more);
    REQUIRE(imported.mistakes.empty());
    return test::line(test::price(imported.plan).bill.stages[0], "rows that are added up");
  };
  CHECK(rows("") == 4 * 2 * 1024 * 2 * 1024);  // layers * top_k * tokens * 2 B * hidden
  CHECK(rows("--moe-permute-fusion") == 0);
  // Padded to a capacity of two, twice as many; not padded, what balanced routers send.
  const std::string two = "--moe-expert-capacity-factor 2 ";
  CHECK(rows(two + "--moe-pad-expert-input-to-capacity") == 4 * 2 * 2 * 1024 * 2 * 1024);
  CHECK(rows(two) == rows(""));
}

TEST_CASE("modules that are offloaded one by one leave the GPU", "[import]") {
  const std::string flags =
      "--num-layers 4 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 "
      "--max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 8 --bf16 "
      "--disable-bias-linear --num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 4 "
      "--moe-token-dispatcher-type alltoall --moe-grouped-gemm --vocab-size 32000 "
      "--attention-backend unfused ";
  const Imported imported = from_flags(
      flags + "--fine-grained-activation-offloading --offload-modules core_attn attn_proj moe_act");
  REQUIRE(imported.mistakes.empty());
  CHECK(says(imported.plan, "offload = {attention, o, expert_activations}"));
  CHECK(says(imported.plan, "host_memory = "));
  const auto away = test::price(imported.plan), kept = test::price(from_flags(flags).plan);
  CHECK(kept.bill.stages[0].live_bytes - away.bill.stages[0].live_bytes > 0);
  CHECK(test::saved(away, away.layout.recompute).count("attention probs") == 0);
}

TEST_CASE("the allocator is set as the script sets it", "[import]") {
  const auto segments = [](const std::string& line) {
    const Imported run = from_flags(line + "\n" + kScript);
    REQUIRE(run.mistakes.empty());
    test::price(run.plan);
    return says(run.plan, "segments = expandable");
  };
  CHECK(segments("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"));
  CHECK(segments("export PYTORCH_ALLOC_CONF=\"max_split_size_mb:512,expandable_segments:True\""));
  CHECK(
      segments("export PYTORCH_ALLOC_CONF=expandable_segments:True\n"
               "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"));
  CHECK_FALSE(segments("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"));
  CHECK_FALSE(segments("export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512"));
  CHECK_FALSE(segments(""));
}

TEST_CASE("a script's own arguments are no flag's value", "[import]") {
  const std::string flags =
      "pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 "
      "--max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 8 --bf16 "
      "--vocab-size 256 --attention-backend unfused";
  CHECK(from_flags(flags + " \"$@\"").plan == from_flags(flags).plan);
}
