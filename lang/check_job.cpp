// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/check_job.hpp"

#include <algorithm>

#include "lang/behaviour_scope.hpp"
#include "lang/check_job_reader.hpp"
#include "lang/conditions.hpp"
#include "lang/grouped.hpp"
#include "lang/layout_values.hpp"
#include "lang/models.hpp"

/// train and serve declarations.
namespace plimsoll {

using ast::EntryKind;

bool JobReader::read() {
  const std::size_t errors = diags_.error_count();
  const ast::Name& name = merged_.declaration->name;
  job_.name = name.text;
  job_.span = name.span;
  job_.serve = kind_ == Kind::serve;
  read_references();
  check_fields();
  if (job_.serve)
    read_serve();
  else
    read_train();
  read_switches();
  if (job_.serve) check_no_training();
  read_bodies();
  // What is left reads the model's, cluster's and framework's names: without one of them, one
  // mistake would be ten.
  if (cluster_ == nullptr || framework_ == nullptr || !has_model()) return false;
  read_pins();
  check_names_of_model();
  read_conditions();
  if (diags_.error_count() > errors) return false;
  check_degrees(module_, job_, *program_, diags_);
  if (diags_.error_count() > errors) return false;
  impl_.jobs.push_back(std::move(job_));
  return true;
}

const ast::Declaration* JobReader::find(std::string_view name, std::string_view default_name) {
  if (const ast::Expr* e = value(name)) return reader_.reference(field(name), *e);
  if (default_name.empty()) return nullptr;
  const ast::Declaration* found = impl_.find(field(name).refers_to, default_name, false);
  if (found == nullptr)
    diags_
        .error(job_.span, fmt::format("{} '{}', the default, is nowhere declared",
                                      noun(field(name).refers_to), default_name))
        .with_help(fmt::format("name another: {} = …", name));
  return found;
}

void JobReader::read_references() {
  if (const ast::Declaration* found = find("model", "")) job_.model = found->name.text;
  if (const ast::Declaration* found = find("cluster", "")) {
    cluster_ = resolve_cluster(impl_, *found, diags_);
    job_.cluster = found->name.text;
  }
  if (const ast::Declaration* found = find("framework", job_.serve ? "vllm" : "megatron")) {
    framework_ = resolve_behaviour(impl_, Kind::framework, *found, diags_);
    job_.framework = found->name.text;
  }
  if (job_.serve) return;
  if (const ast::Declaration* found = find("optimizer", "adamw")) {
    optimizer_ = resolve_behaviour(impl_, Kind::optimizer, *found, diags_);
    job_.optimizer = found->name.text;
  }
}

bool JobReader::has_model() {
  const ast::Declaration* model = impl_.find(Kind::model, job_.model, false);
  const ModelSource* source = model != nullptr ? model_source(impl_, *model, diags_) : nullptr;
  if (source == nullptr) return false;
  if (const std::vector<std::string> missing = missing_parameters(*source); !missing.empty()) {
    diags_
        .error(value("model")->span,
               fmt::format("model '{}' is a template: {} {} no value", job_.model,
                           fmt::join(missing, ", "), missing.size() == 1 ? "has" : "have"))
        .label(model->name.span, "declared here")
        .with_help(fmt::format("make a model of it: model mine = {} {{ {} = … }}", job_.model,
                               fmt::join(missing, " = …  ")));
    return false;
  }
  program_ = module_.program(job_.model, diags_);
  return program_ != nullptr;
}

void JobReader::check_fields() {
  std::vector<std::string> accepts = layout_names();
  for (const Behaviour* behaviour : {framework_, optimizer_})
    if (behaviour != nullptr)
      for (const auto& [name, param] : behaviour->params) accepts.push_back(name);
  for (const ast::Entry* entry : merged_.entries) {
    const bool derived =
        is_field(*entry) && find_name(derived_numbers(), entry->name.text) != nullptr;
    if (!derived) continue;
    accepts.push_back(entry->name.text);
    diags_
        .error(entry->name.span,
               fmt::format("'{}' is derived, a job cannot set it", entry->name.text))
        .with_help(fmt::format("demand it: require {} == …", entry->name.text));
  }
  // A framework that has errors of its own may well declare what looks unknown here.
  if (framework_ == nullptr)
    for (const ast::Entry* entry : merged_.entries)
      if (is_field(*entry)) accepts.push_back(entry->name.text);
  check_body(
      impl_, noun(kind_), merged_.declaration->name, merged_.entries,
      {EntryKind::assign, EntryKind::require, EntryKind::prefer, EntryKind::minimize,
       EntryKind::maximize, EntryKind::item, EntryKind::observed, EntryKind::beside},
      job_.serve ? std::span<const Field>(kServeFields) : std::span<const Field>(kTrainFields),
      accepts, diags_);
}

Rational JobReader::number(std::string_view name, Rational otherwise) {
  const ast::Expr* e = value(name);
  if (e == nullptr) return otherwise;
  return reader_.number(field(name), *e).value_or(otherwise);
}

Rational JobReader::number_or_choice(std::string_view name) {
  const ast::Entry* entry = merged_.field(name);
  if (entry == nullptr || !entry->value) return 0;
  if (entry->kind == EntryKind::assign) return number(name);
  const auto members = reader_.choices(name, *entry->value);
  if (!members) return 0;
  Choice choice;
  choice.span = entry->value->span;
  for (const eval::Value& member : *members) {
    const Span at = member.span ? member.span : entry->value->span;
    if (!reader_.check_number(field(name), member, at)) return 0;
    choice.values.push_back(member);
  }
  if (field(name).type == FieldType::tokens)
    reader_.warn_of_powers_of_ten(field(name), *entry->value);
  if (choice.values.size() == 1) return *constant_of(impl_, choice.values.front());
  job_.layout[std::string(name)] = std::move(choice);
  return 0;
}

void JobReader::read_train() {
  job_.seq = number_or_choice("seq");
  job_.target = number("target", job_.seq);
  read_batch();
  if (const ast::Expr* e = value("precision"))
    job_.precision = reader_.word(field("precision"), *e).value_or("bf16");
  job_.dropout = number("dropout");
  job_.attention_dropout = number("attention_dropout");
  read_imbalance();
  job_.tokens = number("tokens");
  if (const ast::Expr* e = value("freeze"))
    job_.freeze =
        reader_.name_set(field("freeze"), *e, &freeze_spans_).value_or(std::vector<std::string>{});
  if (const ast::Expr* e = value("adapt")) read_adapter(*e);
}

void JobReader::read_imbalance() {
  job_.imbalance = number("imbalance", 1);
  const ast::Expr* e = value("imbalance");
  if (e != nullptr && job_.imbalance < Rational(1) && job_.imbalance.sign() > 0)
    diags_
        .error(e->span,
               fmt::format("'imbalance' must be 1 or more, got {}", grouped(job_.imbalance)))
        .with_help("the fullest expert rank has at least the mean: 1 is balanced");
}

void JobReader::read_batch() {
  const ast::Expr* e = value("batch");
  if (e == nullptr) {
    job_.batch = number_or_choice("batch");
    return;
  }
  const std::optional<eval::Value> found = reader_.value(*e);
  if (!found) return;
  const auto* count = found->as<eval::Number>();
  job_.batch_in_tokens = count != nullptr && count->unit == "tokens";
  const std::optional<Rational> batch = reader_.check_number(field("batch"), *found, e->span);
  if (!batch) return;
  job_.batch = *batch;
  if (!job_.batch_in_tokens || job_.seq.is_zero() || (job_.batch / job_.seq).is_integer()) return;
  diags_
      .error(e->span, fmt::format("a batch of {} tokens is no whole number of sequences of {}",
                                  grouped(job_.batch.num()), grouped(job_.seq.num())))
      .with_help("give a multiple of seq, or the batch in sequences: batch = 512");
}

void JobReader::check_names_of_model() {
  std::set<std::string> weights;
  for (const Weight& weight : program_->weights)
    if (!weight.name.empty()) weights.insert(weight.name);
  const std::vector<std::string> known(weights.begin(), weights.end());
  for (std::size_t i = 0; i < adapt_spans_.size() && i < job_.adapt.on.size(); ++i)
    if (!weights.contains(job_.adapt.on[i]))
      diags_
          .error(adapt_spans_[i],
                 fmt::format("model '{}' has no weight '{}'", job_.model, job_.adapt.on[i]))
          .with_help(suggest(job_.adapt.on[i], known, "its named weights"));
  std::set<std::string> blocks;
  for (const std::string& path : program_->blocks)
    for (std::size_t at = 0; at < path.size();) {
      const std::size_t end = std::min(path.find('.', at), path.size());
      blocks.insert(path.substr(at, end - at));
      at = end + 1;
    }
  std::vector<std::string> all = known;
  all.insert(all.end(), blocks.begin(), blocks.end());
  for (std::size_t i = 0; i < freeze_spans_.size() && i < job_.freeze.size(); ++i)
    if (!weights.contains(job_.freeze[i]) && !blocks.contains(job_.freeze[i]))
      diags_
          .warning(freeze_spans_[i], fmt::format("model '{}' has no weight or block '{}': "
                                                 "nothing is frozen by it",
                                                 job_.model, job_.freeze[i]))
          .with_help(suggest(job_.freeze[i], all, "its named weights and blocks"));
}

bool check_job(const Module& module, Kind kind, const ast::Declaration& declaration,
               Diagnostics& diags) {
  const Merged* merged = merge(module.impl(), kind, declaration, diags);
  return merged != nullptr && JobReader(module, kind, *merged, diags).read();
}

std::span<const Field> job_fields(bool serve) {
  if (serve) return kServeFields;
  return kTrainFields;
}
std::span<const Field> job_entry_fields(ast::EntryKind kind) {
  if (kind == ast::EntryKind::beside) return kBesideFields;
  if (kind == ast::EntryKind::observed) return kObservedFields;
  return {};
}

}  // namespace plimsoll
