// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// torchtitan's TOML (torchtitan/config/job_config.py of 0.2.2, the last release that reads one).

#include <fmt/format.h>

#include <algorithm>

#include "planner/export.hpp"
#include "planner/export_shape.hpp"
#include "planner/stages.hpp"
#include "planner/torchtitan_models.hpp"

namespace plimsoll::exports {
namespace {

const TitanModel* titan_model(const Problem& p) {
  Diagnostics said;
  for (const TitanModel& m : kTitanModels) {
    if (p.job->model == m.model) return &m;
    const Program* other = p.module->program(m.model, said);
    if (other != nullptr && other->parameter_count() == p.program->parameter_count() &&
        other->layer_count == shape_of(*p.program).layers)
      return &m;
  }
  return nullptr;
}

std::string schedule_word(Schedule s) {
  switch (s) {
    case Schedule::one_f_one_b:
      return "1F1B";
    case Schedule::interleaved:
      return "Interleaved1F1B";
    case Schedule::gpipe:
      return "GPipe";
    case Schedule::zb_v:
      return "ZBVZeroBubble";
    case Schedule::dualpipe_v:
      return "DualPipeV";
    case Schedule::zb_h1:
      break;
  }
  return "";
}

/// The modules of each chunk, in the order of the model.
std::string modules(const Problem& p, const Layout& l, Exported& out) {
  std::vector<Piece> all;
  for (const auto& stage : pieces(*p.program, l)) all.insert(all.end(), stage.begin(), stage.end());
  std::sort(all.begin(), all.end(),
            [](const Piece& a, const Piece& b) { return a.first < b.first; });
  const std::vector<bool> empty = shape_of(*p.program).empty;
  std::string text = "[\n";
  std::int64_t next = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<std::string> names;
    if (i == 0) names.push_back("\"tok_embeddings\"");
    for (std::int64_t k = 0; k < all[i].count; ++k)
      if (!empty[static_cast<std::size_t>(all[i].first + k)])
        names.push_back(fmt::format("\"layers.{}\"", next++));
    if (i + 1 == all.size()) names.insert(names.end(), {"\"norm\"", "\"output\""});
    if (names.empty()) {
      out.mistakes.push_back({"torchtitan has no part of the model without a parameter",
                              "leave a layer that holds something in every chunk"});
      break;
    }
    text += fmt::format("  [{}],\n", fmt::join(names, ", "));
  }
  return text + "]";
}

class Toml {
 public:
  void section(std::string_view name) {
    text_ += fmt::format("{}[{}]\n", text_.empty() ? "" : "\n", name);
  }
  void number(std::string_view key, std::int64_t n) { text_ += fmt::format("{} = {}\n", key, n); }
  void flag(std::string_view key, bool on) { text_ += fmt::format("{} = {}\n", key, on); }
  void word(std::string_view key, std::string_view w) {
    text_ += fmt::format("{} = \"{}\"\n", key, w);
  }
  void raw(std::string_view key, std::string_view w) { text_ += fmt::format("{} = {}\n", key, w); }
  void comment(std::string_view line) { text_ += fmt::format("# {}\n", line); }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void write_model(Toml& t, const Subject& s, Exported& out) {
  t.section("model");
  if (const TitanModel* m = titan_model(s.problem)) {
    t.word("name", m->name);
    t.word("flavor", m->flavor);
  } else {
    const Shape shape = shape_of(*s.problem.program);
    t.comment("No flavor of torchtitan has this shape; register one:");
    t.comment(
        fmt::format("dim = {}, n_layers = {}, n_heads = {}, n_kv_heads = {}, vocab_size = {},",
                    shape.hidden, shape.layers, shape.heads, shape.kv_heads, shape.vocab));
    t.comment(fmt::format("a feed-forward of {}{}", shape.ffn,
                          shape.experts > 0
                              ? fmt::format(", {} experts of {} of which a token visits {}",
                                            shape.experts, shape.expert_ffn, shape.top_k)
                              : std::string()));
    t.word("name", "llama3");
    t.word("flavor", s.problem.job->model);
    out.warnings.push_back(
        fmt::format("torchtitan has no flavor of the shape of {}: register one by that name (the "
                    "file says which)",
                    s.problem.job->model));
  }
  if (s.problem.job->precision == "fp8") t.raw("converters", "[\"quantize.linear.float8\"]");
}

void write_training(Toml& t, const Subject& s) {
  const Layout& l = s.layout;
  t.section("training");
  t.number("seq_len", l.seq);
  t.number("local_batch_size", l.pp > 1 ? l.mbs * l.microbatches : l.mbs);
  t.number("global_batch_size", l.batch);
  t.word("mixed_precision_param", s.problem.job->precision == "fp32" ? "float32" : "bfloat16");
  t.word("mixed_precision_reduce", "float32");
}

void write_parallelism(Toml& t, const Subject& s, Exported& out) {
  const Layout& l = s.layout;
  t.section("parallelism");
  t.number("data_parallel_replicate_degree", l.dp * l.cp / l.shard);
  t.number("data_parallel_shard_degree", l.shard / l.cp);
  t.word("fsdp_reshard_after_forward", "default");
  t.number("tensor_parallel_degree", l.tp);
  t.flag("disable_loss_parallel", switch_of(s.problem, "loss") != "loss_parallel");
  t.flag("enable_async_tensor_parallel", is_on(s.problem, "tp_overlap"));
  t.number("context_parallel_degree", l.cp);
  t.number("pipeline_parallel_degree", l.pp);
  if (l.pp > 1) {
    t.word("pipeline_parallel_schedule", schedule_word(l.schedule));
    t.number("pipeline_parallel_microbatch_size", l.mbs);
    t.raw("module_fqns_per_model_part", modules(s.problem, l, out));
  }
  t.number("expert_parallel_degree", l.ep);
  t.number("expert_tensor_parallel_degree", l.etp);
}

void write_rest(Toml& t, const Subject& s) {
  const Layout& l = s.layout;
  t.section("activation_checkpoint");
  t.word("mode", l.recompute == 0 ? "none" : l.recompute == kFullRecompute ? "full" : "selective");
  if (l.recompute > kFullRecompute) t.word("selective_ac_option", "op");
  t.section("compile");
  const bool compiled = switch_of(s.problem, "compile") != "false";
  t.flag("enable", compiled);
  t.raw("components",
        switch_of(s.problem, "loss") == "compiled" ? "[\"model\", \"loss\"]" : "[\"model\"]");
  t.section("optimizer");
  t.word("name", "AdamW");
  if (s.problem.job->precision == "fp8") {
    t.section("quantize.linear.float8");
    const std::string recipe = switch_of(s.problem, "fp8_recipe");
    t.word("recipe_name", recipe.empty() ? "tensorwise" : recipe);
  }
}

void settle_layout(Subject& s, Exported& out) {
  Layout& l = s.layout;
  const Layout asked = l;
  if (l.tp > 1 && !l.sp) {
    l.sp = true;
    resolve(s.problem, l);
    warn_changed(s, asked, "torchtitan always divides the sequence where tp divides", out);
  }
  if (l.recompute == kFullRecompute && l.recompute_layers != l.stage_layers) {
    const Layout before = l;
    l.recompute_layers = l.stage_layers;
    warn_changed(
        s, before,
        fmt::format("torchtitan recomputes every layer or none, where the layout says [{}]",
                    fmt::join(before.recompute_layers, ", ")),
        out);
  }
}

}  // namespace

void settle_torchtitan(Subject& s, Exported& out) {
  check_common(s, "torchtitan", "compile loss attention segments tp_overlap fp8_recipe", out);
  const Job& job = *s.problem.job;
  const Layout& l = s.layout;
  const auto cannot = [&](std::string what, std::string help) {
    out.mistakes.push_back({std::move(what), std::move(help)});
  };
  if (switch_of(s.problem, "loss") == "compiled" && switch_of(s.problem, "compile") == "false")
    cannot(
        "torchtitan compiles the loss only where it compiles at all: compile = false with loss = "
        "compiled cannot be said",
        "set loss = eager, or compile = true");
  if (switch_of(s.problem, "loss") == "loss_parallel" && l.tp == 1)
    cannot("torchtitan's loss parallel divides the logits over tp: with tp = 1 it cannot be said",
           "set loss = eager, or tp = 2 or more");
  if (l.zero != 3 && l.dp * l.cp > 1)
    cannot(fmt::format("torchtitan's FSDP2 shards every state: zero = {} cannot be said", l.zero),
           "set zero = 3");
  if (l.shard % l.cp != 0)
    cannot(fmt::format("a shard group of {} ranks holds no whole context-parallel group of {}",
                       l.shard, l.cp),
           "make shard a multiple of cp");
  if (schedule_word(l.schedule).empty())
    cannot(fmt::format("torchtitan does not run schedule = {}", name(l.schedule)),
           "it runs 1f1b, interleaved, gpipe, zb_v and dualpipe_v");
  if (!l.offload.is_zero())
    cannot("torchtitan offloads parameters, gradients and states together, not the states alone",
           "set offload = 0, or training.enable_cpu_offload by hand");
  if (job.optimizer != "adamw")
    cannot(fmt::format("torchtitan has no optimizer '{}'", job.optimizer), "it has adamw");
  if (job.precision == "fp16") cannot("torchtitan does not train in fp16", "set precision = bf16");
  if (!job.dropout.is_zero() || !job.attention_dropout.is_zero())
    cannot("torchtitan's models have no dropout", "leave dropout out");
  if (job.attention == "unfused")
    cannot("torchtitan's attention is fused", "set attention = flash");
  if (l.recompute > kFullRecompute &&
      s.problem.inventory.recompute_modes[l.recompute] != "selective")
    cannot(fmt::format("torchtitan has no recompute = {}",
                       s.problem.inventory.recompute_modes[l.recompute]),
           "it has full, and selective by op");
  if (l.etp != 1 && l.etp != l.tp)
    cannot(fmt::format("torchtitan divides experts over tp wholly or not: etp = {} of tp = {}",
                       l.etp, l.tp),
           "set etp = 1 or etp = tp");
  if (out.mistakes.empty()) settle_layout(s, out);
}

std::string write_torchtitan(const Subject& s, const std::vector<std::string>& head,
                             Exported& out) {
  const Layout& l = s.layout;
  const std::int64_t per_node = s.problem.cluster->pools.front().gpus_per_node;
  std::string text = as_comment(head);
  text += fmt::format(
      "#\n# Launch: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True torchrun --nnodes {} \\\n"
      "#   --nproc-per-node {} -m torchtitan.train --job.config_file THIS_FILE\n\n",
      l.nodes, per_node);
  Toml t;
  write_model(t, s, out);
  write_training(t, s);
  write_parallelism(t, s, out);
  write_rest(t, s);
  return text + t.take();
}

}  // namespace plimsoll::exports
