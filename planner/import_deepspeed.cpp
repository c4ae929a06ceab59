// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// DeepSpeed's JSON (deepspeed/runtime/config.py, zero/config.py) with the model's config.json.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "planner/foreign_json.hpp"
#include "planner/import.hpp"
#include "planner/import_huggingface.hpp"

namespace plimsoll::imports {
namespace {

using Json = nlohmann::json;

/// A number of an object, where it is one ("auto" is the Trainer's word for its own arguments').
std::optional<std::int64_t> number(const Json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_number()) return std::nullopt;
  return at->is_number_float() ? static_cast<std::int64_t>(at->get<double>())
                               : at->get<std::int64_t>();
}

Json object_at(const Json& parent, const char* key) {
  const auto at = parent.find(key);
  return at != parent.end() && at->is_object() ? *at : Json::object();
}

bool enabled(const Json& config, const char* key) {
  const Json section = object_at(config, key);
  const auto at = section.find("enabled");
  return at != section.end() && at->is_boolean() && at->get<bool>();
}

class SpeedReader {
 public:
  SpeedReader(const Json& config, const Request& request, Imported& into)
      : c_(config),
        own_(object_at(config, "_plimsoll")),
        zero_(object_at(config, "zero_optimization")),
        request_(request),
        into_(into) {}

  std::string plan() {
    const std::string model = model_text();
    std::string cluster = machine();
    batch();
    if (!into_.mistakes.empty()) return "";
    job();
    layout();
    if (offloads_) cluster = with_host(std::move(cluster), assumed_);
    std::string head = "# From a JSON of DeepSpeed (plimsoll import).\n";
    for (const std::string& line : assumed_) head += "# Assumed: " + line + ".\n";
    return head + cluster + model + "train t {\n" + job_ + set_text(request_) +
           "}\nlayout run {\n" + layout_ + "}\n";
  }

 private:
  void set(std::string_view name, std::string_view value) {
    if (set_text(request_).find(fmt::format("{} =", name)) == std::string::npos)
      job_ += fmt::format("{} = {}\n", name, value);
  }
  std::string own_word(const char* key) const {
    const auto at = own_.find(key);
    return at != own_.end() && at->is_string() ? at->get<std::string>() : "";
  }

  /// The config.json that was given too, or the prelude's name that our own export noted.
  std::string model_text() {
    for (const auto& [name, text] : request_.others)
      if (looks_like_huggingface(text)) {
        const HubModel model = read_hub_config(text, into_);
        model_ = model.name;
        return model.text;
      }
    model_ = own_word("model");
    if (model_.empty())
      into_.mistakes.push_back(
          {"a DeepSpeed JSON does not say what is trained",
           "give the model's config.json too: plimsoll import ds.json config.json"});
    return "";
  }

  std::string machine() {
    std::string gpu = gpu_name(request_.gpu.empty() ? own_word("gpu") : request_.gpu);
    if (gpu.empty()) {
      gpu = "h100_sxm";
      assumed_.push_back("the GPU is not told (--gpu): H100 SXM");
    }
    const auto nodes = number(own_, "nodes"), each = number(own_, "gpus_per_node");
    if (request_.gpus) {
      gpus_ = *request_.gpus;
    } else if (nodes && each && *nodes > 0 && *each > 0) {
      gpus_ = *nodes * *each;
      return fmt::format("cluster c {{ gpu = {}  nodes = {}  gpus_per_node = {} }}\n", gpu, *nodes,
                         *each);
    } else {
      const auto all = number(c_, "train_batch_size");
      const auto micro = number(c_, "train_micro_batch_size_per_gpu");
      const auto steps = number(c_, "gradient_accumulation_steps");
      const std::int64_t tp = number(object_at(c_, "tensor_parallel"), "autotp_size").value_or(1);
      if (all && micro && steps && *micro > 0 && *steps > 0) {
        gpus_ = *all / (*micro * *steps) * std::max<std::int64_t>(tp, 1);
      } else {
        gpus_ = 8;
        assumed_.push_back("the number of GPUs is not told (--gpus): 8");
      }
    }
    return cluster_text(gpu, gpus_, into_);
  }

  void batch() {
    tp_ = std::max<std::int64_t>(
        1, number(object_at(c_, "tensor_parallel"), "autotp_size").value_or(1));
    const std::int64_t replicas = std::max<std::int64_t>(gpus_ / tp_, 1);
    const auto all = number(c_, "train_batch_size");
    const auto micro = number(c_, "train_micro_batch_size_per_gpu");
    const auto steps = number(c_, "gradient_accumulation_steps");
    for (const auto& n : {all, micro, steps})
      if (n && *n <= 0)
        into_.mistakes.push_back({"a batch size is not above 0", "correct the file"});
    if (!into_.mistakes.empty()) return;
    if (micro) {
      mbs_ = *micro;
    } else if (all) {
      mbs_ = std::max<std::int64_t>(*all / replicas / steps.value_or(1), 1);
    } else {
      mbs_ = 1;
      assumed_.push_back("train_micro_batch_size_per_gpu is the Trainer's (\"auto\"): 1");
    }
    batch_ = all ? *all : mbs_ * replicas * steps.value_or(1);
    if (!all && !steps)
      assumed_.push_back("gradient_accumulation_steps is the Trainer's (\"auto\"): 1");
  }

  void job() {
    job_ += fmt::format("model = {}\ncluster = c\n", model_);
    if (const auto seq = number(own_, "seq")) {
      set("seq", std::to_string(*seq));
    } else {
      if (set_text(request_).find("seq =") == std::string::npos)
        assumed_.push_back("the sequence is the data's (--set seq=N): 4Ki tokens");
      set("seq", "4Ki");
    }
    set("batch", std::to_string(batch_));
    set("framework", "deepspeed");
    set("precision", enabled(c_, "fp16") ? "fp16" : enabled(c_, "bf16") ? "bf16" : "fp32");
    const auto is_auto = [&](const char* key) {
      const Json section = object_at(c_, key);
      return section.contains("enabled") && section["enabled"] == "auto";
    };
    if (is_auto("bf16") || is_auto("fp16"))
      assumed_.push_back(
          "bf16 and fp16 are the Trainer's (\"auto\"): --set precision=bf16 says it");
    optimizer();
    if (const auto bucket = number(zero_, "reduce_bucket_size"); bucket && *bucket != 500'000'000)
      set("bucket", std::to_string(*bucket));
    if (zero_.contains("overlap_comm") && zero_["overlap_comm"] == false)
      set("overlap_comm", "false");
    if (const auto live = number(zero_, "stage3_max_live_parameters");
        live && *live != 1'000'000'000)
      set("max_live", std::to_string(*live));
  }

  void optimizer() {
    const Json section = object_at(c_, "optimizer");
    const std::string type =
        section.contains("type") && section["type"].is_string() ? section["type"] : "";
    if (type.empty() || type == "Adam" || type == "AdamW") return;
    if (type == "Lion")
      set("optimizer", "lion");
    else if (type == "Muon")
      set("optimizer", "muon");
    else
      into_.mistakes.push_back(
          {fmt::format("the optimizer {} is not known", type),
           "Adam, AdamW, Lion and Muon are; others are `optimizer` declarations"});
  }

  void layout() {
    if (tp_ > 1) layout_ += fmt::format("tp = {}\n", tp_);
    const std::int64_t stage = number(zero_, "stage").value_or(0);
    if (stage < 0 || stage > 3)
      into_.mistakes.push_back({fmt::format("there is no ZeRO stage {}", stage), "0 to 3 are"});
    layout_ += fmt::format("zero = {}\nmbs = {}\n", stage, mbs_);
    const Json offload = object_at(zero_, "offload_optimizer");
    if (offload.contains("device") && offload["device"] == "cpu") {
      const double ratio = offload.contains("ratio") && offload["ratio"].is_number()
                               ? offload["ratio"].get<double>()
                               : 1.0;
      layout_ += fmt::format("offload = {:g}\n", ratio);
      offloads_ = true;
    }
    if (object_at(zero_, "offload_param").contains("device") &&
        object_at(zero_, "offload_param")["device"] != "none")
      into_.mistakes.push_back({"offload_param moves weights to the host, which no bill has",
                                "leave it out to see the bill without it"});
    if (c_.contains("activation_checkpointing"))
      layout_ += "recompute = full\n";
    else if (own_.empty())
      assumed_.push_back(
          "no activation_checkpointing: nothing is recomputed (the Trainer's "
          "gradient_checkpointing would be recompute = full)");
    if (number(zero_, "zero_hpz_partition_size").value_or(1) > 1)
      into_.notes.push_back(
          "zero_hpz_partition_size: its second shards of the weights are not counted");
  }

  const Json& c_;
  Json own_, zero_;
  const Request& request_;
  Imported& into_;
  std::int64_t gpus_ = 8, tp_ = 1, mbs_ = 1, batch_ = 1;
  std::string model_, job_, layout_;
  std::vector<std::string> assumed_;
  bool offloads_ = false;
};

}  // namespace

bool looks_like_deepspeed(const std::string& text) {
  const Json json = foreign_json(text);
  return !json.is_discarded() && json.is_object() &&
         (json.contains("zero_optimization") || json.contains("train_micro_batch_size_per_gpu") ||
          json.contains("train_batch_size"));
}

Imported read_deepspeed(const Request& request) {
  Imported result;
  const Json json = foreign_json(request.text);
  if (json.is_discarded() || !json.is_object()) {
    result.mistakes.push_back({"this is no JSON object", "give a configuration of DeepSpeed"});
    return result;
  }
  for (const char* section : {"zero_optimization", "bf16", "fp16", "optimizer", "tensor_parallel"})
    if (const auto at = json.find(section);
        at != json.end() && !at->is_object() && !at->is_null()) {
      result.mistakes.push_back(
          {fmt::format("'{}' is to be an object, found {}", section, at->dump()),
           "correct the file"});
      return result;
    }
  result.plan = SpeedReader(json, request, result).plan();
  return result;
}

}  // namespace plimsoll::imports
