// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// torchtitan's TOML (torchtitan/config/job_config.py, 0.1 to 0.2.2; later ones are Python).

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "lang/diagnostics.hpp"
#include "lang/module.hpp"
#include "planner/import.hpp"
#include "planner/import_toml.hpp"
#include "planner/torchtitan_models.hpp"

namespace plimsoll::imports {
namespace {

bool is_of_the_prelude(const std::string& model) {
  Diagnostics ignored;
  const auto known = compile("prelude", "", ignored).names("model");
  return std::find(known.begin(), known.end(), model) != known.end();
}

/// Values with the defaults of the job's dataclasses.
class Values {
 public:
  Values(const Toml& toml, Imported& into) : toml_(toml), into_(into) {}

  bool has(const std::string& key) const {
    used_.insert(key);
    return toml_.values.contains(key);
  }
  std::int64_t number(const std::string& key, std::int64_t otherwise) const {
    if (!has(key)) return otherwise;
    const std::string& text = toml_.values.at(key).text;
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error == std::errc() && end == text.data() + text.size()) return n;
    into_.mistakes.push_back(
        {fmt::format("{} is to be a whole number, found '{}'", key, text), "correct the file"});
    return otherwise;
  }
  std::string word(const std::string& key, const std::string& otherwise) const {
    return has(key) ? toml_.values.at(key).text : otherwise;
  }
  bool flag(const std::string& key, bool otherwise) const {
    return has(key) ? toml_.values.at(key).text == "true" : otherwise;
  }
  const std::vector<TomlValue>& list(const std::string& key) const {
    static const std::vector<TomlValue> kEmpty;
    return has(key) ? toml_.values.at(key).items : kEmpty;
  }
  std::vector<std::string> unread() const {
    std::vector<std::string> out;
    for (const auto& [key, value] : toml_.values)
      if (!used_.contains(key)) out.push_back(key);
    return out;
  }

 private:
  const Toml& toml_;
  Imported& into_;
  mutable std::set<std::string> used_;
};

/// Tables whose fields change no bytes that stay.
bool is_idle(const std::string& key) {
  for (const char* table : {"job.",
                            "profiling.",
                            "metrics.",
                            "lr_scheduler.",
                            "checkpoint.",
                            "comm.",
                            "fault_tolerance.",
                            "validation.",
                            "debug.",
                            "experimental.",
                            "memory_estimation.",
                            "training.dataset",
                            "training.steps",
                            "training.max_norm",
                            "training.gc_",
                            "training.seed",
                            "training.deterministic",
                            "training.warmup",
                            "optimizer.",
                            "model.hf_assets_path",
                            "model.tokenizer_path",
                            "model.print_after_conversion",
                            "activation_checkpoint."})
    if (key.starts_with(table)) return true;
  return false;
}

class Titan {
 public:
  Titan(const Values& v, const Request& request, Imported& into)
      : v_(v), request_(request), into_(into) {}

  std::string plan() {
    degrees();
    if (!into_.mistakes.empty()) return "";
    const std::string model = model_name();
    job(model);
    layout();
    std::string head = "# From a TOML of torchtitan (plimsoll import).\n";
    const std::string cluster = machine();
    for (const std::string& line : assumed_) head += "# Assumed: " + line + ".\n";
    for (const std::string& key : v_.unread())
      if (!is_idle(key)) into_.notes.push_back(key + " was not read");
    return head + cluster + "train t {\n" + job_ + set_text(request_) + "}\nlayout run {\n" +
           layout_ + "}\n";
  }

 private:
  void set(std::string_view name, std::string_view value) {
    job_ += fmt::format("{} = {}\n", name, value);
  }
  void degree(std::string_view name, std::int64_t n) {
    if (n != 1) layout_ += fmt::format("{} = {}\n", name, n);
  }

  void degrees() {
    tp_ = v_.number("parallelism.tensor_parallel_degree", 1);
    pp_ = v_.number("parallelism.pipeline_parallel_degree", 1);
    cp_ = v_.number("parallelism.context_parallel_degree", 1);
    replicate_ = v_.number("parallelism.data_parallel_replicate_degree", 1);
    shard_ = v_.number("parallelism.data_parallel_shard_degree", -1);
    if (tp_ <= 0 || pp_ <= 0 || cp_ <= 0 || replicate_ <= 0) {
      into_.mistakes.push_back({"a degree of [parallelism] is not above 0", "correct the file"});
      return;
    }
    constexpr std::int64_t kMost = 1'000'000;
    if (std::max({tp_, pp_, cp_, replicate_}) > kMost || tp_ * pp_ > kMost ||
        cp_ * replicate_ > kMost) {
      into_.mistakes.push_back(
          {"no cluster has as many GPUs as the degrees of [parallelism] ask for",
           "correct the file"});
      return;
    }
    const std::int64_t rest = tp_ * pp_ * cp_ * replicate_;
    if (shard_ <= 0) {
      const std::int64_t gpus = request_.gpus.value_or(std::max<std::int64_t>(rest, 8));
      if (!request_.gpus)
        assumed_.push_back(fmt::format(
            "the number of GPUs is not told (--gpus), nor data_parallel_shard_degree: {}", gpus));
      shard_ = gpus / rest;
      if (shard_ < 1 || gpus % rest != 0)
        into_.mistakes.push_back(
            {fmt::format("{} GPUs do not divide by the degrees, {}", gpus, rest), "give --gpus"});
    }
    gpus_ = rest * shard_;
    if (request_.gpus && *request_.gpus != gpus_)
      into_.mistakes.push_back(
          {fmt::format("the degrees make {} GPUs, not {}", gpus_, *request_.gpus),
           "leave --gpus out, or correct it"});
  }

  std::string machine() {
    std::string gpu = gpu_name(request_.gpu);
    if (gpu.empty()) {
      gpu = "h100_sxm";
      assumed_.push_back("the GPU is not told (--gpu): H100 SXM");
    }
    return cluster_text(gpu, gpus_, into_);
  }

  std::string model_name() {
    const std::string name = v_.word("model.name", "llama3"), flavor = v_.word("model.flavor", "");
    std::vector<std::string> known;
    for (const TitanModel& m : kTitanModels) {
      if (m.name == name && m.flavor == flavor) return std::string(m.model);
      if (m.name == name) known.emplace_back(m.flavor);
    }
    if (is_of_the_prelude(flavor)) return flavor;  // what our own export asks to register
    into_.mistakes.push_back(
        {fmt::format("the shape of model.name = '{}', flavor = '{}' is not known", name, flavor),
         known.empty() ? "the models are llama3, llama4, qwen3, deepseek_v3 and gpt_oss"
                       : fmt::format("the flavors of {} are {}", name, fmt::join(known, ", "))});
    return "llama3_8b";
  }

  void job(const std::string& model) {
    const std::int64_t local =
        v_.number("training.local_batch_size", v_.number("training.batch_size", 8));
    const std::int64_t replicas = replicate_ * shard_;
    std::int64_t batch = v_.number("training.global_batch_size", -1);
    if (batch <= 0) batch = local * replicas;
    mbs_ = pp_ > 1 ? v_.number("parallelism.pipeline_parallel_microbatch_size", 1) : local;
    set("model", model);
    set("cluster", "c");
    set("seq", std::to_string(v_.number("training.seq_len", 2048)));
    set("batch", std::to_string(batch));
    set("framework", "torchtitan");
    bool fp8 = false;
    for (const TomlValue& one : v_.list("model.converters"))
      fp8 |= one.text.find("float8") != std::string::npos;
    if (v_.word("training.dtype", "float32") == "bfloat16")
      into_.mistakes.push_back(
          {"training.dtype = bfloat16 keeps weights, gradients and states in bf16",
           "the prelude's torchtitan keeps them in fp32: copy the framework and "
           "change its states"});
    set("precision", fp8                                                                  ? "fp8"
                     : v_.word("training.mixed_precision_param", "bfloat16") == "float32" ? "fp32"
                                                                                          : "bf16");
    compile();
    if (v_.flag("parallelism.enable_async_tensor_parallel", false)) set("tp_overlap", "true");
    if (fp8)
      if (const std::string recipe = v_.word("quantize.linear.float8.recipe_name", "tensorwise");
          recipe == "rowwise")
        set("fp8_recipe", recipe);
    if (v_.flag("training.enable_cpu_offload", false))
      into_.mistakes.push_back(
          {"training.enable_cpu_offload moves parameters too, which no bill has",
           "leave it out to see the bill without it"});
    const std::string optimizer = v_.word("optimizer.name", "AdamW");
    if (optimizer != "AdamW" && optimizer != "Adam")
      into_.mistakes.push_back({fmt::format("optimizer.name = {} is not known", optimizer),
                                "torchtitan has Adam and AdamW"});
  }

  void compile() {
    const bool on = v_.flag("compile.enable", v_.flag("training.compile", false));
    bool loss = !v_.has("compile.components");
    bool model = loss;
    for (const TomlValue& one : v_.list("compile.components")) {
      loss |= one.text == "loss";
      model |= one.text == "model";
    }
    if (!on || !model) set("compile", "false");
    if (tp_ > 1 && !v_.flag("parallelism.disable_loss_parallel", false))
      set("loss", "loss_parallel");
    else if (!on || !loss)
      set("loss", "eager");
  }

  void layout() {
    degree("tp", tp_);
    degree("pp", pp_);
    degree("cp", cp_);
    degree("ep", v_.number("parallelism.expert_parallel_degree", 1));
    degree("etp", v_.number("parallelism.expert_tensor_parallel_degree", 1));
    layout_ += "zero = 3\n";
    if (replicate_ > 1) layout_ += fmt::format("shard = {}\n", shard_ * cp_);
    layout_ += fmt::format("mbs = {}\n", mbs_);
    if (tp_ > 1) layout_ += "sp = true\n";
    if (pp_ > 1) stages();
    const std::string mode = v_.word("activation_checkpoint.mode", "selective");
    if (mode == "full") {
      layout_ += "recompute = full\n";
    } else if (mode == "selective") {
      const std::string option = v_.word("activation_checkpoint.selective_ac_option", "2");
      if (option == "op")
        layout_ += "recompute = selective\n";
      else
        every_nth(option);
    } else if (mode != "none") {
      into_.mistakes.push_back({fmt::format("activation_checkpoint.mode = {} is not known", mode),
                                "none, selective and full are"});
    }
  }

  /// Every n-th layer of a stage: as many, though others than the first ones.
  void every_nth(const std::string& option) {
    std::int64_t n = 0;
    std::from_chars(option.data(), option.data() + option.size(), n);
    if (n <= 0) {
      into_.mistakes.push_back(
          {fmt::format("selective_ac_option = '{}' is not known", option), "'op' or a number is"});
      return;
    }
    if (n == 1) {
      layout_ += "recompute = full\n";
      return;
    }
    if (stage_layers_.empty()) {
      into_.mistakes.push_back(
          {fmt::format(
               "selective_ac_option = '{}' recomputes every {}th layer, and how many a stage "
               "has is not told here",
               option, n),
           "give module_fqns_per_model_part, or selective_ac_option = 'op'"});
      return;
    }
    std::vector<std::int64_t> list;
    for (const std::int64_t k : stage_layers_) list.push_back(k / n);
    layout_ += fmt::format("recompute = full\nrecompute_layers = [{}]\n", fmt::join(list, ", "));
    assumed_.push_back(fmt::format("every {}th layer is recomputed: counted as the first ones", n));
  }

  void stages() {
    const std::string word = v_.word("parallelism.pipeline_parallel_schedule", "1F1B");
    std::string lower;
    for (const char c : word)
      lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    std::string ours;
    if (lower == "1f1b") ours = "1f1b";
    if (lower == "interleaved1f1b") ours = "interleaved";
    if (lower == "gpipe") ours = "gpipe";
    if (lower == "zbvzerobubble") ours = "zb_v";
    if (lower == "dualpipev") ours = "dualpipe_v";
    if (ours.empty()) {
      into_.mistakes.push_back({fmt::format("pipeline_parallel_schedule = {} is not known", word),
                                "1F1B, Interleaved1F1B, GPipe, ZBVZeroBubble and DualPipeV are"});
      return;
    }
    const bool folds = ours == "zb_v" || ours == "dualpipe_v";
    std::vector<std::int64_t> pieces;
    for (const TomlValue& part : v_.list("parallelism.module_fqns_per_model_part")) {
      pieces.push_back(0);
      for (const TomlValue& one : part.items)
        pieces.back() += one.text.starts_with("layers.") ? 1 : 0;
    }
    std::int64_t vpp = ours == "1f1b" || ours == "gpipe" ? 1 : 2;
    if (!pieces.empty()) {
      if (std::ssize(pieces) % pp_ != 0) {
        into_.mistakes.push_back(
            {fmt::format("{} parts do not divide over {} stages", pieces.size(), pp_),
             "correct module_fqns_per_model_part"});
        return;
      }
      vpp = std::ssize(pieces) / pp_;
    } else {
      assumed_.push_back("stages are cut by the default rule (no module_fqns_per_model_part)");
    }
    degree("vpp", vpp);
    if (ours != "1f1b" && ours != "interleaved") layout_ += "schedule = " + ours + "\n";
    if (pieces.empty()) return;
    for (std::int64_t r = 0; r < pp_; ++r) {
      std::int64_t sum = 0;
      for (std::int64_t k = 0; k < vpp; ++k)
        sum += pieces[static_cast<std::size_t>(folds && k == 1 ? 2 * pp_ - 1 - r : k * pp_ + r)];
      stage_layers_.push_back(sum);
    }
    layout_ += fmt::format("stage_layers = [{}]\n", fmt::join(stage_layers_, ", "));
  }

  const Values& v_;
  const Request& request_;
  Imported& into_;
  std::int64_t tp_ = 1, pp_ = 1, cp_ = 1, replicate_ = 1, shard_ = 1, gpus_ = 1, mbs_ = 1;
  std::vector<std::int64_t> stage_layers_;
  std::vector<std::string> assumed_;
  std::string job_, layout_;
};

}  // namespace

bool looks_like_torchtitan(const std::string& text) {
  const Toml toml = read_toml(text);
  return toml.mistake.empty() &&
         std::any_of(toml.values.begin(), toml.values.end(), [](const auto& entry) {
           return entry.first.starts_with("training.") || entry.first.starts_with("parallelism.");
         });
}

Imported read_torchtitan(const Request& request) {
  Imported result;
  const Toml toml = read_toml(request.text);
  if (!toml.mistake.empty()) {
    result.mistakes.push_back(
        {"this is not TOML as torchtitan has it: " + toml.mistake, "correct the line"});
    return result;
  }
  const Values values(toml, result);
  result.plan = Titan(values, request, result).plan();
  return result;
}

}  // namespace plimsoll::imports
