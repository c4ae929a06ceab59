// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/models.hpp"

#include <algorithm>

#include "lang/behaviour_scope.hpp"
#include "lang/fields.hpp"

/// block and model declarations: from templates and overrides to what elaboration reads.
namespace plimsoll {

namespace {

using ast::EntryKind;

bool owns(const ast::Declaration& declaration, const ast::Entry* entry) {
  return !declaration.entries.empty() && entry >= &declaration.entries.front() &&
         entry <= &declaration.entries.back();
}

const ast::Declaration& root_of(const Merged& merged) {
  return merged.bases.empty() ? *merged.declaration : *merged.bases.back();
}

/// The body of a tensor program: what may stand in it, at each level.
void check_program(std::string_view what, const std::vector<ast::Entry>& entries, bool top,
                   Diagnostics& diags) {
  const bool block = what == "block";
  for (const ast::Entry& entry : entries) {
    const Span at = entry.keyword ? entry.keyword : entry.name.span ? entry.name.span : entry.span;
    const bool fits = entry.kind == EntryKind::assign || entry.kind == EntryKind::repeat ||
                      (top && entry.kind == EntryKind::item) ||
                      (top && !block && entry.kind == EntryKind::param) ||
                      (top && block && entry.kind == EntryKind::ret);
    if (!fits && entry.kind == EntryKind::narrow)
      diags
          .error(entry.name.span,
                 fmt::format("'in' cannot narrow '{}' in {}", entry.name.text, with_article(what)))
          .with_help(fmt::format("give it one value: {} = …", entry.name.text));
    else if (!fits)
      diags
          .error(at, fmt::format("{} cannot stand in {}", keyword(entry.kind),
                                 top ? with_article(what) : "a 'repeat'"))
          .with_help(!top    ? "a 'repeat' holds assignments and further repeats"
                     : block ? "a block holds assignments, 'repeat', 'item' and a 'return'"
                             : "a model holds 'param', assignments, 'repeat' and 'item'");
    if (entry.kind == EntryKind::repeat) check_program(what, entry.body, false, diags);
  }
}

/// A template that no model with values is made of yet: at least its calls can be looked up.
void check_calls(const ast::Expr& e, const BlockTable& sees, Diagnostics& diags) {
  if (e.kind == ast::ExprKind::call && !is_builtin_call(e.text) && !sees.contains(e.text)) {
    std::vector<std::string> names;
    for (const auto& [name, block] : sees) names.push_back(name);
    diags.error(e.op_span, fmt::format("unknown block or op '{}'", e.text))
        .with_help(suggest(e.text, names, "blocks"));
  }
  for (const ast::Argument& argument : e.args)
    if (argument.value) check_calls(*argument.value, sees, diags);
  if (e.closure && e.closure->body) check_calls(*e.closure->body, sees, diags);
}

void check_calls(const std::vector<const ast::Entry*>& entries, const BlockTable& sees,
                 Diagnostics& diags) {
  for (const ast::Entry* entry : entries) {
    if (entry->kind == EntryKind::item) continue;
    if (entry->value) check_calls(*entry->value, sees, diags);
    std::vector<const ast::Entry*> body;
    for (const ast::Entry& line : entry->body) body.push_back(&line);
    check_calls(body, sees, diags);
  }
}

/// Overrides of a template give values to its parameters, nothing else.
void check_overrides(Kind kind, const Merged& merged, const std::vector<std::string>& parameters,
                     Diagnostics& diags) {
  const ast::Declaration& root = root_of(merged);
  for (const ast::Entry* entry : merged.entries) {
    if (owns(root, entry) || entry->kind == EntryKind::item ||
        (kind == Kind::model && entry->kind == EntryKind::param))
      continue;
    // A template's own mistakes are reported at the template.
    if (!owns(*merged.declaration, entry)) continue;
    if (entry->kind != EntryKind::assign) {
      const Span at = entry->keyword ? entry->keyword : entry->name.span;
      diags
          .error(at, fmt::format("{} '{}' is made from '{}': it gives values to parameters, got {}",
                                 noun(kind), merged.declaration->name.text,
                                 merged.declaration->base->text,
                                 entry->kind == EntryKind::narrow ? "'in'" : keyword(entry->kind)))
          .with_help("write the body out, without a template, to change more");
      continue;
    }
    if (std::find(parameters.begin(), parameters.end(), entry->name.text) != parameters.end())
      continue;
    diags
        .error(entry->name.span, fmt::format("{} '{}' has no parameter '{}'", noun(kind),
                                             merged.declaration->base->text, entry->name.text))
        .label(root.name.span, "its body is declared here")
        .with_help(suggest(entry->name.text, parameters, "its parameters"));
  }
}

const ast::Expr* override_of(const Merged& merged, const std::string& name) {
  const ast::Declaration& root = root_of(merged);
  for (const ast::Entry* entry : merged.entries)
    if (entry->kind == EntryKind::assign && !owns(root, entry) && entry->name.text == name)
      return entry->value.get();
  return nullptr;
}

std::unique_ptr<BlockSource> make_block(Module::Impl& module, const ast::Declaration& declaration,
                                        const BlockTable& sees, Diagnostics& diags) {
  const Merged* merged = merge(module, Kind::block, declaration, diags);
  if (merged == nullptr) return nullptr;
  const ast::Declaration& root = root_of(*merged);
  auto block = std::make_unique<BlockSource>();
  block->name = declaration.name.text;
  block->span = declaration.name.span;
  block->sees = &sees;
  for (const ast::Parameter& parameter : root.parameters) {
    const ast::Expr* given = override_of(*merged, parameter.name.text);
    block->parameters.push_back({parameter.name.text, parameter.name.span,
                                 given != nullptr ? given : parameter.default_value.get()});
  }
  for (const ast::Entry* entry : merged->entries)
    if (owns(root, entry) || entry->kind == EntryKind::item) block->entries.push_back(entry);
  return block;
}

void check_block(const ast::Declaration& declaration, const Merged& merged,
                 const BlockSource& block, Diagnostics& diags) {
  if (is_builtin_call(block.name))
    diags
        .error(
            declaration.name.span,
            fmt::format("a block cannot be called '{}': that is an op or a function", block.name))
        .with_help("give the block another name");
  if (declaration.base && !declaration.parameters.empty())
    diags
        .error(declaration.parameters.front().name.span,
               "a block made from another one has that one's parameters, got a list of its own")
        .with_help(fmt::format("give values to some: block {} = {} {{ … }}", block.name,
                               declaration.base->text));
  std::map<std::string, Span> seen;
  for (const ast::Parameter& parameter : declaration.parameters) {
    const auto [at, added] = seen.emplace(parameter.name.text, parameter.name.span);
    if (!added)
      diags
          .error(parameter.name.span,
                 fmt::format("parameter '{}' is declared twice", parameter.name.text))
          .label(at->second, "first declared here")
          .with_help("rename one of them, or remove it");
  }
  std::vector<std::string> names;
  for (const BlockSource::Parameter& parameter : block.parameters) names.push_back(parameter.name);
  if (declaration.base) {
    check_overrides(Kind::block, merged, names, diags);
    return;
  }
  check_program("block", declaration.entries, true, diags);
  const bool returns =
      std::any_of(declaration.entries.begin(), declaration.entries.end(),
                  [](const ast::Entry& entry) { return entry.kind == EntryKind::ret; });
  if (!returns)
    diags.error(declaration.name.span, fmt::format("block '{}' returns nothing", block.name))
        .with_help("end it with a line such as return x");
  check_calls(block.entries, *block.sees, diags);
}

const BlockTable& block_table(Module::Impl& module, bool of_prelude, Diagnostics& diags) {
  ModelTables& tables = *module.models;
  BlockTable& table = of_prelude ? tables.prelude_blocks : tables.user_blocks;
  bool& made = of_prelude ? tables.prelude_made : tables.user_made;
  if (made) return table;
  made = true;
  if (!of_prelude) table = block_table(module, true, diags);
  const auto& declarations =
      of_prelude ? prelude().all(Kind::block) : module.user[static_cast<std::size_t>(Kind::block)];
  for (const auto& [name, declaration] : declarations) {
    const Merged* merged = merge(module, Kind::block, *declaration, diags);
    if (merged == nullptr) continue;
    const bool prelude_body = module.is_prelude(root_of(*merged).name.span);
    const BlockTable& sees = prelude_body && !of_prelude ? tables.prelude_blocks : table;
    if (std::unique_ptr<BlockSource> block = make_block(module, *declaration, sees, diags)) {
      table[name] = block.get();
      tables.blocks.push_back(std::move(block));
    }
  }
  return table;
}

}  // namespace

void check_blocks(Module::Impl& module, Diagnostics& diags) {
  const BlockTable& table = block_table(module, false, diags);
  for (const auto& [kind, declaration] : module.order) {
    if (kind != Kind::block) continue;
    const Merged* merged = merge(module, Kind::block, *declaration, diags);
    const auto at = table.find(declaration->name.text);
    if (merged != nullptr && at != table.end())
      check_block(*declaration, *merged, *at->second, diags);
  }
}

const ModelSource* model_source(Module::Impl& module, const ast::Declaration& declaration,
                                Diagnostics& diags) {
  const auto [at, added] = module.models->sources.try_emplace(&declaration);
  if (!added) return at->second.get();
  const std::size_t errors = diags.error_count();
  const Merged* merged = merge(module, Kind::model, declaration, diags);
  if (merged == nullptr) return nullptr;
  const ast::Declaration& root = root_of(*merged);
  auto source = std::make_unique<ModelSource>();
  source->name = declaration.name.text;
  source->span = declaration.name.span;
  std::vector<std::string> names;
  for (const ast::Entry* entry : merged->entries) {
    if (entry->kind == EntryKind::param) {
      const ast::Expr* given = override_of(*merged, entry->name.text);
      source->parameters.push_back({entry, given != nullptr ? given : entry->value.get()});
      names.push_back(entry->name.text);
    } else if (owns(root, entry) || entry->kind == EntryKind::item) {
      source->entries.push_back(entry);
    }
  }
  source->sees = &block_table(module, module.is_prelude(root.name.span), diags);
  if (declaration.base)
    check_overrides(Kind::model, *merged, names, diags);
  else
    check_program("model", declaration.entries, true, diags);
  if (!declaration.base && !missing_parameters(*source).empty())
    check_calls(source->entries, *source->sees, diags);
  if (diags.error_count() == errors) module.models->sources[&declaration] = std::move(source);
  return module.models->sources[&declaration].get();
}

const Program* resolve_program(Module::Impl& module, const ast::Declaration& declaration,
                               Diagnostics& diags) {
  const auto [at, added] = module.programs.try_emplace(&declaration);
  if (!added) return at->second.get();
  const ModelSource* source = model_source(module, declaration, diags);
  if (source == nullptr) return nullptr;
  const std::vector<std::string> missing = missing_parameters(*source);
  if (!missing.empty()) {
    diags
        .error(declaration.name.span,
               fmt::format("model '{}' is a template: {} {} no value", source->name,
                           fmt::join(missing, ", "), missing.size() == 1 ? "has" : "have"))
        .with_help(fmt::format("give {}: model mine = {} {{ {} = … }}",
                               missing.size() == 1 ? "it one" : "them some", source->name,
                               missing.front()));
    return nullptr;
  }
  std::vector<const ast::Entry*> items;
  std::optional<Program> program = elaborate(*source, module.pool, diags, &items);
  if (!program) return nullptr;
  if (program->layer_count == 0) {
    diags.error(declaration.name.span, fmt::format("model '{}' has no layer", source->name))
        .with_help(
            "a turn of a 'repeat' is a layer: repeat layers { … }, with layers of 1 or more");
    return nullptr;
  }
  if (!items.empty()) {
    const std::size_t errors = diags.error_count();
    static const Behaviour kNobody;
    check_items(module, items, OpenScope(module, kNobody, Site::stage), diags);
    if (diags.error_count() > errors) return nullptr;
  }
  module.models->items[&declaration] = std::move(items);
  return (module.programs[&declaration] = std::make_unique<Program>(std::move(*program))).get();
}

}  // namespace plimsoll
