// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>

#include "lang/check_job_reader.hpp"
#include "lang/conditions.hpp"
#include "lang/versions.hpp"

/// A job's words for its framework's and optimizer's parameters.
namespace plimsoll {

using ast::EntryKind;

void JobReader::read_switches() {
  for (const Behaviour* behaviour : {framework_, optimizer_}) {
    if (behaviour == nullptr) continue;
    for (const auto& [name, param] : behaviour->params)
      if (const ast::Entry* entry = merged_.field(name)) read_switch(*behaviour, param, *entry);
  }
  if (framework_ == nullptr) return;
  job_.attention = word_or("attention", {"flash", "cudnn", "unfused"}, "flash",
                           "the attention kernels that a framework has by default");
  job_.grads = word_or("grads", {"fp32", "bf16"}, "", "words of 'grads'");
  if (const ast::Expr* e = value("loss"); e != nullptr && !framework_->params.contains("loss"))
    diags_
        .error(e->span, fmt::format("framework '{}' declares no words for 'loss'", job_.framework))
        .with_help("leave the line out: the framework has one way to compute the loss");
  if (const auto at = job_.switches.find("loss"); at != job_.switches.end())
    if (const auto* word = at->second.as<eval::Word>()) job_.loss = word->text;
}

std::string JobReader::word_or(std::string_view name, std::vector<std::string> words,
                               std::string otherwise, std::string_view what) {
  if (const auto at = job_.switches.find(std::string(name)); at != job_.switches.end()) {
    const auto* word = at->second.as<eval::Word>();
    return word != nullptr ? word->text : otherwise;
  }
  const ast::Expr* e = job_.serve && name == "grads" ? nullptr : value(name);
  if (e == nullptr || framework_->params.contains(name)) return otherwise;
  if (e->kind == ast::ExprKind::name &&
      std::find(words.begin(), words.end(), e->text) != words.end())
    return e->text;
  diags_.error(e->span, fmt::format("expected a word for '{}', got {}", name, describe(*e)))
      .with_help(suggest(e->kind == ast::ExprKind::name ? e->text : "", words, what));
  return otherwise;
}

void JobReader::read_switch(const Behaviour& behaviour, const Param& param,
                            const ast::Entry& entry) {
  const auto fail = [&](const std::string& expected, const std::string& found) {
    diags_
        .error(entry.value->span,
               fmt::format("expected {} for '{}', got {}", expected, param.name, found))
        .label(param.span,
               fmt::format("declared by {} '{}'", behaviour.optimizer ? "optimizer" : "framework",
                           behaviour.name))
        .with_help("give it a value of the kind of its default");
  };
  if (entry.kind != EntryKind::assign) {
    fail("one value", "a choice with 'in'");
    return;
  }
  if (param.words != nullptr) {
    read_word_switch(param, entry);
    return;
  }
  std::optional<eval::Value> value = reader_.value(*entry.value);
  if (!value) return;
  Diagnostics ignored;
  const OpenScope place(impl_, behaviour, Site::weight);
  eval::Evaluator evaluator(impl_.pool, ignored);
  const BehaviourScope scope(behaviour, nullptr, place, evaluator);
  const eval::Value* like = scope.find(param.name);
  const bool comparable = like != nullptr && like->as<eval::Unknown>() == nullptr &&
                          !like->is_none() && !value->is_none();
  if (comparable) {
    const auto* a = like->as<eval::Number>();
    const auto* b = value->as<eval::Number>();
    const bool same =
        like->data.index() == value->data.index() && (a == nullptr || a->dimension == b->dimension);
    if (!same) {
      if (like->as<eval::String>() != nullptr && b != nullptr) {
        diags_
            .error(entry.value->span,
                   fmt::format("expected a string for '{}', got {}", param.name, value->kind()))
            .with_help(fmt::format("versions are strings: {} = \"{}\"", param.name,
                                   impl_.sources.text(entry.value->span)));
        return;
      }
      fail(like->kind(), value->kind());
      return;
    }
    if (!check_version(param, *like, *value, entry.value->span)) return;
  }
  job_.switches[param.name] = std::move(*value);
}

bool JobReader::check_version(const Param& param, const eval::Value& like, const eval::Value& value,
                              Span span) {
  const auto* before = like.as<eval::String>();
  const auto* text = value.as<eval::String>();
  if (before == nullptr || text == nullptr || !eval::is_version(before->text) ||
      eval::is_version(text->text))
    return true;
  diags_.error(span, fmt::format("expected a version for '{}', got \"{}\"", param.name, text->text))
      .with_help(fmt::format("a version is numbers with dots between: {} = \"{}\"", param.name,
                             before->text));
  return false;
}

void JobReader::read_word_switch(const Param& param, const ast::Entry& entry) {
  const ast::Expr& e = *entry.value;
  const auto& words = param.words->words;
  const bool known =
      e.kind == ast::ExprKind::name && std::find(words.begin(), words.end(), e.text) != words.end();
  if (known) {
    job_.switches[param.name] = {eval::Word{e.text, param.words}, e.span};
    return;
  }
  diags_.error(e.span, fmt::format("expected a word for '{}', got {}", param.name, describe(e)))
      .with_help(suggest(e.kind == ast::ExprKind::name ? e.text : "", words,
                         fmt::format("framework '{}' has", job_.framework)));
}

}  // namespace plimsoll
