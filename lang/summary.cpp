// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>

#include "lang/fields.hpp"
#include "lang/models.hpp"
#include "lang/names.hpp"
#include "lang/print.hpp"

/// What `check` says of each declaration, and which job or layout a command works on.
namespace plimsoll {

namespace {

std::string plural(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", grouped(count), noun, count == 1 ? "" : "s");
}

std::string text_of(const Gpu& gpu) {
  std::string text = human_bytes(gpu.memory);
  if (const auto peak = gpu.peak.find("bf16"); peak != gpu.peak.end())
    text += fmt::format(", {} bf16", human({peak->second, kFlopsPerSecond}));
  if (!gpu.bandwidth.is_zero()) text += ", " + human({gpu.bandwidth, kBytesPerSecond});
  return text;
}

std::string nodes_of(const Pool& pool) {
  const std::string nodes =
      pool.nodes.size() > 1 ? fmt::format("{} to {} nodes", pool.nodes.front(), pool.nodes.back())
                            : plural(pool.nodes.empty() ? 0 : pool.nodes.front(), "node");
  return fmt::format("{} of {} {}", nodes, grouped(pool.gpus_per_node), pool.gpu.name);
}

std::string text_of(const Cluster& cluster) {
  std::string text = cluster.nodes_are_free() ? "" : plural(cluster.gpus(), "GPU") + ": ";
  for (std::size_t i = 0; i < cluster.pools.size(); ++i) {
    if (i > 0) text += ", ";
    if (!cluster.pools[i].name.empty()) text += cluster.pools[i].name + " ";
    text += nodes_of(cluster.pools[i]);
  }
  return text;
}

std::string text_of(const Behaviour& behaviour) {
  std::vector<std::string> states;
  for (const ast::Entry* entry : behaviour.entries)
    if (entry->kind == ast::EntryKind::state)
      states.push_back(entry->name.text + (entry->value ? " " + print(*entry->value) : ""));
  std::string text = states.empty() ? "no states" : fmt::format("{}", fmt::join(states, ", "));
  if (!behaviour.recompute_modes.empty())
    text += fmt::format("; recompute {}", fmt::join(behaviour.recompute_words->words, ", "));
  return text;
}

std::string text_of(const ExprPool& pool, const eval::Value& value) {
  if (const auto* number = value.as<eval::Number>())
    return pool.is_constant(number->expr) ? pool.value(number->expr).str() : pool.str(number->expr);
  if (const auto* boolean = value.as<eval::Boolean>()) {
    if (!pool.is_constant(boolean->expr)) return "(" + pool.str(boolean->expr) + ")";
    return pool.value(boolean->expr).is_zero() ? "false" : "true";
  }
  if (const auto* word = value.as<eval::Word>()) return word->text;
  if (value.is_none()) return "none";
  if (const auto* list = value.as<eval::List>()) {
    std::vector<std::string> items;
    for (const eval::Value& item : list->items) items.push_back(text_of(pool, item));
    return fmt::format("[{}]", fmt::join(items, ", "));
  }
  return "…";
}

std::string text_of(const ExprPool& pool, const Choice& choice) {
  if (choice.values.size() == 1) return "= " + text_of(pool, choice.values.front());
  constexpr std::size_t kShown = 8;
  std::vector<std::string> items;
  for (const eval::Value& value : choice.values) {
    if (items.size() == kShown) {
      items.emplace_back("…");
      break;
    }
    items.push_back(text_of(pool, value));
  }
  return fmt::format("in {{{}}}", fmt::join(items, ", "));
}

std::string text_of(const Module& module, const Job& job) {
  const Cluster* cluster = module.cluster(job.cluster);
  std::string text = fmt::format("{} on {}", job.model, job.cluster);
  if (cluster != nullptr && !cluster->nodes_are_free())
    text += fmt::format(" ({})", plural(cluster->gpus(), "GPU"));
  if (job.serve) {
    text += fmt::format(", context {}, weights {}, kv {}, {}", grouped(job.context.num()),
                        job.weights, job.kv, job.framework);
  } else {
    if (!job.seq.is_zero()) text += ", seq " + grouped(job.seq.num());
    if (!job.batch.is_zero())
      text += fmt::format(", batch {}{}", grouped(job.batch.num()),
                          job.batch_in_tokens ? " tokens" : "");
    text += fmt::format(", {}, {}, {}", job.optimizer, job.precision, job.framework);
  }
  std::vector<std::string> given;
  for (const auto& [name, choice] : job.layout)
    given.push_back(name + " " + text_of(module.pool(), choice));
  std::vector<std::string_view> free;
  for (const VariableName& row : layout_variables())
    if (!job.layout.contains(std::string(row.name))) free.push_back(row.name);
  if (given.empty()) return text + "; the layout is free";
  if (free.empty()) return text + fmt::format("; {}", fmt::join(given, ", "));
  return text + fmt::format("; {}; the rest is free", fmt::join(given, ", "));
}

std::string text_of(const ExprPool& pool, const LayoutDecl& layout) {
  std::vector<std::string> given;
  for (const VariableName& row : layout_variables())
    if (const auto at = layout.values.find(std::string(row.name)); at != layout.values.end())
      given.push_back(fmt::format("{} = {}", row.name, text_of(pool, at->second)));
  return given.empty() ? "all defaults" : fmt::format("{}", fmt::join(given, ", "));
}

std::string block_text(const ast::Declaration& declaration) {
  if (declaration.base) return "made from " + declaration.base->text;
  std::vector<std::string_view> names;
  for (const ast::Parameter& parameter : declaration.parameters)
    names.push_back(parameter.name.text);
  return fmt::format("({})", fmt::join(names, ", "));
}

std::string model_text(const Module& module, const ast::Declaration& declaration,
                       Diagnostics& diags) {
  const ModelSource* source = model_source(module.impl(), declaration, diags);
  if (source == nullptr) return "";
  if (const auto missing = missing_parameters(*source); !missing.empty())
    return fmt::format("a template: {} to be given", fmt::join(missing, ", "));
  const Program* program = resolve_program(module.impl(), declaration, diags);
  if (program == nullptr) return "";
  return fmt::format("{}, {} parameters", plural(program->layer_count, "layer"),
                     grouped(program->parameter_count()));
}

template <class T>
const T* named(const std::vector<T>& all, const ast::Declaration& declaration) {
  const auto at = std::find_if(all.begin(), all.end(),
                               [&](const T& each) { return each.span == declaration.name.span; });
  return at != all.end() ? &*at : nullptr;
}

}  // namespace

std::string summary_of(const Module& module, Kind kind, const ast::Declaration& declaration,
                       Diagnostics& diags) {
  Module::Impl& impl = module.impl();
  switch (kind) {
    case Kind::gpu: {
      const Gpu* gpu = resolve_gpu(impl, declaration, diags);
      return gpu != nullptr ? text_of(*gpu) : "";
    }
    case Kind::cluster: {
      const Cluster* cluster = resolve_cluster(impl, declaration, diags);
      return cluster != nullptr ? text_of(*cluster) : "";
    }
    case Kind::dtype: {
      const DType* dtype = resolve_dtype(impl, declaration, diags);
      return dtype != nullptr ? dtype->bits.str() + " bits" : "";
    }
    case Kind::optimizer:
    case Kind::framework: {
      const Behaviour* behaviour = resolve_behaviour(impl, kind, declaration, diags);
      return behaviour != nullptr ? text_of(*behaviour) : "";
    }
    case Kind::block:
      return block_text(declaration);
    case Kind::model:
      return model_text(module, declaration, diags);
    case Kind::train:
    case Kind::serve: {
      const Job* job = named(module.jobs(), declaration);
      return job != nullptr ? text_of(module, *job) : "";
    }
    case Kind::layout: {
      const LayoutDecl* layout = named(module.layouts(), declaration);
      return layout != nullptr ? text_of(module.pool(), *layout) : "";
    }
  }
  return "";
}

namespace {

/// The start of the file that the command was given.
Span start(const Module& module) {
  return module.impl().files.empty() ? Span{} : Span{module.impl().files.front()->file, 0, 0};
}

template <class T>
std::vector<std::string> names_of(const std::vector<T>& all) {
  std::vector<std::string> names;
  for (const T& each : all) names.push_back(each.name);
  return names;
}

}  // namespace

std::vector<Summary> Module::summary(Diagnostics& diags) const {
  std::vector<Summary> lines;
  if (diags.has_errors()) return lines;
  for (const auto& [kind, declaration] : impl_->order)
    lines.push_back({std::string(word(kind)), declaration->name.text,
                     summary_of(*this, kind, *declaration, diags), declaration->name.span});
  return lines;
}

const Job* find_job(const Module& module, std::string_view name, Diagnostics& diags) {
  const std::vector<Job>& jobs = module.jobs();
  const std::vector<std::string> names = names_of(jobs);
  if (jobs.empty()) {
    diags.error(start(module), "expected a train or serve job in the file, got none")
        .with_help("add one: train mine { model = llama3_8b  cluster = …  seq = 8Ki  batch = 64 }");
    return nullptr;
  }
  if (name.empty() && jobs.size() == 1) return &jobs.front();
  if (name.empty()) {
    diags
        .error(start(module),
               fmt::format("the file has {} jobs: {}", jobs.size(), fmt::join(names, ", ")))
        .with_help(fmt::format("pick one: --job {}", names.front()));
    return nullptr;
  }
  const Job* found = nullptr;
  for (const Job& job : jobs) {
    if (job.name != name) continue;
    if (found != nullptr) {
      diags.error(job.span, fmt::format("'{}' names two jobs", name))
          .label(found->span, "the other one")
          .with_help("rename one of them");
      return nullptr;
    }
    found = &job;
  }
  if (found == nullptr)
    diags.error(start(module), fmt::format("no job is called '{}'", name))
        .with_help(suggest(name, names, "jobs"));
  return found;
}

const LayoutDecl* find_layout(const Module& module, std::string_view name, Diagnostics& diags) {
  const std::vector<LayoutDecl>& layouts = module.layouts();
  if (name.empty()) return layouts.size() == 1 ? &layouts.front() : nullptr;
  for (const LayoutDecl& layout : layouts)
    if (layout.name == name) return &layout;
  diags.error(start(module), fmt::format("no layout is called '{}'", name))
      .with_help(layouts.empty() ? "declare one: layout hand { tp = 8  pp = 4 }"
                                 : suggest(name, names_of(layouts), "layouts"));
  return nullptr;
}

bool check_rates(const Module& module, const Job& job, Diagnostics& diags) {
  const Cluster* cluster = module.cluster(job.cluster);
  if (cluster == nullptr) return false;
  bool ok = true;
  for (const Pool& pool : cluster->pools) {
    const Gpu& gpu = pool.gpu;
    const bool half = job.precision == "bf16" || job.precision == "fp16" || job.serve;
    const std::string peak = half ? "bf16" : job.precision;
    const auto gives = [&](const std::string& precision) {
      const auto it = gpu.peak.find(precision);
      return it != gpu.peak.end() && it->second.sign() > 0;
    };
    // Without fp8 units, fp8 computes in bf16; tf32 stands in for fp32.
    const bool has_peak = gives(peak) ||
                          ((half || peak == "fp8") && (gives("bf16") || gives("fp16"))) ||
                          (peak == "fp32" && gives("tf32"));
    for (const auto& [missing, field, example] :
         {std::tuple(gpu.bandwidth.is_zero(), std::string("bandwidth"), "3350 GB/s"),
          std::tuple(!has_peak, "peak_" + peak, "989 TFLOP/s")}) {
      if (!missing) continue;
      ok = false;
      diags
          .error(gpu.span,
                 fmt::format("gpu '{}' has no field '{}', which step times need", gpu.name, field))
          .with_help(fmt::format("add a line such as {} = {}", field, example));
    }
  }
  return ok;
}

}  // namespace plimsoll
