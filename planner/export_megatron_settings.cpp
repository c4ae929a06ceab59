// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Flags of megatron/training/arguments.py and of the dataclasses behind it (commit d98e8a6), and
// the fields of Megatron Bridge's configuration that say the same.

#include <fmt/format.h>

#include <algorithm>

#include "planner/export_megatron.hpp"
#include "planner/export_shape.hpp"

namespace plimsoll::exports {
namespace {

/// "Et*9|t*10|…|t*9L": what lies on each chunk, in the order of the model.
std::string layout_table(const Problem& p, const Layout& l, std::int64_t mtp) {
  const auto chunks = chunk_layers(p, l);
  std::string text;
  for (std::int64_t k = 0; k < l.vpp; ++k)
    for (std::int64_t r = 0; r < l.pp; ++r) {
      const std::int64_t n = chunks[static_cast<std::size_t>(r)][static_cast<std::size_t>(k)].count;
      if (r + k > 0) text += '|';
      if (r + k == 0) text += 'E';
      if (n > 0) text += n == 1 ? "t" : fmt::format("t*{}", n);
      if (k + 1 == l.vpp && r + 1 == l.pp)
        text += std::string(static_cast<std::size_t>(mtp), 'm') + 'L';
    }
  return text;
}

bool is_even(const std::vector<std::vector<ChunkLayers>>& chunks) {
  for (const auto& stage : chunks)
    for (const ChunkLayers& chunk : stage)
      if (chunk.count != chunks[0][0].count) return false;
  return true;
}

class Settings {
 public:
  Settings(const Subject& s, Exported& out)
      : p_(s.problem),
        l_(s.layout),
        job_(*s.problem.job),
        shape_(shape_of(*s.problem.program)),
        out_(out) {}

  std::vector<std::vector<Setting>> all() {
    group(&Settings::model);
    group(&Settings::experts);
    group(&Settings::batch);
    group(&Settings::parallel);
    group(&Settings::memory);
    group(&Settings::kernels);
    return std::move(groups_);
  }

 private:
  void group(void (Settings::*fill)()) {
    groups_.emplace_back();
    (this->*fill)();
    if (groups_.back().empty()) groups_.pop_back();
  }
  void add(std::string flag, std::string value, std::string part, std::string field,
           std::string yaml) {
    groups_.back().push_back(
        {std::move(flag), std::move(value), std::move(part), std::move(field), std::move(yaml)});
  }
  /// A number that the flag and the field of the model both take.
  void number(std::string_view flag, std::string_view field, std::int64_t n,
              std::string_view part = "model") {
    add("--" + std::string(flag), std::to_string(n), std::string(part), std::string(field),
        std::to_string(n));
  }
  void word(std::string_view flag, std::string_view field, const std::string& w,
            std::string_view part = "model") {
    add("--" + std::string(flag), w, std::string(part), std::string(field), w);
  }
  void on(std::string_view flag, std::string_view field, std::string_view part = "model",
          std::string_view yaml = "true") {
    add("--" + std::string(flag), "", std::string(part), std::string(field), std::string(yaml));
  }

  void model() {
    const Shape& s = shape_;
    number("num-layers", "num_layers", s.layers);
    number("hidden-size", "hidden_size", s.hidden);
    number("ffn-hidden-size", "ffn_hidden_size", s.ffn > 0 ? s.ffn : s.expert_ffn);
    number("num-attention-heads", "num_attention_heads", s.heads);
    if (s.kv_lora == 0) {
      if (s.kv_heads != s.heads) {
        add("--group-query-attention", "", "", "", "");
        number("num-query-groups", "num_query_groups", s.kv_heads);
      }
      number("kv-channels", "kv_channels", s.head_dim);
      if (s.bias_qkv && !(s.bias_o && s.bias_mlp)) on("add-qkv-bias", "add_qkv_bias");
      if (s.qk_norm) on("qk-layernorm", "qk_layernorm");
    } else {
      latent();
    }
    add("--vocab-size", std::to_string(s.vocab), "model", "vocab_size", std::to_string(s.vocab));
    positions();
    word("normalization", "normalization", s.rmsnorm ? "RMSNorm" : "LayerNorm");
    activation();
    const bool biases = s.bias_o && s.bias_mlp;
    if (!biases) on("disable-bias-linear", "add_bias_linear", "model", "false");
    if (!s.tied)
      on("untie-embeddings-and-output-weights", "share_embeddings_and_output_weights", "model",
         "false");
    if (s.window > 0) windows();
    if (s.sinks) word("softmax-type", "softmax_type", "learnable");
    if (s.mtp > 0) number("mtp-num-layers", "mtp_num_layers", s.mtp);
  }

  void latent() {
    on("multi-latent-attention", "multi_latent_attention");
    if (shape_.q_lora > 0) number("q-lora-rank", "q_lora_rank", shape_.q_lora);
    number("kv-lora-rank", "kv_lora_rank", shape_.kv_lora);
    number("qk-head-dim", "qk_head_dim", shape_.nope);
    number("qk-pos-emb-head-dim", "qk_pos_emb_head_dim", shape_.rope_dim);
    number("v-head-dim", "v_head_dim", shape_.v_dim);
    if (shape_.latent_norm) on("qk-layernorm", "qk_layernorm");
  }

  void positions() {
    const std::int64_t longest = std::max(shape_.positions, l_.seq);
    add("--max-position-embeddings",
        std::to_string(shape_.positions > 0 ? shape_.positions : longest), "", "", "");
    const char* kind = shape_.rope ? "rope" : shape_.positions > 0 ? "learned_absolute" : "none";
    word("position-embedding-type", "position_embedding_type", kind);
  }

  void activation() {
    switch (shape_.activation) {
      case OpKind::silu:
        if (shape_.gated)
          add("--swiglu", "", "model", "gated_linear_unit", "true");
        else
          out_.mistakes.push_back({"Megatron-LM has no flag for SiLU without a gate",
                                   "set activation_func in the model's configuration"});
        break;
      case OpKind::squared_relu:
        add("--squared-relu", "", "", "", "");
        break;
      case OpKind::gelu:
        if (shape_.gated)
          out_.mistakes.push_back({"Megatron-LM has no flag for gated GELU (it has --quick-geglu)",
                                   "set activation_func in the model's configuration"});
        break;
      default:
        out_.mistakes.push_back(
            {fmt::format("Megatron-LM has no flag for the activation {}", name(shape_.activation)),
             "set activation_func in the model's configuration"});
    }
  }

  /// Megatron-LM's windows count tokens to the left; every n-th layer may be without.
  void windows() {
    add("--window-size", fmt::format("\"({},0)\"", shape_.window - 1), "model", "window_size",
        fmt::format("[{}, 0]", shape_.window - 1));
    std::int64_t period = 0;
    for (std::size_t i = 0; i < shape_.windowed.size() && period == 0; ++i)
      if (!shape_.windowed[i]) period = static_cast<std::int64_t>(i) + 1;
    for (std::size_t i = 0; period > 0 && i < shape_.windowed.size(); ++i)
      if (shape_.windowed[i] == ((static_cast<std::int64_t>(i) + 1) % period == 0)) {
        out_.mistakes.push_back({"the layers without a window follow no period",
                                 "Megatron-LM takes every n-th: --window-attn-skip-freq"});
        return;
      }
    if (period > 0) number("window-attn-skip-freq", "window_attn_skip_freq", period);
  }

  void experts() {
    const Shape& s = shape_;
    if (s.experts == 0) return;
    number("num-experts", "num_moe_experts", s.experts);
    number("moe-router-topk", "moe_router_topk", s.top_k);
    number("moe-ffn-hidden-size", "moe_ffn_hidden_size", s.expert_ffn);
    if (s.shared_ffn > 0)
      number("moe-shared-expert-intermediate-size", "moe_shared_expert_intermediate_size",
             s.shared_ffn);
    frequency();
    if (s.sigmoid) word("moe-router-score-function", "moe_router_score_function", "sigmoid");
    if (s.router_bias) on("moe-router-enable-expert-bias", "moe_router_enable_expert_bias");
    if (!s.capacity.is_zero()) {
      word("moe-expert-capacity-factor", "moe_expert_capacity_factor",
           fmt::format("{}", s.capacity.to_double()));
      on("moe-pad-expert-input-to-capacity", "moe_pad_expert_input_to_capacity");
    }
    const std::string dispatcher = switch_of(p_, "dispatcher");
    word("moe-token-dispatcher-type", "moe_token_dispatcher_type",
         dispatcher.empty() ? "alltoall" : dispatcher);
    if (switch_of(p_, "grouped_gemm") != "false") on("moe-grouped-gemm", "moe_grouped_gemm");
  }

  void frequency() {
    std::string list;
    const std::vector<bool>& routed = shape_.routed;
    if (std::all_of(routed.begin(), routed.end(), [](bool r) { return r; })) return;
    for (std::size_t i = 0; i < routed.size();) {
      std::size_t end = i;
      while (end < routed.size() && routed[end] == routed[i]) ++end;
      list += fmt::format("{}[{}]*{}", list.empty() ? "" : "+", routed[i] ? 1 : 0, end - i);
      i = end;
    }
    std::string yaml;
    for (const bool r : routed) yaml += fmt::format("{}{}", yaml.empty() ? "[" : ", ", r ? 1 : 0);
    add("--moe-layer-freq", "\"(" + list + ")\"", "model", "moe_layer_freq", yaml + "]");
  }

  void batch() {
    add("--seq-length", std::to_string(l_.seq), "dataset", "seq_length", std::to_string(l_.seq));
    add("", "", "model", "seq_length", std::to_string(l_.seq));
    number("micro-batch-size", "micro_batch_size", l_.mbs, "train");
    number("global-batch-size", "global_batch_size", l_.batch, "train");
    if (job_.precision != "fp32" && job_.precision != "fp16") on("bf16", "bf16");
    if (job_.precision == "fp16") on("fp16", "fp16");
    if (job_.precision == "fp8") word("fp8-format", "fp8", "hybrid");
    if (job_.optimizer == "adamw")
      add("--optimizer", "adam", "optimizer", "optimizer", "adam");
    else
      add("--optimizer", job_.optimizer, "optimizer", "optimizer", job_.optimizer);
    const auto share = [](double own, const Rational& jobs) {
      return own == 0 ? 0.0 : own < 0 ? jobs.to_double() : own;
    };
    const double hidden = share(shape_.dropout, job_.dropout);
    word("hidden-dropout", "hidden_dropout", fmt::format("{:.4g}", hidden));
    word("attention-dropout", "attention_dropout",
         fmt::format("{:.4g}", job_.attention_dropout.to_double()));
  }

  void parallel() {
    number("tensor-model-parallel-size", "tensor_model_parallel_size", l_.tp);
    if (l_.sp && l_.tp > 1) on("sequence-parallel", "sequence_parallel");
    number("pipeline-model-parallel-size", "pipeline_model_parallel_size", l_.pp);
    if (l_.pp > 1) stages();
    if (l_.cp > 1) {
      number("context-parallel-size", "context_parallel_size", l_.cp);
      if (switch_of(p_, "cp_comm") == "a2a") word("cp-comm-type", "cp_comm_type", "a2a");
    }
    if (shape_.experts > 0) {
      number("expert-model-parallel-size", "expert_model_parallel_size", l_.ep);
      number("expert-tensor-parallel-size", "expert_tensor_parallel_size", l_.etp);
    }
    states();
  }

  void stages() {
    if (!is_even(chunk_layers(p_, l_)) || shape_.mtp > 0) {
      const std::string table = layout_table(p_, l_, shape_.mtp);
      add("--pipeline-model-parallel-layout", "\"" + table + "\"", "model",
          "pipeline_model_parallel_layout", "\"" + table + "\"");
    } else if (l_.vpp > 1) {
      // The field is called otherwise than the flag.
      add("--num-virtual-stages-per-pipeline-rank", std::to_string(l_.vpp), "model",
          "virtual_pipeline_model_parallel_size", std::to_string(l_.vpp));
    }
  }

  void states() {
    if (l_.zero >= 1) on("use-distributed-optimizer", "use_distributed_optimizer", "ddp");
    if (l_.zero >= 2) {
      on("use-megatron-fsdp", "use_megatron_fsdp", "ddp");
      word("data-parallel-sharding-strategy", "data_parallel_sharding_strategy",
           l_.zero == 2 ? "optim_grads" : "optim_grads_params", "ddp");
      word("ckpt-format", "ckpt_format", "fsdp_dtensor", "checkpoint");  // the only one it takes
    }
    if (l_.zero >= 1) {
      on("overlap-grad-reduce", "overlap_grad_reduce", "ddp");
      on("overlap-param-gather", "overlap_param_gather", "ddp");
    }
    const std::int64_t all = l_.dp * l_.cp;
    if (l_.zero >= 1 && l_.shard > 0 && l_.shard < all)
      number("num-distributed-optimizer-instances", "num_distributed_optimizer_instances",
             all / l_.shard, "ddp");
    if (!l_.offload.is_zero()) {
      on("optimizer-cpu-offload", "optimizer_cpu_offload", "optimizer");
      word("optimizer-offload-fraction", "optimizer_offload_fraction",
           fmt::format("{}", l_.offload.to_double()), "optimizer");
    }
  }

  void list(std::string_view flag, std::string_view field, const std::vector<std::string>& words) {
    add("--" + std::string(flag), fmt::format("{}", fmt::join(words, " ")), "model",
        std::string(field), fmt::format("[{}]", fmt::join(words, ", ")));
  }

  void memory() {
    if (l_.recompute == kFullRecompute) {
      const std::int64_t count = megatron_block_count(p_, l_);
      word("recompute-granularity", "recompute_granularity", "full");
      bool all = true;
      for (const auto& stage : chunk_layers(p_, l_))
        for (const ChunkLayers& chunk : stage) all &= chunk.recomputed == chunk.count;
      word("recompute-method", "recompute_method", all ? "uniform" : "block");
      number("recompute-num-layers", "recompute_num_layers", all ? 1 : count);
    } else if (l_.recompute > kFullRecompute) {
      const RecomputeModules modules = megatron_modules(p_, l_.recompute);
      if (!modules.recomputed.empty()) {
        word("recompute-granularity", "recompute_granularity", "selective");
        list("recompute-modules", "recompute_modules", modules.recomputed);
      }
      if (!modules.offloaded.empty()) {
        on("fine-grained-activation-offloading", "fine_grained_activation_offloading");
        list("offload-modules", "offload_modules", modules.offloaded);
      }
    }
    precision_aware();
    const std::string grads = job_.grads;
    if (grads == "bf16" && !precision_aware_)
      on("grad-reduce-in-bf16", "grad_reduce_in_fp32", "ddp", "false");
    if (grads == "fp32" && job_.precision == "fp16")
      add("--accumulate-allreduce-grads-in-fp32", "", "ddp", "grad_reduce_in_fp32", "true");
    if (switch_of(p_, "fuse_wgrad") == "false")
      on("no-gradient-accumulation-fusion", "gradient_accumulation_fusion", "model", "false");
  }

  /// States in other dtypes than fp32, or offloaded: Megatron-LM refuses the one without the other.
  void precision_aware() {
    const std::string m = set("m_dtype"), v = set("v_dtype"), masters = set("masters");
    precision_aware_ = !m.empty() || !v.empty() || !masters.empty() || !l_.offload.is_zero();
    if (!precision_aware_) return;
    on("use-precision-aware-optimizer", "use_precision_aware_optimizer", "optimizer");
    const auto dtype = [&](std::string_view flag, std::string_view field, const std::string& w) {
      if (!w.empty()) add("--" + std::string(flag), w, "optimizer", std::string(field), w);
    };
    dtype("exp-avg-dtype", "exp_avg_dtype", m);
    dtype("exp-avg-sq-dtype", "exp_avg_sq_dtype", v);
    dtype("main-params-dtype", "main_params_dtype", masters == "fp16" ? "fp16" : "fp32");
    if (!job_.grads.empty()) dtype("main-grads-dtype", "main_grads_dtype", job_.grads);
    // Masters in fp32 are Megatron-LM's own where a recipe of fp8 is named, in bf16 runs too.
    if (masters == "fp32" && job_.precision != "fp8" && l_.offload.is_zero())
      dtype("fp8-recipe", "fp8_recipe", "tensorwise");
  }
  /// A switch that the job itself sets.
  std::string set(std::string_view name) const {
    return job_.switches.contains(std::string(name)) ? switch_of(p_, name) : "";
  }

  void kernels() {
    switches();
    const std::string backend = job_.attention == "cudnn" ? "fused" : job_.attention;
    word("attention-backend", "attention_backend", backend);
    const std::string loss = switch_of(p_, "loss");
    if (loss == "native" || loss == "te") {
      on("cross-entropy-loss-fusion", "cross_entropy_loss_fusion");
      word("cross-entropy-fusion-impl", "cross_entropy_fusion_impl", loss);
    } else {
      add("", "", "model", "cross_entropy_loss_fusion", "false");
    }
    if (is_on(p_, "deterministic")) on("deterministic-mode", "deterministic_mode");
    if (is_on(p_, "tp_overlap") && l_.tp > 1) on("tp-comm-overlap", "tp_comm_overlap");
    if (!is_on(p_, "dataloader_mask"))
      add("--no-create-attention-mask-in-dataloader", "", "dataset", "create_attention_mask",
          "false");
  }

  void switches() {
    if (set("spec") == "local") word("transformer-impl", "transformer_impl", "local");
    if (set("fused_softmax") == "false")
      on("no-masked-softmax-fusion", "masked_softmax_fusion", "model", "false");
    if (set("fused_gelu") == "false")
      on("no-bias-gelu-fusion", "bias_activation_fusion", "model", "false");
    if (set("moe_overlap") == "true")
      on("overlap-moe-expert-parallel-comm", "overlap_moe_expert_parallel_comm");
    if (set("permute_fusion") == "true") on("moe-permute-fusion", "moe_permute_fusion");
    if (set("shared_overlap") == "true")
      on("moe-shared-expert-overlap", "moe_shared_expert_overlap");
    if (set("overlap_flush") == "true")
      on("overlap-p2p-communication-warmup-flush", "overlap_p2p_comm_warmup_flush");
    if (set("fp8_weights") == "true") on("fp8-param-gather", "fp8_param");
    if (const std::string n = set("vocab_divisor"); !n.empty())
      word("make-vocab-size-divisible-by", "make_vocab_size_divisible_by", n);
    if (const std::string n = set("deferred_wgrads"); !n.empty() && n != "0") {
      on("defer-embedding-wgrad-compute", "defer_embedding_wgrad_compute");
      word("wgrad-deferral-limit", "wgrad_deferral_limit", n);
    }
  }

  const Problem& p_;
  const Layout& l_;
  const Job& job_;
  bool precision_aware_ = false;
  Shape shape_;
  Exported& out_;
  std::vector<std::vector<Setting>> groups_;
};

}  // namespace

std::int64_t megatron_block_count(const Problem& p, const Layout& l) {
  std::int64_t count = 0;
  const auto chunks = chunk_layers(p, l);
  for (const auto& stage : chunks)
    for (const ChunkLayers& chunk : stage) count = std::max(count, chunk.recomputed);
  for (const auto& stage : chunks)
    for (const ChunkLayers& chunk : stage)
      if (chunk.recomputed != std::min(count, chunk.count)) return -1;
  return count;
}

std::vector<std::vector<Setting>> megatron_settings(const Subject& s, Exported& out) {
  return Settings(s, out).all();
}

}  // namespace plimsoll::exports
