// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "lang/rational.hpp"
#include "planner/import_megatron.hpp"

namespace plimsoll::imports::megatron {
namespace {

bool is_off(const std::string& value) { return value == "0"; }

/// Of PyTorch's allocator options: "max_split_size_mb:512,expandable_segments:True".
bool has_expandable_segments(const std::string& options) {
  const std::size_t at = options.find("expandable_segments:");
  return at != std::string::npos && options.compare(options.find(':', at) + 1, 4, "True") == 0;
}

/// Which attention Transformer Engine runs: what is said first (flags, then NVTE_ variables); else
/// what it picks. MEGATRON.md 4: FlashAttention on A100 and on deterministic Grace Blackwell, cuDNN
/// on Hopper and else.
std::string attention(const Run& run, Flags& flags, bool deterministic) {
  const std::string said = flags.word("attention-backend");
  if (said == "unfused" || flags.word("transformer-impl") == "local") return "unfused";
  if (said == "local") return "unfused";
  if (said == "flash" || said == "fused") return said == "flash" ? "flash" : "cudnn";
  const bool no_flash = is_off(flags.environment("NVTE_FLASH_ATTN"));
  const bool no_cudnn = is_off(flags.environment("NVTE_FUSED_ATTN"));
  if (no_flash && no_cudnn) return "unfused";
  if (no_flash != no_cudnn) return no_flash ? "cudnn" : "flash";
  const bool hopper = run.gpu.starts_with("h") || run.gpu.starts_with("gh");
  return hopper || (run.gpu.starts_with("gb") && !deterministic) ? "cudnn" : "flash";
}

std::string precision(Flags& flags) {
  if (flags.has("fp8-format") || flags.has("fp8")) return "fp8";
  if (flags.has("fp16")) return "fp16";
  return flags.has("bf16") ? "bf16" : "fp32";
}

std::string loss(Flags& flags) {
  if (!flags.has("cross-entropy-loss-fusion")) return "unfused";
  return flags.word("cross-entropy-fusion-impl", "native");
}

/// What each word of --recompute-modules names in the prelude's models: dropped whole, or
/// (Megatron-LM calls it output-discarding) outputs alone.
struct Recomputed {
  std::string dropped, discarded, offloaded;
};

Recomputed recomputed(const std::vector<std::string>& modules,
                      const std::vector<std::string>& offloaded) {
  Recomputed r;
  const auto add = [](std::string& list, std::string_view words) {
    list += (list.empty() ? "" : ", ") + std::string(words);
  };
  // Megatron-LM pipeline_parallel/fine_grained_activation_offload.py: what a module saves.
  const auto is_norm = [](const std::string& m) { return m == "attn_norm" || m == "mlp_norm"; };
  if (std::any_of(offloaded.begin(), offloaded.end(), is_norm)) add(r.offloaded, "residual_norms");
  for (const std::string& module : offloaded) {
    if (module == "qkv_linear")
      add(r.offloaded, "q, k, v, q_down, kv_down, k_rope, q_up, k_up, v_up");
    if (module == "core_attn") add(r.offloaded, "attention");
    if (module == "attn_proj") add(r.offloaded, "o");
    if (module == "expert_fc1") add(r.offloaded, "expert_first_linears");
    if (module == "moe_act") add(r.offloaded, "expert_activations");
  }
  for (const std::string& module : modules) {
    if (module == "core_attn") add(r.dropped, "attention");
    if (module == "mlp") add(r.discarded, "dense_mlp");
    if (module == "moe") add(r.dropped, "experts, combine");
    if (module == "shared_experts") add(r.discarded, "shared_experts");
    if (module == "layernorm") add(r.discarded, "residual_norms");
    if (module == "moe_act") add(r.discarded, "expert_activations");
    if (module == "mla_up_proj") add(r.discarded, "q_up, k_up, v_up, rope, concat");
  }
  return r;
}

bool is_share(const std::string& text) try {
  const auto share = Rational::parse(text);
  return share && *share >= Rational(0) && *share <= Rational(1);
} catch (const ArithmeticError&) {
  return false;
}

class JobText {
 public:
  JobText(Run& run, const Request& request, Flags& flags, Imported& into)
      : run_(run), request_(request), flags_(flags), into_(into) {}

  std::string text() {
    deterministic_ = flags_.has("deterministic-mode");
    const std::string framework = own_framework();
    job();
    layout();
    return framework + "train t {\n" + job_ + "}\nlayout run {\n" + layout_ + "}\n";
  }

 private:
  void set(std::string_view name, std::string_view value) {
    job_ += fmt::format("{} = {}\n", name, value);
  }
  void degree(std::string_view name, std::int64_t value) {
    if (value != 1) layout_ += fmt::format("{} = {}\n", name, value);
  }

  /// A framework of its own where modules are recomputed that the prelude's does not name.
  std::string own_framework() {
    framework_ = "megatron";
    auto modules = flags_.list("recompute-modules");
    if (flags_.word("recompute-granularity") != "selective") modules.clear();
    const Recomputed words = recomputed(modules, offloaded());
    const bool plain = modules.empty() || (modules.size() == 1 && modules[0] == "core_attn");
    if (plain && words.offloaded.empty()) return "";
    framework_ = "megatron_run";
    const bool attention = std::find(modules.begin(), modules.end(), "core_attn") != modules.end();
    std::string lines = attention ? "" : "recomputes_attention = false\n";
    lines += "recompute selective {";
    if (!words.dropped.empty() || words.discarded.empty())
      lines += fmt::format(" drop = {{{}}}", words.dropped.empty() ? "dropout" : words.dropped);
    if (!words.discarded.empty()) lines += fmt::format(" discard = {{{}}}", words.discarded);
    if (!words.offloaded.empty()) lines += fmt::format(" offload = {{{}}}", words.offloaded);
    return fmt::format("framework megatron_run = megatron {{\n{} }}\n}}\n", lines);
  }

  /// Modules whose saves wait in host memory; whole layers recomputed keep nothing that could.
  std::vector<std::string> offloaded() {
    if (!flags_.has("fine-grained-activation-offloading")) return {};
    if (flags_.word("recompute-granularity") == "full") return {};
    return flags_.list("offload-modules");
  }

  void job() {
    set("model", "m");
    set("cluster", "c");
    set("seq", std::to_string(run_.seq));
    set("batch", std::to_string(run_.batch));
    optimizer();
    set("precision", precision(flags_));
    set("framework", framework_);
    set("attention", attention(run_, flags_, deterministic_));
    if (const std::string kind = loss(flags_); kind != "unfused") set("loss", kind);
    const std::string hidden = flags_.share("hidden-dropout", "0.1");
    const std::string scores = flags_.share("attention-dropout", "0.1");
    if (std::stod(hidden) > 0) set("dropout", hidden);
    if (std::stod(scores) > 0) set("attention_dropout", scores);
    gradients();
    stack();
    experts();
    job_ += set_text(request_);
  }

  void optimizer() {
    const std::string kind = flags_.word("optimizer", "adam");
    if (kind.ends_with("muon"))
      set("optimizer", "muon");
    else if (kind == "sgd")
      set("optimizer", "sgd");
    if (!flags_.has("use-precision-aware-optimizer")) return;
    // The optimizer that offloads keeps masters and states in fp32 (hybrid_optimizer.py,
    // param_update_in_fp32), whatever else is said.
    if (flags_.has("optimizer-cpu-offload")) return;
    for (const char* state : {"exp-avg", "exp-avg-sq"}) {
      const std::string dtype = flags_.word(std::string(state) + "-dtype", "fp32");
      if (dtype != "fp32") set(state == std::string("exp-avg") ? "m_dtype" : "v_dtype", dtype);
    }
    const std::string main = flags_.word("main-params-dtype", "fp32");
    set("masters", main == "fp32" && !own_masters() ? "remainders" : main);
  }

  /// Megatron-LM holds the masters itself, in fp32, whenever a recipe other than `delayed` is
  /// named, whether or not the run computes in fp8 (optimizer_config.py,
  /// use_precision_aware_optimizer_no_fp8_or_ds_fp8).
  bool own_masters() { return flags_.word("fp8-recipe", "delayed") != "delayed"; }

  void gradients() {
    if (flags_.has("use-precision-aware-optimizer") && flags_.has("main-grads-dtype"))
      set("grads", flags_.word("main-grads-dtype"));
    else if (flags_.has("grad-reduce-in-bf16") && flags_.has("bf16"))
      set("grads", "bf16");
    else if (flags_.has("fp16") && flags_.has("accumulate-allreduce-grads-in-fp32"))
      set("grads", "fp32");
    if (flags_.has("no-gradient-accumulation-fusion")) set("fuse_wgrad", "false");
    if (flags_.has("defer-embedding-wgrad-compute")) {
      const std::int64_t limit = flags_.number("wgrad-deferral-limit", 0);
      set("deferred_wgrads", limit > 0 ? std::to_string(limit) : "microbatches");
    }
  }

  /// What decides the workspaces, and other switches of the stack.
  void stack() {
    if (deterministic_) set("deterministic", "true");
    // MEGATRON.md 3: 64 MiB on deterministic runs of Hopper and later; the older stack's A100 runs
    // have them only where the variable is said.
    const bool configured = !flags_.environment("CUBLAS_WORKSPACE_CONFIG").empty() ||
                            (is_off(flags_.environment("NVTE_ALLOW_NONDETERMINISTIC_ALGO")) &&
                             !run_.gpu.starts_with("a100"));
    if (configured && !deterministic_) set("cublas", "32 MiB");
    if (has_expandable_segments(flags_.environment("PYTORCH_CUDA_ALLOC_CONF")) ||
        has_expandable_segments(flags_.environment("PYTORCH_ALLOC_CONF")))
      set("segments", "expandable");
    if (flags_.word("transformer-impl") == "local") set("spec", "local");
    if (flags_.has("no-masked-softmax-fusion")) set("fused_softmax", "false");
    if (!flags_.has("no-create-attention-mask-in-dataloader")) set("dataloader_mask", "true");
    if (const auto divisor = flags_.number("make-vocab-size-divisible-by", 128); divisor != 128)
      set("vocab_divisor", std::to_string(divisor));
    if (run_.mla && !flags_.has("qk-layernorm")) set("latent_copies", "1");
    if (run_.cp > 1) {
      const auto comm = flags_.list("cp-comm-type");
      if (!comm.empty() && comm[0] == "a2a") set("cp_comm", "a2a");
    }
    if (flags_.has("tp-comm-overlap") && run_.tp > 1) set("tp_overlap", "true");
    if (flags_.has("overlap-p2p-communication-warmup-flush")) set("overlap_flush", "true");
    if (precision(flags_) == "fp8" && flags_.has("fp8-param-gather")) set("fp8_weights", "true");
  }

  void experts() {
    if (run_.experts == 0) return;
    if (flags_.word("moe-token-dispatcher-type", "allgather") == "allgather")
      set("dispatcher", "allgather");
    if (!flags_.has("moe-grouped-gemm")) set("grouped_gemm", "false");
    const bool fused = run_.gated || (run_.bias && !flags_.has("no-bias-gelu-fusion"));
    if (!fused) set("fused_gelu", "false");
    if (flags_.has("overlap-moe-expert-parallel-comm")) set("moe_overlap", "true");
    if (flags_.has("moe-permute-fusion")) set("permute_fusion", "true");
    if (flags_.has("moe-shared-expert-overlap") &&
        flags_.number("moe-shared-expert-intermediate-size", 0) > 0)
      set("shared_overlap", "true");
  }

  void layout() {
    degree("tp", run_.tp);
    degree("pp", run_.pp);
    degree("vpp", run_.vpp);
    degree("cp", run_.cp);
    degree("ep", run_.ep);
    degree("etp", run_.etp);
    const bool fsdp = flags_.has("use-megatron-fsdp") || flags_.has("use-custom-fsdp");
    const bool sharded = flags_.has("use-distributed-optimizer");
    const std::string kept = flags_.word("data-parallel-sharding-strategy", "optim_grads_params");
    const int fsdp_stage = kept == "no_shard"      ? 0
                           : kept == "optim"       ? 1
                           : kept == "optim_grads" ? 2
                                                   : 3;
    layout_ += fmt::format("zero = {}\n", fsdp ? fsdp_stage : sharded ? 1 : 0);
    const std::int64_t copies = flags_.number("num-distributed-optimizer-instances", 1);
    if (copies > 1 && (sharded || fsdp) && run_.dp * run_.cp % copies == 0)
      layout_ += fmt::format("shard = {}\n", run_.dp * run_.cp / copies);
    layout_ += fmt::format("mbs = {}\n", run_.mbs);
    if (run_.tp > 1) layout_ += fmt::format("sp = {}\n", flags_.has("sequence-parallel"));
    offload();
    stages();
    recompute();
  }

  /// Of the optimizer's states; all of them unless a fraction is said.
  void offload() {
    const std::string fraction = flags_.word("optimizer-offload-fraction", "1");
    if (!flags_.has("optimizer-cpu-offload")) return;
    if (!is_share(fraction)) {
      into_.mistakes.push_back(
          {fmt::format("--optimizer-offload-fraction is a share from 0 to 1, found '{}'", fraction),
           "correct the script"});
      return;
    }
    layout_ += fmt::format("offload = {}\n", fraction);
  }

  void stages() {
    if (run_.pp == 1) return;
    const std::int64_t longest = *std::max_element(run_.chunks.begin(), run_.chunks.end());
    const std::int64_t shortest = *std::min_element(run_.chunks.begin(), run_.chunks.end());
    if (longest == shortest || filled_up(run_)) return;
    std::vector<std::int64_t> stages;
    for (std::size_t i = 0; i < run_.chunks.size(); i += static_cast<std::size_t>(run_.vpp))
      stages.push_back(run_.chunks[i] * run_.vpp);
    layout_ += fmt::format("stage_layers = [{}]\n", fmt::join(stages, ", "));
  }

  /// Recomputed layers are spread over a stage's chunks, the earlier ones first: the fewest of
  /// which each chunk has those that Megatron-LM recomputes. What fills up a chunk stands behind.
  void recompute() {
    const std::string kind = flags_.word("recompute-granularity");
    if (kind == "selective" || !offloaded().empty()) layout_ += "recompute = selective\n";
    if (kind != "full") return;
    const std::int64_t count = flags_.number("recompute-num-layers", 1);
    const bool block = flags_.word("recompute-method", "uniform") == "block";
    if (block && count == 0) return;
    layout_ += "recompute = full\n";
    if (!block && count > 1)
      run_.assumed.push_back(
          fmt::format("every layer is recomputed by itself, not in groups of {}", count));
    if (!block && !filled_up(run_)) return;
    std::vector<std::int64_t> list;
    for (std::int64_t r = 0; r < run_.pp; ++r) {
      std::int64_t fewest = 0;
      for (std::int64_t k = 0; k < run_.vpp; ++k) {
        const std::int64_t n = run_.chunks[static_cast<std::size_t>(r * run_.vpp + k)];
        const std::int64_t again = block ? std::min(count, n) : n;
        if (again > 0) fewest = std::max(fewest, (again - 1) * run_.vpp + k + 1);
      }
      list.push_back(fewest);
    }
    layout_ += fmt::format("recompute_layers = [{}]\n", fmt::join(list, ", "));
  }

  Run& run_;
  const Request& request_;
  Flags& flags_;
  Imported& into_;
  bool deterministic_ = false;
  std::string framework_, job_, layout_;
};

}  // namespace

std::string job_text(Run& run, const Request& request, Flags& flags, Imported& into) {
  return JobText(run, request, flags, into).text();
}

}  // namespace plimsoll::imports::megatron
