// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Fields and defaults: transformers' configuration classes (models/*/configuration_*.py); what each
// family's layers are made of: its modeling_*.py.

#include "planner/import_hub_config.hpp"

#include <fmt/format.h>

#include <map>

#include "lang/rational.hpp"

namespace plimsoll::imports {
namespace {

/// Sizes that all families have, under either of their names.
struct Sizes {
  std::int64_t layers = 1, hidden = 1, heads = 1, kv_heads = 1, ffn = 1, vocab = 1;
};

class Family {
 public:
  Family(const HubConfig& c, HubBody& b, Imported& into) : c_(c), b_(b), into_(into) {}

  using Read = void (Family::*)();
  static const std::map<std::string, Read>& all() {
    static const std::map<std::string, Read> kFamilies = {
        {"llama", &Family::llama},
        {"smollm3", &Family::llama},
        {"granite", &Family::llama},
        {"mistral", &Family::mistral},
        {"mixtral", &Family::mixtral},
        {"qwen2", &Family::qwen2},
        {"qwen3", &Family::qwen3},
        {"qwen3_moe", &Family::qwen3_moe},
        {"gemma", &Family::gemma},
        {"gemma2", &Family::gemma2},
        {"gemma3_text", &Family::gemma3},
        {"gemma3", &Family::gemma3},
        {"phi", &Family::phi},
        {"phi3", &Family::phi3},
        {"gpt2", &Family::gpt2},
        {"gpt_neox", &Family::gpt_neox},
        {"opt", &Family::opt},
        {"bloom", &Family::bloom},
        {"falcon", &Family::falcon},
        {"deepseek_v2", &Family::deepseek},
        {"deepseek_v3", &Family::deepseek},
        {"kimi_k2", &Family::deepseek},
        {"gpt_oss", &Family::gpt_oss},
        {"glm4", &Family::glm4},
        {"glm4_moe", &Family::glm4_moe},
        {"llama4_text", &Family::llama4},
        {"llama4", &Family::llama4},
        {"olmo2", &Family::olmo2},
        {"nemotron", &Family::nemotron},
    };
    return kFamilies;
  }

  /// False where the type is not known.
  bool read(const std::string& type) {
    const auto found = all().find(type);
    if (found == all().end()) return false;
    (this->*found->second)();
    return true;
  }

 private:
  Sizes sizes() {
    s_.layers = c_.needed({"num_hidden_layers", "n_layer", "num_layers"});
    s_.hidden = c_.needed({"hidden_size", "n_embd", "d_model"});
    s_.heads = c_.needed({"num_attention_heads", "n_head", "num_heads"});
    s_.kv_heads = c_.number("num_key_value_heads", s_.heads);
    s_.vocab = c_.needed({"vocab_size"});
    b_.add("layers", s_.layers);
    b_.add("hidden", s_.hidden);
    b_.add("heads", s_.heads);
    if (s_.kv_heads != s_.heads) b_.add("kv_heads", s_.kv_heads);
    return s_;
  }
  void feed_forward(std::int64_t ffn) {
    s_.ffn = ffn;
    b_.add("ffn", ffn);
    b_.add("vocab", s_.vocab);
  }
  void head_dim(std::int64_t otherwise = 0) {
    const std::int64_t d = c_.has("head_dim") ? c_.needed({"head_dim"}) : otherwise;
    if (d > 0 && Int128(d) * s_.heads != s_.hidden) b_.add("head_dim", d);
  }
  void tied(bool otherwise) { b_.on("tied", c_.flag("tie_word_embeddings", otherwise)); }
  /// What all of Llama's descendants share.
  void llama_like(bool tied_otherwise = false) {
    sizes();
    feed_forward(c_.needed({"intermediate_size"}));
    head_dim();
    tied(tied_otherwise);
  }
  void activation(const std::string& kind, bool gated) {
    std::string word = kind;
    if (kind.starts_with("gelu") || kind == "quick_gelu") word = "gelu";
    if (kind == "relu2") word = "squared_relu";
    if (kind == "swish") word = "silu";
    if (word != "silu" && word != "gelu" && word != "relu" && word != "squared_relu") {
      into_.mistakes.push_back({fmt::format("the activation '{}' is not known", kind),
                                "the prelude's blocks have silu, gelu, relu and squared_relu"});
      return;
    }
    if (word != "silu") b_.add("kind", word);
    if (!gated) b_.add("gated", "false");
  }
  void biases() {
    b_.on("bias_qkv", true);
    b_.on("bias_o", true);
    b_.on("bias_mlp", true);
  }
  void attention_bias() {
    const bool on = c_.flag("attention_bias", false);
    b_.on("bias_qkv", on);
    b_.on("bias_o", on);
  }
  /// Windows of the layers that `layer_types` lists, or of all but every `period`-th.
  void windows(std::int64_t window, std::int64_t period) {
    if (window <= 0) return;
    if (c_.has("layer_types") && c_.at("layer_types").is_array()) {
      period = period_of(c_.at("layer_types"));
      if (period < 0) return;
      if (period == 0) return;
    }
    b_.add("window", window);
    if (period > 1) b_.add("period", period);
  }
  /// 0: no layer has a window; 1: all have; n: all but every n-th; -1 after a mistake.
  std::int64_t period_of(const nlohmann::json& types) {
    std::int64_t first_full = 0, full = 0, i = 0;
    for (const nlohmann::json& type : types) {
      ++i;
      if (!type.is_string() || type.get<std::string>() != "full_attention") continue;
      ++full;
      if (first_full == 0) first_full = i;
    }
    if (full == 0) return 1;
    if (full == i) return 0;
    i = 0;
    for (const nlohmann::json& type : types) {
      ++i;
      const bool is_full = type.is_string() && type.get<std::string>() == "full_attention";
      if (is_full != (i % first_full == 0)) {
        into_.mistakes.push_back({"the windows of layer_types follow no period",
                                  "write the model with `if(…)` over the turns of its repeat"});
        return -1;
      }
    }
    return first_full;
  }
  void experts(std::int64_t count, std::int64_t ffn) {
    b_.add("experts", count);
    b_.add("top_k", c_.either({"num_experts_per_tok", "num_experts_per_token"}, 2));
    b_.add("expert_ffn", ffn);
  }
  void moe_steps() {
    if (const auto step = c_.number("decoder_sparse_step", 1); step > 1) b_.add("moe_every", step);
    if (!c_.has("mlp_only_layers") || !c_.at("mlp_only_layers").is_array()) return;
    const nlohmann::json& dense = c_.at("mlp_only_layers");
    for (std::size_t i = 0; i < dense.size(); ++i)
      if (dense[i] != static_cast<std::int64_t>(i)) {
        into_.mistakes.push_back({"mlp_only_layers names others than the first layers",
                                  "write the model with two repeats"});
        return;
      }
    if (!dense.empty()) b_.add("first_dense", static_cast<std::int64_t>(dense.size()));
  }
  void multi_token(const char* key) {
    if (const auto n = c_.number(key, 0); n > 0)
      b_.note(fmt::format("{} = {}: the heads that predict further tokens are left out.", key, n));
  }

  void llama() {
    llama_like();
    attention_bias();
    b_.on("bias_mlp", c_.flag("mlp_bias", false));
    activation(c_.word("hidden_act", "silu"), true);
  }
  void mistral() {
    llama_like();
    activation(c_.word("hidden_act", "silu"), true);
    windows(c_.number("sliding_window", 0), 1);
  }
  void mixtral() {
    llama_like();
    experts(c_.needed({"num_local_experts"}), s_.ffn);
    windows(c_.number("sliding_window", 0), 1);
  }
  void qwen_windows() {
    if (!c_.flag("use_sliding_window", false)) return;
    if (c_.number("max_window_layers", s_.layers) >= s_.layers) return;
    b_.note(
        "use_sliding_window: the windows of the upper layers are left out; keys and values are "
        "counted whole.");
  }
  void qwen2() {
    llama_like();
    b_.on("bias_qkv", true);
    qwen_windows();
  }
  void qwen3() {
    llama_like();
    if (!c_.has("head_dim")) b_.add("head_dim", 128);
    b_.add("qk_norm", "head");
    attention_bias();
    qwen_windows();
  }
  void qwen3_moe() {
    qwen3();
    experts(c_.either({"num_experts", "num_local_experts"}, 128),
            c_.needed({"moe_intermediate_size"}));
    moe_steps();
  }
  void gemma_like() {
    sizes();
    feed_forward(c_.needed({"intermediate_size"}));
    head_dim(256);
    tied(true);
    const std::string kind = c_.word("hidden_activation", c_.word("hidden_act", "gelu"));
    activation(kind, true);
    b_.on("plus_one", true);
  }
  void gemma() { gemma_like(); }
  void softcaps() {
    if (c_.has("attn_logit_softcapping")) b_.add("softcap", c_.quantity("attn_logit_softcapping"));
    if (c_.has("final_logit_softcapping"))
      b_.add("final_softcap", c_.quantity("final_logit_softcapping"));
  }
  void gemma2() {
    gemma_like();
    b_.add("norms", "sandwich");
    windows(c_.number("sliding_window", 4096), 2);
    softcaps();
  }
  void gemma3() {
    gemma_like();
    b_.add("norms", "sandwich");
    b_.add("qk_norm", "head");
    windows(c_.number("sliding_window", 4096), c_.number("sliding_window_pattern", 6));
    softcaps();
  }
  void phi() {
    sizes();
    feed_forward(c_.needed({"intermediate_size"}));
    tied(false);
    b_.add("norm", "layernorm");
    b_.add("norms", "parallel");
    activation(c_.word("hidden_act", "gelu_new"), false);
    biases();
    b_.on("head_bias", true);
    if (c_.flag("qk_layernorm", false))
      into_.mistakes.push_back({"qk_layernorm of Phi is not known", "write the model by its ops"});
  }
  void phi3() {
    llama_like();
    windows(c_.number("sliding_window", 0), 1);
  }
  void gpt2() {
    sizes();
    feed_forward(c_.number("n_inner", 4 * s_.hidden));
    tied(true);
    b_.add("position", "learned");
    b_.add("positions", c_.either({"n_positions", "n_ctx"}, 1024));
    b_.add("norm", "layernorm");
    activation(c_.word("activation_function", "gelu_new"), false);
    biases();
  }
  void gpt_neox() {
    sizes();
    feed_forward(c_.needed({"intermediate_size"}));
    tied(false);
    b_.add("norm", "layernorm");
    if (c_.flag("use_parallel_residual", true)) b_.add("norms", "parallel2");
    activation(c_.word("hidden_act", "gelu"), false);
    const bool attention = c_.flag("attention_bias", true);
    b_.on("bias_qkv", attention);
    b_.on("bias_o", attention);
    b_.on("bias_mlp", true);
  }
  void opt() {
    sizes();
    feed_forward(c_.needed({"ffn_dim"}));
    tied(true);
    b_.add("position", "learned");
    // The first two rows of the table are never read.
    b_.add("positions", c_.number("max_position_embeddings", 2048) + 2);
    b_.add("norm", "layernorm");
    activation(c_.word("activation_function", "relu"), false);
    biases();
    if (c_.number("word_embed_proj_dim", s_.hidden) != s_.hidden ||
        !c_.flag("do_layer_norm_before", true))
      into_.mistakes.push_back(
          {"embeddings narrower than the model, or norms behind its blocks, as OPT 350M has them",
           "write the model by its ops"});
  }
  void bloom() {
    sizes();
    feed_forward(4 * s_.hidden);
    tied(true);
    b_.add("position", "alibi");
    b_.on("embed_norm", true);
    b_.add("norm", "layernorm");
    activation("gelu", false);
    biases();
  }
  void falcon() {
    s_.layers = c_.needed({"num_hidden_layers", "n_layer"});
    s_.hidden = c_.needed({"hidden_size"});
    s_.heads = c_.needed({"num_attention_heads", "n_head"});
    s_.vocab = c_.needed({"vocab_size"});
    const bool decoder = c_.flag("new_decoder_architecture", false);
    const bool one = c_.flag("multi_query", true);
    s_.kv_heads = decoder ? c_.either({"num_kv_heads", "n_head_kv"}, s_.heads) : one ? 1 : s_.heads;
    b_.add("layers", s_.layers);
    b_.add("hidden", s_.hidden);
    b_.add("heads", s_.heads);
    b_.add("kv_heads", s_.kv_heads);
    feed_forward(c_.number("ffn_hidden_size", 4 * s_.hidden));
    tied(true);
    b_.add("norm", "layernorm");
    if (decoder)
      b_.add("norms", c_.number("num_ln_in_parallel_attn", 2) == 1 ? "parallel" : "parallel2");
    else if (c_.flag("parallel_attn", true))
      b_.add("norms", "parallel");
    if (c_.flag("alibi", false)) b_.add("position", "alibi");
    activation(c_.word("activation", "gelu"), false);
    if (c_.flag("bias", false)) biases();
  }
  void deepseek() {
    sizes();
    feed_forward(c_.needed({"intermediate_size"}));
    tied(false);
    const std::int64_t expert = c_.needed({"moe_intermediate_size"});
    experts(c_.needed({"n_routed_experts"}), expert);
    if (const auto shared = c_.number("n_shared_experts", 0); shared > 0)
      b_.add("shared", shared * expert);
    if (const auto dense = c_.number("first_k_dense_replace", 0); dense > 0)
      b_.add("first_dense", dense);
    if (const auto every = c_.number("moe_layer_freq", 1); every > 1) b_.add("moe_every", every);
    b_.on("router_bias", c_.word("topk_method") == "noaux_tc");
    if (c_.word("scoring_func", "softmax") == "sigmoid") b_.add("score", "sigmoid");
    b_.add("q_lora", c_.number("q_lora_rank", 0));
    b_.add("kv_lora", c_.needed({"kv_lora_rank"}));
    b_.add("nope", c_.needed({"qk_nope_head_dim"}));
    b_.add("rope_dim", c_.needed({"qk_rope_head_dim"}));
    b_.add("v_dim", c_.needed({"v_head_dim"}));
    multi_token("num_nextn_predict_layers");
  }
  void gpt_oss() {
    llama_like();
    b_.on("bias_qkv", c_.flag("attention_bias", true));
    b_.on("bias_o", c_.flag("attention_bias", true));
    b_.on("sinks", true);
    experts(c_.needed({"num_local_experts"}), s_.ffn);
    b_.on("router_bias", true);
    b_.on("expert_bias", true);
    windows(c_.number("sliding_window", 128), 2);
    if (c_.has("quantization_config"))
      b_.note(
          "quantization_config is of the published weights; a job's precision or weights says "
          "what runs.");
  }
  void glm4() {
    llama_like();
    b_.on("bias_qkv", c_.flag("attention_bias", false));
    b_.add("norms", "sandwich");
  }
  void glm4_moe() {
    llama_like();
    b_.on("bias_qkv", c_.flag("attention_bias", false));
    if (c_.flag("use_qk_norm", false)) b_.add("qk_norm", "head");
    const std::int64_t expert = c_.needed({"moe_intermediate_size"});
    experts(c_.needed({"n_routed_experts"}), expert);
    if (const auto shared = c_.number("n_shared_experts", 0); shared > 0)
      b_.add("shared", shared * expert);
    if (const auto dense = c_.number("first_k_dense_replace", 1); dense > 0)
      b_.add("first_dense", dense);
    b_.on("router_bias", true);
    b_.add("score", "sigmoid");
    multi_token("num_nextn_predict_layers");
  }
  void llama4() {
    sizes();
    feed_forward(c_.needed({"intermediate_size_mlp"}));
    head_dim();
    tied(false);
    const std::int64_t expert = c_.needed({"intermediate_size"});
    b_.add("experts", c_.needed({"num_local_experts"}));
    b_.add("top_k", c_.number("num_experts_per_tok", 1));
    b_.add("expert_ffn", expert);
    b_.add("shared", expert);
    b_.add("score", "sigmoid");
    if (const auto every = c_.number("interleave_moe_layer_step", 1); every > 1)
      b_.add("moe_every", every);
    if (const auto chunk = c_.number("attention_chunk_size", 8192); chunk > 0) {
      b_.add("chunk", chunk);
      b_.add("period", 4);
      b_.on("nope_global", true);
    }
  }
  void olmo2() {
    llama_like();
    b_.add("norms", "post");
    b_.add("qk_norm", "full");
  }
  void nemotron() {
    llama_like();
    b_.add("norm", "layernorm");
    activation(c_.word("hidden_act", "relu2"), false);
    b_.on("bias_mlp", c_.flag("mlp_bias", false));
    attention_bias();
  }

  const HubConfig& c_;
  HubBody& b_;
  Imported& into_;
  Sizes s_;
};

}  // namespace

bool read_hub_family(const std::string& type, const HubConfig& c, HubBody& b, Imported& into) {
  return Family(c, b, into).read(type);
}

std::vector<std::string> hub_families() {
  std::vector<std::string> out;
  for (const auto& [type, read] : Family::all()) out.push_back(type);
  return out;
}

}  // namespace plimsoll::imports
