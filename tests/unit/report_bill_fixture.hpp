// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "planner/report_bill.hpp"

/// Bills made by hand for the tests of the reports.
namespace plimsoll::test {

inline constexpr Int128 kMiB = Int128{1} << 20, kGiB = Int128{1} << 30;

/// A line of a stage's bill; sums follow in close().
inline void put(StageBill& stage, std::string name, Category category, Int128 bytes,
                std::string formula, std::string lifetime, std::string divided_by,
                std::string source) {
  const bool rounding = category == Category::fragmentation;
  stage.lines.push_back({rounding ? kNone : static_cast<std::uint32_t>(stage.lines.size()),
                         std::move(name), category, bytes, std::move(formula), std::move(lifetime),
                         std::move(divided_by), std::move(source)});
}

/// Sums of a stage from its lines: 3 MiB of the fragmentation are rounding, overhead lies outside.
inline void close(StageBill& stage) {
  stage.categories = {};
  stage.peak_bytes = 0;
  for (const BillLine& line : stage.lines) {
    stage.categories[static_cast<std::size_t>(line.category)] += line.bytes;
    stage.peak_bytes += line.bytes;
  }
  const auto of = [&](Category category) {
    return stage.categories[static_cast<std::size_t>(category)];
  };
  stage.reserved_bytes = stage.peak_bytes - of(Category::overhead);
  stage.live_bytes = stage.reserved_bytes - of(Category::fragmentation);
  stage.allocated_bytes = stage.live_bytes + (of(Category::fragmentation) == 0 ? 0 : 3 * kMiB);
}

/// A stage of 20 layers that keeps \a in_flight micro-batches of 3 GiB.
inline StageBill stage(std::int64_t number, std::int64_t in_flight) {
  StageBill out;
  out.stage = number;
  out.layers = 20;
  out.in_flight = in_flight;
  put(out, "weights", Category::weights, 17 * kGiB / 2, "2 * params_on_gpu", "always", "tp, pp",
      "Megatron-LM: parameters in the job's precision");
  put(out, "gradients", Category::gradients, 17 * kGiB, "4 * params_on_gpu", "always", "tp, pp",
      "Megatron-LM: param_and_grad_buffer.py");
  put(out, "master", Category::master, 17 * kGiB / 2, "4 * params_on_gpu / shard", "always",
      "tp, pp, shard", "Megatron-LM: distrib_optimizer.py");
  put(out, "m", Category::moments, 17 * kGiB / 2, "4 * params_on_gpu / shard",
      "from the first step", "tp, pp, shard", "adamw");
  put(out, "input of q, k, v", Category::activations, in_flight * kGiB,
      "2 * 8,192 * mbs * seq / (cp * tp) * in_flight * layers_on_stage", "micro-batch", "tp, cp",
      "TransformerEngine: module/layernorm_linear.py");
  put(out, "input of glu", Category::activations, in_flight * 2 * kGiB,
      "4 * 28,672 * mbs * seq / (cp * tp) * in_flight * layers_on_stage", "micro-batch", "tp, cp",
      "TransformerEngine: module/layernorm_linear.py");
  for (const char* name : {"stats of the first norm", "stats of the second norm", "lse"})
    put(out, name, Category::activations, kMiB, "4 * mbs * seq / cp", "micro-batch", "cp", "");
  put(out, "cuBLAS", Category::workspace, 64 * kMiB, "2 * 32 MiB", "always", "", "PyTorch");
  put(out, "NCCL", Category::overhead, 3 * kGiB, "12 MiB * channels * peers", "always", "",
      "NCCL: init.cc");
  put(out, "block rounding", Category::fragmentation, 3 * kMiB, "", "", "", "");
  put(out, "fragmentation", Category::fragmentation, 2 * kGiB, "0.04 * allocated", "", "", "");
  close(out);
  out.peak_moment = "backward of layer 19, linear down";
  out.first_step_bytes = out.peak_bytes - 17 * kGiB / 2;
  out.steady_bytes = 45 * kGiB;
  out.update_bytes = 47 * kGiB;
  out.moments = {{out.peak_moment, out.peak_bytes}, {"optimizer step", out.update_bytes}};
  return out;
}

/// Four stages that hold 4, 2, 2 and 1 micro-batches, on GPUs of \a hbm bytes.
inline Bill training(Int128 hbm) {
  Bill bill;
  bill.layout.tp = 8;
  bill.layout.pp = 4;
  bill.layout.dp = bill.layout.shard = 2;
  bill.layout.zero = 1;
  bill.layout.microbatches = 256;
  bill.layout.stage_layers = {20, 20, 20, 20};
  bill.layout.recompute_layers = {0, 0, 0, 0};
  bill.stages = {stage(0, 4), stage(1, 2), stage(2, 2), stage(3, 1)};
  bill.peak_bytes = bill.stages.front().peak_bytes;
  bill.hbm_bytes = hbm;
  for (StageBill& made : bill.stages) made.hbm_bytes = hbm;
  bill.params = 70'553'706'496;
  bill.fits = bill.peak_bytes <= hbm;
  bill.verdict = bill.fits ? "fits" : "does not fit";
  return bill;
}

inline report::Heading training_heading() {
  report::Heading out;
  out.job = "pretrain";
  out.model = "llama3_70b";
  out.framework = "megatron";
  out.cluster = "64 × h100_sxm (8 nodes)";
  out.layout = "tp 8 · pp 4 · dp 2 · zero 1 · mbs 1";
  out.reserved_note = "allocated × 1.04, framework megatron";
  return out;
}

/// One GPU that serves 11 sequences.
inline Bill serving() {
  Bill bill;
  StageBill gpu;
  gpu.layers = 80;
  put(gpu, "weights", Category::weights, 66 * kGiB, "params_on_gpu", "always", "tp",
      "serve: weights");
  put(gpu, "KV cache", Category::kv_cache, 55 * kGiB, "163,840 * sequences * 32,768", "always",
      "tp", "vLLM: v1/kv_cache_interface.py");
  put(gpu, "context", Category::overhead, kGiB / 2, "512 MiB", "always", "", "");
  close(gpu);
  gpu.peak_moment = "a prefill step";
  gpu.hbm_bytes = 140 * kGiB;
  bill.layout.stage_layers = {80};
  bill.stages = {gpu};
  bill.peak_bytes = gpu.peak_bytes;
  bill.hbm_bytes = 140 * kGiB;
  bill.params = 70'553'706'496;
  bill.fits = true;
  bill.verdict = "fits";
  bill.sequences = 11;
  bill.kv_blocks = 22'528;
  bill.kv_tokens = 360'448;
  return bill;
}

inline report::Heading serving_heading() {
  report::Heading out;
  out.job = "long";
  out.model = "llama3_70b";
  out.framework = "vllm";
  out.cluster = "1 × h200";
  out.serve = true;
  out.context = 32'768;
  out.reserved_note = "as allocated: no segments are counted";
  return out;
}

}  // namespace plimsoll::test
