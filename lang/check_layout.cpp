// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>

#include "lang/layout_values.hpp"

/// layout declarations.
namespace plimsoll {

namespace {

/// none, full and the modes of every framework that the user's files name or declare: a layout does
/// not say for which job it is.
const eval::Enumeration* words_of_recompute(const Module& module) {
  if (module.impl().layout_modes != nullptr) return module.impl().layout_modes;
  std::vector<std::string> words = {"none", "full", "selective"};
  const auto add = [&](const Behaviour* framework) {
    if (framework == nullptr) return;
    for (const std::string& mode : framework->recompute_modes)
      if (std::find(words.begin(), words.end(), mode) == words.end()) words.push_back(mode);
  };
  std::set<std::string> named;
  for (const Job& job : module.jobs())
    if (named.insert(job.framework).second) add(module.framework(job.framework));
  for (const auto& [name, declaration] :
       module.impl().user[static_cast<std::size_t>(Kind::framework)])
    add(module.framework(name));
  return module.impl().layout_modes = module.impl().enumeration("recompute", std::move(words));
}

/// Every pool of the user's clusters.
void check_pools(const Module& module, const eval::Value& value, Diagnostics& diags) {
  const auto* list = value.as<eval::List>();
  if (list == nullptr) return;
  std::vector<std::string> pools;
  for (const std::string& name : module.names("cluster"))
    if (const Cluster* cluster = module.cluster(name))
      for (const Pool& pool : cluster->pools)
        if (!pool.name.empty()) pools.push_back(pool.name);
  for (const eval::Value& item : list->items) {
    const auto* word = item.as<eval::Word>();
    if (word == nullptr || std::find(pools.begin(), pools.end(), word->text) != pools.end())
      continue;
    diags
        .error(item.span ? item.span : value.span,
               fmt::format("no cluster has a pool '{}'", word->text))
        .with_help(pools.empty() ? "pools are declared in a cluster: pool fast { … }"
                                 : suggest(word->text, pools, "pools"));
  }
}

}  // namespace

bool check_layout(const Module& module, const ast::Declaration& declaration, Diagnostics& diags) {
  Module::Impl& impl = module.impl();
  const std::size_t errors = diags.error_count();
  const Merged* merged = merge(impl, Kind::layout, declaration, diags);
  if (merged == nullptr) return false;
  static const std::vector<Field> kFields = [] {
    std::vector<Field> fields;
    for (const VariableName& row : layout_variables())
      fields.push_back({row.name, FieldType::other, "8"});
    return fields;
  }();
  check_body(impl, "layout", declaration.name, merged->entries, {ast::EntryKind::assign}, kFields,
             {}, diags);
  eval::Scope open;
  for (const VariableName& row : layout_variables()) {
    if (row.type == NameType::number)
      open.set(row.name, {eval::Number{impl.pool.variable(row.var), kCount}, {}});
    if (row.type == NameType::boolean)
      open.set(row.name, {eval::Boolean{impl.pool.variable(row.var)}, {}});
  }
  const PinScope scope(impl, merged->entries, &open, words_of_recompute(module), diags);
  LayoutDecl layout;
  layout.name = declaration.name.text;
  layout.span = declaration.name.span;
  for (const ast::Entry* entry : merged->entries) {
    if (entry->kind != ast::EntryKind::assign) continue;
    const eval::Value* value = scope.value_of(*entry);
    if (value != nullptr) layout.values[entry->name.text] = *value;
  }
  check_stage_lists(impl, layout.values, diags);
  if (const auto at = layout.values.find("stage_pool"); at != layout.values.end())
    check_pools(module, at->second, diags);
  if (diags.error_count() > errors) return false;
  impl.layouts.push_back(std::move(layout));
  return true;
}

}  // namespace plimsoll
