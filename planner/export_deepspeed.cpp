// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// DeepSpeed's JSON (deepspeed/runtime/config.py, zero/config.py, tensor_parallel/config.py of
// 0.19.8) and Accelerate's YAML (accelerate/commands/config/config_args.py of 1.15.0), for models
// of Hugging Face.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "planner/export.hpp"

namespace plimsoll::exports {
namespace {

using Json = nlohmann::ordered_json;

/// What both tools leave to the model's own script.
void settle_script(Subject& s, std::string_view tool, Exported& out) {
  check_common(s, tool, "loss attention bucket overlap_comm max_live", out);
  Layout& l = s.layout;
  const auto cannot = [&](std::string what, std::string help) {
    out.mistakes.push_back({std::move(what), std::move(help)});
  };
  if (l.pp > 1)
    cannot(fmt::format("{} has no pipeline over models of Hugging Face", tool), "set pp = 1");
  if (l.ep > 1 || l.etp > 1)
    cannot("how experts are divided is said where the model is made", "set ep = 1 and etp = 1");
  if (l.recompute > kFullRecompute)
    cannot(fmt::format("{} recomputes whole layers, not recompute = {}", tool,
                       s.problem.inventory.recompute_modes[l.recompute]),
           "set recompute = full or none");
  if (!s.problem.job->dropout.is_zero() || !s.problem.job->attention_dropout.is_zero())
    out.warnings.push_back("dropout is the model's own: its config.json must say it");
  if (!out.mistakes.empty()) return;
  if (l.recompute == kFullRecompute && l.recompute_layers != l.stage_layers) {
    const Layout asked = l;
    l.recompute_layers = l.stage_layers;
    warn_changed(s, asked,
                 fmt::format("every layer is recomputed or none, where the layout says [{}]",
                             fmt::join(asked.recompute_layers, ", ")),
                 out);
  }
}

void warn_of_trainer(const Subject& s, Exported& out) {
  if (s.layout.recompute == kFullRecompute)
    out.warnings.push_back(
        "recomputation is switched on in the training script: gradient_checkpointing = True of "
        "TrainingArguments, or model.gradient_checkpointing_enable()");
}

/// ZeRO's section.
Json zero_section(const Subject& s) {
  const Layout& l = s.layout;
  Json zero;
  zero["stage"] = l.zero;
  if (l.zero == 0) return zero;
  zero["overlap_comm"] = switch_of(s.problem, "overlap_comm") != "false";
  const auto number = [&](const char* name) -> std::optional<std::int64_t> {
    const auto set = s.problem.job->switches.find(name);
    if (set == s.problem.job->switches.end()) return std::nullopt;
    return std::stoll(switch_of(s.problem, name));
  };
  if (const auto bucket = number("bucket")) {
    zero["reduce_bucket_size"] = *bucket;
    zero["allgather_bucket_size"] = *bucket;
  }
  if (const auto live = number("max_live"); live && l.zero == 3)
    zero["stage3_max_live_parameters"] = *live;
  if (!l.offload.is_zero()) {
    zero["offload_optimizer"] = {{"device", "cpu"}, {"pin_memory", true}};
    if (l.offload != Rational(1)) zero["offload_optimizer"]["ratio"] = l.offload.to_double();
  }
  return zero;
}

}  // namespace

void settle_deepspeed(Subject& s, Exported& out) {
  const Layout& l = s.layout;
  const Job& job = *s.problem.job;
  const auto cannot = [&](std::string what, std::string help) {
    out.mistakes.push_back({std::move(what), std::move(help)});
  };
  if (l.cp > 1)
    cannot("DeepSpeed's sequence parallelism is set up in the training script", "set cp = 1");
  if (l.tp > 1 && l.zero == 3)
    cannot("DeepSpeed's tensor parallelism (AutoTP) does not go with stage 3",
           "set tp = 1, or zero = 2");
  if (l.zero > 0 && l.shard < l.dp * l.cp)
    cannot(
        fmt::format("DeepSpeed shards over all replicas, not over {} of {}", l.shard, l.dp * l.cp),
        "leave shard out (MiCS left DeepSpeed in 2026)");
  if (job.precision == "fp8") cannot("DeepSpeed's JSON has no fp8", "set precision = bf16");
  if (!l.offload.is_zero() && l.zero == 0)
    cannot("DeepSpeed offloads states in stages 1 to 3 only", "set offload = 0, or zero = 1");
  else if (!l.offload.is_zero() && l.offload != Rational(1) && l.zero != 3)
    cannot("DeepSpeed offloads a share of the states in stage 3 only",
           "set offload = 1, or zero = 3");
  static constexpr std::pair<const char*, const char*> kOptimizers[] = {
      {"adamw", "AdamW"}, {"lion", "Lion"}, {"muon", "Muon"}};
  bool known = false;
  for (const auto& [ours, theirs] : kOptimizers) known |= job.optimizer == ours;
  if (!known)
    out.warnings.push_back(
        fmt::format("optimizer = {} is made by the training script (the Trainer's "
                    "--optim), not by DeepSpeed's JSON",
                    job.optimizer));
  settle_script(s, "DeepSpeed", out);
  if (out.mistakes.empty()) warn_of_trainer(s, out);
}

std::string write_deepspeed(const Subject& s, const std::vector<std::string>& head, Exported&) {
  const Layout& l = s.layout;
  const Job& job = *s.problem.job;
  Json out;
  // JSON has no comments, and DeepSpeed passes over names that it does not know.
  Json& own = out["_plimsoll"];
  own["bill"] = head;
  own["model"] = job.model;
  own["seq"] = l.seq;
  own["gpu"] = s.problem.cluster->pools.front().gpu.name;
  own["nodes"] = l.nodes;
  own["gpus_per_node"] = s.problem.cluster->pools.front().gpus_per_node;
  own["environment"] = {{"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"}};
  out["train_batch_size"] = l.batch;
  out["train_micro_batch_size_per_gpu"] = l.mbs;
  out["gradient_accumulation_steps"] = l.microbatches;
  if (job.precision == "bf16") out["bf16"] = {{"enabled", true}};
  if (job.precision == "fp16") out["fp16"] = {{"enabled", true}};
  out["zero_optimization"] = zero_section(s);
  if (l.tp > 1) out["tensor_parallel"] = {{"autotp_size", l.tp}};
  if (job.optimizer == "adamw") out["optimizer"] = {{"type", "AdamW"}};
  if (job.optimizer == "lion") out["optimizer"] = {{"type", "Lion"}};
  if (job.optimizer == "muon") out["optimizer"] = {{"type", "Muon"}};
  if (l.recompute == kFullRecompute)
    out["activation_checkpointing"] = {{"partition_activations", false}};
  return out.dump(2) + '\n';
}

void settle_accelerate(Subject& s, Exported& out) {
  const Layout& l = s.layout;
  const bool deepspeed = s.problem.job->framework == "deepspeed";
  if (deepspeed) {
    settle_deepspeed(s, out);
    if (l.tp > 1)
      out.mistakes.push_back(
          {"Accelerate's file has no AutoTP of DeepSpeed",
           "export --to deepspeed, and name that file in deepspeed_config_file"});
  } else {
    if (l.zero == 1)
      out.mistakes.push_back({"Accelerate has no zero = 1 without DeepSpeed",
                              "set zero = 0, 2 or 3, or framework = deepspeed"});
    if (!l.offload.is_zero())
      out.mistakes.push_back({"FSDP offloads parameters and states together, not the states alone",
                              "set offload = 0, or framework = deepspeed"});
    if (l.zero == 2 && (l.tp > 1 || l.cp > 1 || l.shard < l.dp * l.cp))
      out.mistakes.push_back(
          {"zero = 2 is FSDP 1's SHARD_GRAD_OP, which has no tp, cp or shard", "set zero = 3"});
    if (l.zero == 0 && (l.tp > 1 || l.cp > 1))
      out.mistakes.push_back(
          {"tensor and context parallelism of Accelerate go with FSDP 2", "set zero = 3"});
    if (s.problem.job->optimizer != "adamw")
      out.warnings.push_back(
          fmt::format("optimizer = {} is made by the training script", s.problem.job->optimizer));
    settle_script(s, "Accelerate", out);
    if (out.mistakes.empty() && l.zero == 0) warn_of_trainer(s, out);
  }
  if (!out.mistakes.empty()) return;
  out.warnings.push_back(fmt::format(
      "the micro-batch, the accumulation and the sequence are the training script's: "
      "per_device_train_batch_size = {}, gradient_accumulation_steps = {}, sequences of {} tokens",
      l.mbs, l.microbatches, l.seq));
}

namespace {

std::string fsdp_section(const Layout& l) {
  std::string text = "fsdp_config:\n";
  text += fmt::format("  fsdp_version: {}\n", l.zero == 2 ? 1 : 2);
  if (l.zero == 2)
    text +=
        "  fsdp_sharding_strategy: SHARD_GRAD_OP\n  fsdp_backward_prefetch: BACKWARD_PRE\n"
        "  fsdp_use_orig_params: true\n  fsdp_forward_prefetch: false\n";
  else
    text += "  fsdp_reshard_after_forward: true\n";
  text += fmt::format(
      "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_offload_params: false\n"
      "  fsdp_state_dict_type: SHARDED_STATE_DICT\n  fsdp_cpu_ram_efficient_loading: true\n"
      "  fsdp_activation_checkpointing: {}\n",
      l.recompute == kFullRecompute);
  if (l.zero != 3) return text;
  const std::int64_t shard = l.shard / l.cp;
  const std::int64_t replicas = l.dp * l.cp / l.shard;
  if (l.tp == 1 && l.cp == 1 && replicas == 1) return text;
  return text + fmt::format(
                    "parallelism_config:\n  parallelism_config_dp_replicate_size: {}\n"
                    "  parallelism_config_dp_shard_size: {}\n  parallelism_config_tp_size: {}\n"
                    "  parallelism_config_cp_size: {}\n",
                    replicas, shard, l.tp, l.cp);
}

}  // namespace

std::string write_accelerate(const Subject& s, const std::vector<std::string>& head, Exported&) {
  const Layout& l = s.layout;
  const Job& job = *s.problem.job;
  const std::int64_t gpus = l.tp * l.pp * l.cp * l.dp;
  const bool deepspeed = job.framework == "deepspeed";
  std::string text = as_comment(head);
  text +=
      "#\n# Launch: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True accelerate launch "
      "--config_file THIS_FILE SCRIPT\n";
  text += fmt::format("compute_environment: LOCAL_MACHINE\ndistributed_type: {}\n",
                      deepspeed     ? "DEEPSPEED"
                      : l.zero >= 2 ? "FSDP"
                      : gpus > 1    ? "MULTI_GPU"
                                    : "'NO'");
  text += fmt::format("mixed_precision: {}\n", job.precision == "fp32" ? "'no'" : job.precision);
  text += fmt::format(
      "num_machines: {}\nnum_processes: {}\nmachine_rank: 0\nmain_training_function: main\n"
      "rdzv_backend: static\nsame_network: true\nuse_cpu: false\ndebug: false\n",
      l.nodes, gpus);
  if (deepspeed) {
    text += fmt::format("deepspeed_config:\n  zero_stage: {}\n  gradient_accumulation_steps: {}\n",
                        l.zero, l.microbatches);
    if (l.zero >= 2)
      text += fmt::format("  offload_optimizer_device: {}\n  offload_param_device: none\n",
                          l.offload.is_zero() ? "none" : "cpu");
    text += fmt::format("  zero3_init_flag: {}\n", l.zero == 3);
  } else if (l.zero >= 2) {
    text += fsdp_section(l);
  }
  return text;
}

}  // namespace plimsoll::exports
