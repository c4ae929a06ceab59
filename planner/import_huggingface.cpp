// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Fields and defaults are those of transformers' configuration classes
// (models/*/configuration_*.py), what each family's layers are made of those of its modeling_*.py.

#include "planner/import_huggingface.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lang/diagnostics.hpp"

namespace plimsoll::imports {
namespace {

using Json = nlohmann::json;

/// The object of a decoder, and which of its fields were read.
class Config {
 public:
  Config(const Json& json, Imported& into) : json_(json), into_(into) {}

  bool has(const std::string& key) const {
    used_.insert(key);
    const auto at = json_.find(key);
    return at != json_.end() && !at->is_null();
  }
  std::int64_t number(const std::string& key, std::int64_t otherwise) const {
    if (!has(key)) return otherwise;
    const Json& v = json_[key];
    if (v.is_number_integer()) return v.get<std::int64_t>();
    if (v.is_number_float() && v.get<double>() == static_cast<double>(v.get<std::int64_t>()))
      return v.get<std::int64_t>();
    into_.mistakes.push_back(
        {fmt::format("'{}' is to be a whole number, found {}", key, v.dump()), "correct the file"});
    return otherwise;
  }
  /// Of the first of several spellings.
  std::int64_t needed(std::initializer_list<const char*> keys) const {
    for (const char* key : keys)
      if (has(key)) {
        const std::int64_t n = number(key, 0);
        if (n <= 0 && into_.mistakes.empty())
          into_.mistakes.push_back(
              {fmt::format("'{}' is {}, which no model has", key, n), "correct the file"});
        return n;
      }
    into_.mistakes.push_back({fmt::format("there is no '{}'", *keys.begin()),
                              "give the config.json of the model itself, with its sizes"});
    return 1;
  }
  std::int64_t either(std::initializer_list<const char*> keys, std::int64_t otherwise) const {
    for (const char* key : keys)
      if (has(key)) return number(key, otherwise);
    return otherwise;
  }
  bool flag(const std::string& key, bool otherwise) const {
    return has(key) && json_[key].is_boolean() ? json_[key].get<bool>() : otherwise;
  }
  std::string word(const std::string& key, const std::string& otherwise = "") const {
    return has(key) && json_[key].is_string() ? json_[key].get<std::string>() : otherwise;
  }
  /// "16" or "16.0" of a number that may be a fraction.
  std::string quantity(const std::string& key) const {
    const Json& v = json_[key];
    const double d = v.is_number() ? v.get<double>() : 0;
    return fmt::format("{:g}", d);
  }
  const Json& at(const std::string& key) const {
    used_.insert(key);
    return json_[key];
  }
  std::vector<std::string> unread() const {
    std::vector<std::string> out;
    for (const auto& [key, value] : json_.items())
      if (!used_.contains(key)) out.push_back(key);
    return out;
  }

 private:
  const Json& json_;
  Imported& into_;
  mutable std::set<std::string> used_;
};

/// The body of the declaration, in the order written.
class Body {
 public:
  void add(std::string_view field, std::int64_t n) {
    text_ += fmt::format("  {} = {}\n", field, n);
  }
  void add(std::string_view field, std::string_view word) {
    text_ += fmt::format("  {} = {}\n", field, word);
  }
  void on(std::string_view field, bool yes) {
    if (yes) text_ += fmt::format("  {} = true\n", field);
  }
  void note(std::string_view line) { comments_ += fmt::format("# {}\n", line); }
  const std::string& text() const { return text_; }
  const std::string& comments() const { return comments_; }

 private:
  std::string text_, comments_;
};

/// Sizes that all families have, under either of their names.
struct Sizes {
  std::int64_t layers = 1, hidden = 1, heads = 1, kv_heads = 1, ffn = 1, vocab = 1;
};

class Family {
 public:
  Family(const Config& c, Body& b, Imported& into) : c_(c), b_(b), into_(into) {}

  /// False where the type is not known.
  bool read(const std::string& type) {
    using Reader = void (Family::*)();
    static const std::map<std::string, Reader> kFamilies = {
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
    const auto found = kFamilies.find(type);
    if (found == kFamilies.end()) return false;
    (this->*found->second)();
    return true;
  }
  static std::vector<std::string> known() {
    return {"llama",    "mistral", "mixtral",     "qwen2",    "qwen3",       "qwen3_moe",
            "gemma",    "gemma2",  "gemma3_text", "phi",      "phi3",        "gpt2",
            "gpt_neox", "opt",     "bloom",       "falcon",   "deepseek_v2", "deepseek_v3",
            "kimi_k2",  "gpt_oss", "glm4",        "glm4_moe", "llama4_text", "olmo2",
            "nemotron", "smollm3", "granite"};
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
    const std::int64_t d = c_.number("head_dim", otherwise);
    if (d > 0 && d * s_.heads != s_.hidden) b_.add("head_dim", d);
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
  std::int64_t period_of(const Json& types) {
    std::int64_t first_full = 0, full = 0, i = 0;
    for (const Json& type : types) {
      ++i;
      if (!type.is_string() || type.get<std::string>() != "full_attention") continue;
      ++full;
      if (first_full == 0) first_full = i;
    }
    if (full == 0) return 1;
    if (full == i) return 0;
    i = 0;
    for (const Json& type : types) {
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
    const Json& dense = c_.at("mlp_only_layers");
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

  const Config& c_;
  Body& b_;
  Imported& into_;
  Sizes s_;
};

/// Fields that change neither shapes nor bytes.
bool is_idle(const std::string& key) {
  static const std::set<std::string> kIdle = {"architectures",
                                              "model_type",
                                              "_name_or_path",
                                              "transformers_version",
                                              "torch_dtype",
                                              "dtype",
                                              "use_cache",
                                              "initializer_range",
                                              "rms_norm_eps",
                                              "layer_norm_eps",
                                              "layer_norm_epsilon",
                                              "norm_eps",
                                              "norm_epsilon",
                                              "rope_theta",
                                              "rope_scaling",
                                              "rope_parameters",
                                              "rotary_emb_base",
                                              "max_position_embeddings",
                                              "attention_dropout",
                                              "hidden_dropout",
                                              "hidden_dropout_prob",
                                              "attention_probs_dropout_prob",
                                              "embd_pdrop",
                                              "attn_pdrop",
                                              "resid_pdrop",
                                              "embd_pdrop",
                                              "pretraining_tp",
                                              "auto_map",
                                              "router_aux_loss_coef",
                                              "output_router_logits",
                                              "norm_topk_prob",
                                              "partial_rotary_factor",
                                              "rotary_pct",
                                              "quantization_config",
                                              "max_window_layers",
                                              "sliding_window",
                                              "n_ctx",
                                              "n_positions",
                                              "torchscript",
                                              "model_max_length"};
  return kIdle.contains(key) || key.ends_with("_token_id") || key.ends_with("_dropout") ||
         key.starts_with("summary_") || key.starts_with("task_") || key.starts_with("_");
}

std::string sanitized(std::string name) {
  if (const std::size_t slash = name.find_last_of('/'); slash != std::string::npos)
    name = name.substr(slash + 1);
  std::string out;
  for (const char c : name) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isalnum(u))
      out += static_cast<char>(std::tolower(u));
    else if (!out.empty() && out.back() != '_')
      out += '_';
  }
  while (!out.empty() && out.back() == '_') out.pop_back();
  if (out.empty() || std::isdigit(static_cast<unsigned char>(out.front()))) out = "m" + out;
  return out == "m" ? "imported" : out;
}

void unknown_family(const std::string& type, const Config& c, Imported& into) {
  std::vector<std::string> understood;
  for (const char* key :
       {"num_hidden_layers", "n_layer", "hidden_size", "n_embd", "num_attention_heads",
        "num_key_value_heads", "intermediate_size", "vocab_size", "tie_word_embeddings"})
    if (c.has(key)) understood.push_back(fmt::format("{} = {}", key, c.at(key).dump()));
  std::vector<std::string> not_understood;
  for (const std::string& key : c.unread())
    if (!is_idle(key)) not_understood.push_back(key);
  std::string what = type.empty() ? "the file has no model_type, so its architecture is not known"
                                  : fmt::format("the architecture '{}' is not known", type);
  what +=
      fmt::format("\n  understood: {}",
                  understood.empty() ? "nothing" : fmt::format("{}", fmt::join(understood, ", ")));
  if (!not_understood.empty())
    what += fmt::format("\n  not understood: {}", fmt::join(not_understood, ", "));
  const std::string near = did_you_mean(type, Family::known());
  into.mistakes.push_back(
      {what, near.empty()
                 ? "write its layers as a model of your own (docs/language.md, Models)"
                 : fmt::format("did you mean '{}'? Else write its layers as a model of your "
                               "own (docs/language.md, Models)",
                               near)});
}

}  // namespace

HubModel read_hub_config(const std::string& text, Imported& into) {
  HubModel model;
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) {
    into.mistakes.push_back({"this is no JSON object", "give a config.json of Hugging Face"});
    return model;
  }
  std::string type = json.contains("model_type") && json["model_type"].is_string()
                         ? json["model_type"].get<std::string>()
                         : "";
  Body body;
  model.name = sanitized(json.contains("_name_or_path") && json["_name_or_path"].is_string()
                             ? json["_name_or_path"].get<std::string>()
                             : "");
  // Models of several towers: the text part.
  for (const char* part : {"text_config", "llm_config", "language_config"})
    if (json.contains(part) && json[part].is_object()) {
      body.note(
          fmt::format("{} alone: what the file has beside it (a vision tower) is left out.", part));
      Json inner = json[part];
      if (inner.contains("model_type") && inner["model_type"].is_string())
        type = inner["model_type"].get<std::string>();
      json = std::move(inner);
      break;
    }
  const Config config(json, into);
  Family family(config, body, into);
  if (!family.read(type)) {
    unknown_family(type, config, into);
    return model;
  }
  if (!into.mistakes.empty()) return model;
  for (const std::string& key : config.unread())
    if (!is_idle(key))
      into.notes.push_back(
          fmt::format("'{}' was not read: as far as is known it changes no bytes", key));
  model.text =
      body.comments() + fmt::format("model {} = decoder {{\n{}}}\n", model.name, body.text());
  return model;
}

bool looks_like_huggingface(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  return !json.is_discarded() && json.is_object() && !json.contains("tensor_model_parallel_size") &&
         (json.contains("model_type") || json.contains("architectures") ||
          json.contains("num_hidden_layers") || json.contains("text_config"));
}

Imported read_huggingface(const Request& request) {
  Imported result;
  const HubModel model = read_hub_config(request.text, result);
  if (!result.mistakes.empty()) return result;
  result.plan = "# From a config.json of Hugging Face (plimsoll import).\n" + model.text;
  if (request.gpu.empty() && !request.gpus) return result;
  std::string gpu = gpu_name(request.gpu);
  std::string assumed = "# Assumed: sequences of 8Ki tokens and a batch of 256.\n";
  if (gpu.empty()) {
    gpu = "h100_sxm";
    assumed += "# Assumed: the GPU is not told (--gpu): H100 SXM.\n";
  }
  result.plan += assumed + cluster_text(gpu, request.gpus.value_or(8), result) +
                 fmt::format("train t {{\nmodel = {}\ncluster = c\n", model.name) +
                 (set_text(request).find("seq =") == std::string::npos ? "seq = 8Ki\n" : "") +
                 (set_text(request).find("batch =") == std::string::npos ? "batch = 256\n" : "") +
                 set_text(request) + "}\n";
  return result;
}

}  // namespace plimsoll::imports
