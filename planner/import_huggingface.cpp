// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/import_huggingface.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>

#include "lang/diagnostics.hpp"
#include "planner/foreign_json.hpp"
#include "planner/import_hub_config.hpp"

namespace plimsoll::imports {
namespace {

using Json = nlohmann::json;

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

void unknown_family(const std::string& type, const HubConfig& c, Imported& into) {
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
  const std::string near = did_you_mean(type, hub_families());
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
  Json json = foreign_json(text);
  if (json.is_discarded() || !json.is_object()) {
    into.mistakes.push_back({"this is no JSON object", "give a config.json of Hugging Face"});
    return model;
  }
  std::string type = json.contains("model_type") && json["model_type"].is_string()
                         ? json["model_type"].get<std::string>()
                         : "";
  HubBody body;
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
  const HubConfig config(json, into);
  if (!read_hub_family(type, config, body, into)) {
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
  const Json json = foreign_json(text);
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
