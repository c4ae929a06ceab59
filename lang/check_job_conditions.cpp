// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>

#include "lang/check_job_reader.hpp"
#include "lang/conditions.hpp"
#include "lang/grouped.hpp"
#include "lang/layout_values.hpp"

/// Layout variables that a job sets or narrows, and its conditions.
namespace plimsoll {

using ast::EntryKind;

void JobReader::read_pins() {
  const ConditionScope names(module_, job_);
  const eval::Enumeration* recompute = recompute_words(module_, job_);
  const PinScope scope(impl_, merged_.entries, &names, recompute, diags_);
  std::map<std::string, eval::Value> pinned;
  for (const ast::Entry* entry : merged_.entries) {
    if (!is_field(*entry) || !entry->value) continue;
    const VariableName* variable = find_name(layout_variables(), entry->name.text);
    if (variable == nullptr) continue;
    Choice choice;
    choice.span = entry->span;
    if (entry->kind == EntryKind::assign) {
      const eval::Value* value = scope.value_of(*entry);
      if (value == nullptr) continue;
      pinned[entry->name.text] = *value;
      choice.values.push_back(*value);
    } else {
      FieldReader reader(impl_, "job", scope, diags_);
      const auto members =
          reader.choices(entry->name.text, *entry->value, words_of(impl_, *variable, recompute));
      if (!members) continue;
      for (const eval::Value& member : *members) {
        const Span at = member.span ? member.span : entry->value->span;
        if (!check_layout_value(impl_, *variable, member, at, diags_)) break;
        choice.values.push_back(member);
      }
      if (choice.values.size() != members->size()) continue;
    }
    job_.layout[entry->name.text] = std::move(choice);
  }
  check_stage_lists(impl_, pinned, diags_);
  check_pools(pinned);
}

void JobReader::check_pools(const std::map<std::string, eval::Value>& pinned) {
  const auto at = pinned.find("stage_pool");
  if (at == pinned.end() || at->second.as<eval::List>() == nullptr) return;
  const std::vector<std::string> pools = pool_names(module_, job_);
  for (const eval::Value& item : at->second.as<eval::List>()->items) {
    const auto* word = item.as<eval::Word>();
    if (word == nullptr || std::find(pools.begin(), pools.end(), word->text) != pools.end())
      continue;
    diags_
        .error(item.span ? item.span : at->second.span,
               fmt::format("cluster '{}' has no pool '{}'", job_.cluster, word->text))
        .with_help(suggest(word->text, pools, "its pools"));
  }
}

void JobReader::read_conditions() {
  if (framework_ != nullptr)
    for (const ast::Entry* entry : framework_->entries)
      if (entry->kind == EntryKind::require || entry->kind == EntryKind::prefer)
        read_condition(*entry, true);
  for (const ast::Entry* entry : merged_.entries) {
    if (entry->kind == EntryKind::require || entry->kind == EntryKind::prefer)
      read_condition(*entry, false);
    if ((entry->kind == EntryKind::minimize || entry->kind == EntryKind::maximize) &&
        entry->value) {
      job_.objective = {entry->kind == EntryKind::minimize, entry->value.get(), entry->span};
      check_condition(module_, job_, *entry->value, true, diags_);
    }
  }
  if (job_.objective.expr == nullptr) job_.objective.minimize = !job_.serve;
}

void JobReader::read_condition(const ast::Entry& entry, bool from_framework) {
  if (!entry.value) return;
  Condition condition;
  condition.name =
      entry.label.empty() ? std::string(impl_.sources.text(entry.value->span)) : entry.label;
  condition.expr = entry.value.get();
  condition.span = entry.value->span;
  condition.from_framework = from_framework;
  check_condition(module_, job_, *entry.value, false, diags_);
  if (entry.kind == EntryKind::require) {
    job_.require.push_back(std::move(condition));
    return;
  }
  if (entry.value2) read_weight(*entry.value2, condition);
  job_.prefer.push_back(std::move(condition));
}

void JobReader::read_weight(const ast::Expr& e, Condition& condition) {
  static constexpr std::string_view kHelp = "weight 5 is worth up to 5 % of the objective";
  if (e.kind == ast::ExprKind::number && !e.unit_text.empty()) {
    diags_.error(e.span, fmt::format("'weight' expects a plain number, got {}", describe(e)))
        .with_help(std::string(kHelp));
    return;
  }
  const std::optional<eval::Value> found = reader_.value(e);
  if (!found) return;
  const std::optional<Rational> weight = constant_of(impl_, *found);
  if (!weight || weight->sign() <= 0) {
    diags_
        .error(e.span, fmt::format("'weight' expects a plain number above 0, got {}",
                                   weight ? grouped(*weight) : found->kind()))
        .with_help(std::string(kHelp));
    return;
  }
  condition.weight = *weight;
}

}  // namespace plimsoll
