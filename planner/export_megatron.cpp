// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Megatron-LM's launch flags (megatron/training/arguments.py and the dataclasses behind it, commit
// d98e8a6) and, by the same facts, overrides of NeMo's Megatron Bridge.

#include "planner/export_megatron.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/export_shape.hpp"

namespace plimsoll::exports {
namespace {

void check_optimizer(const Job& job, Exported& out) {
  for (const char* known : {"adamw", "sgd", "muon"})
    if (job.optimizer == known) return;
  out.mistakes.push_back({fmt::format("Megatron-LM has no optimizer '{}'", job.optimizer),
                          "it has adamw, sgd and muon"});
}

/// Its hybrid optimizer runs as the precision-aware one, which needs adam and the distributed
/// optimizer, and keeps masters and states in fp32 (megatron/core/optimizer, 0.19.2).
void check_offload(const Subject& s, Exported& out) {
  const Job& job = *s.problem.job;
  if (s.layout.offload.is_zero()) return;
  if (s.layout.zero == 0)
    out.mistakes.push_back({"Megatron-LM offloads states of its distributed optimizer only",
                            "set zero = 1, or offload = 0"});
  if (job.optimizer != "adamw")
    out.mistakes.push_back(
        {fmt::format("Megatron-LM offloads the states of adamw only, not of {}", job.optimizer),
         "set optimizer = adamw, or offload = 0"});
  for (const char* name : {"m_dtype", "v_dtype", "masters"})
    if (job.switches.contains(name))
      out.mistakes.push_back(
          {fmt::format("Megatron-LM keeps masters and states in fp32 where it offloads: {} cannot "
                       "be said",
                       name),
           fmt::format("leave {} out, or set offload = 0", name)});
}

/// Recomputed layers as `block` has them: as many in every chunk.
void settle_recompute(Subject& s, Exported& out) {
  Layout& l = s.layout;
  if (l.recompute != kFullRecompute || megatron_block_count(s.problem, l) >= 0) return;
  const Layout asked = l;
  std::int64_t most = 0;
  for (const auto& stage : chunk_layers(s.problem, l))
    for (const ChunkLayers& chunk : stage) most = std::max(most, chunk.recomputed);
  // Layers that hold nothing count in recompute_layers, and are none to Megatron-LM.
  for (std::size_t r = 0; r < l.recompute_layers.size(); ++r)
    for (l.recompute_layers[r] = 0; l.recompute_layers[r] < l.stage_layers[r];
         ++l.recompute_layers[r]) {
      const auto stage = chunk_layers(s.problem, l)[r];
      if (std::all_of(stage.begin(), stage.end(), [&](const ChunkLayers& chunk) {
            return chunk.recomputed >= std::min(most, chunk.count);
          }))
        break;
    }
  if (megatron_block_count(s.problem, l) < 0) {
    out.mistakes.push_back(
        {"Megatron-LM recomputes the first layers of every chunk, as many in each: where layers "
         "that hold nothing lie before others, recompute_layers cannot say that",
         "put the empty layers of each chunk behind its others, or recompute every layer"});
    return;
  }
  warn_changed(s, asked,
               fmt::format("Megatron-LM recomputes as many layers on every stage: {} of each chunk "
                           "(--recompute-num-layers), where the layout says [{}]",
                           most, fmt::join(asked.recompute_layers, ", ")),
               out);
}

}  // namespace

void settle_megatron(Subject& s, Exported& out) {
  const Shape shape = shape_of(*s.problem.program);
  for (const std::string& what : shape.beyond)
    out.mistakes.push_back(
        {fmt::format("Megatron-LM's flags cannot say: {}", what),
         "write the model's specification in Python, and export a job of a model "
         "without it for the rest"});
  if (shape.alibi)
    out.mistakes.push_back({"Megatron-LM has no ALiBi", "use a model with rotary positions"});
  if (shape.bias_o != shape.bias_mlp)
    out.mistakes.push_back({"Megatron-LM has biases on all linears or on none",
                            "it makes one exception, for q, k and v (--add-qkv-bias)"});
  check_common(
      s, "Megatron-LM",
      "te_version deterministic fuse_wgrad dataloader_mask loss attention grads cp_comm "
      "dispatcher grouped_gemm fused_gelu spec fused_softmax vocab_divisor masters m_dtype "
      "v_dtype fp8_weights overlap_flush moe_overlap permute_fusion shared_overlap "
      "deferred_wgrads tp_overlap segments",
      out);
  if (s.layout.recompute > kFullRecompute)
    for (const std::string& what : megatron_modules(s.problem, s.layout.recompute).unsaid)
      out.warnings.push_back("recomputation's " + what +
                             " is what the bill counts; Megatron-LM is not told of it");
  check_optimizer(*s.problem.job, out);
  check_offload(s, out);
  const Layout& l = s.layout;
  if (shape.positions > 0 && l.seq > shape.positions)
    out.mistakes.push_back({fmt::format("the model's learned positions are {}, the sequence has {}",
                                        shape.positions, l.seq),
                            fmt::format("set seq = {} or less", shape.positions)});
  if (switch_of(s.problem, "loss") == "te")
    out.warnings.push_back(
        "loss = te: Megatron-LM of core 0.19 refuses Transformer Engine's fused loss ('disabled "
        "due to "
        "stability issues'); loss = native is its other fused one");
  if (l.schedule != Schedule::one_f_one_b && l.schedule != Schedule::interleaved)
    out.mistakes.push_back({fmt::format("Megatron-LM does not run schedule = {}", name(l.schedule)),
                            "it runs 1f1b and, with vpp > 1, interleaved"});
  if (l.recompute > kFullRecompute &&
      s.problem.inventory.recompute_modes[l.recompute] != "selective")
    out.mistakes.push_back({fmt::format("Megatron-LM has no recompute = {}",
                                        s.problem.inventory.recompute_modes[l.recompute]),
                            "it has full, and selective (of the attention)"});
  if (!out.mistakes.empty()) return;
  settle_recompute(s, out);
}

namespace {
/// As the bill's segments were replayed.
std::string allocator_options(const Subject& s) {
  return fmt::format("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:{}",
                     switch_of(s.problem, "segments") == "expandable" ? "True" : "False");
}
}  // namespace

std::string write_megatron(const Subject& s, const std::vector<std::string>& head, Exported& out) {
  const Layout& l = s.layout;
  const std::int64_t per_node = s.problem.cluster->pools.front().gpus_per_node;
  std::string text = "#!/usr/bin/env bash\n" + as_comment(head) + "set -eu\n\n";
  text += "export " + allocator_options(s) + "\n";
  if (l.tp > 1 || l.cp > 1) text += "export CUDA_DEVICE_MAX_CONNECTIONS=1\n";
  text +=
      "\n# Data, tokenizer, learning rate and checkpoints come behind: bash FILE --train-iters …\n";
  text += fmt::format(
      "exec torchrun --nnodes {} --nproc-per-node {} --node-rank \"${{NODE_RANK:-0}}\" \\\n"
      "  --master-addr \"${{MASTER_ADDR:-localhost}}\" --master-port \"${{MASTER_PORT:-6000}}\" "
      "\\\n"
      "  \"${{MEGATRON:-.}}/pretrain_gpt.py\" \\\n",
      l.nodes, per_node);
  for (const auto& group : megatron_settings(s, out)) {
    std::string line = " ";
    for (const Setting& one : group) {
      if (one.flag.empty()) continue;
      const std::string words = " " + one.flag + (one.value.empty() ? "" : " " + one.value);
      if (line.size() + words.size() > 100) {
        text += line + " \\\n";
        line = " ";
      }
      line += words;
    }
    text += line + " \\\n";
  }
  return text + "  \"$@\"\n";
}

std::string write_nemo(const Subject& s, const std::vector<std::string>& head, Exported& out) {
  std::string text = as_comment(head) +
                     "#\n# Over a recipe's own configuration, as OmegaConf.merge takes it.\n"
                     "# Launch with " +
                     allocator_options(s) + ".\n";
  const auto groups = megatron_settings(s, out);
  for (const char* part : {"model", "train", "dataset", "ddp", "optimizer"}) {
    std::string body;
    for (const auto& group : groups)
      for (const Setting& one : group)
        if (one.part == part) body += fmt::format("  {}: {}\n", one.field, one.yaml);
    if (!body.empty()) text += fmt::format("{}:\n{}", part, body);
  }
  if (shape_of(*s.problem.program).activation == OpKind::squared_relu)
    out.warnings.push_back(
        "activation_func takes a function, which no YAML can name: the recipe must "
        "have squared ReLU");
  return text;
}

}  // namespace plimsoll::exports
