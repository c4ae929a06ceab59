// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>

#include "lang/behaviour_scope.hpp"
#include "lang/trace.hpp"

/// Names in the bodies of frameworks that mean something in models, or each other.
namespace plimsoll {

namespace {

/// What models and blocks of all files may call an op or a weight: every bare name that stands as
/// an argument (`name = q`, or passed on to a block that names with it), and defaults of a block.
class ModelNames {
 public:
  explicit ModelNames(const Module::Impl& module) {
    for (const Kind kind : {Kind::block, Kind::model})
      for (const DeclarationTable* table :
           {&prelude().all(kind), &module.user[static_cast<std::size_t>(kind)]})
        for (const auto& [name, declaration] : *table) add(*declaration);
#define X(kind) names_.emplace_back(#kind);
    PLIMSOLL_OP_KINDS(X)
#undef X
    std::sort(names_.begin(), names_.end());
    names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
  }

  bool contains(const std::string& name) const {
    return arguments_.contains(name) || std::binary_search(names_.begin(), names_.end(), name);
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  void add(const ast::Declaration& declaration) {
    for (const ast::Parameter& parameter : declaration.parameters)
      if (parameter.default_value) argument(*parameter.default_value, false);
    for (const ast::Entry& entry : declaration.entries) add(entry);
  }

  void add(const ast::Entry& entry) {
    if (entry.value) {
      argument(*entry.value, false);
      add(*entry.value);
    }
    for (const ast::Entry& line : entry.body) add(line);
  }

  void add(const ast::Expr& e) {
    for (const ast::Argument& one : e.args) {
      if (!one.value) continue;
      if (e.kind == ast::ExprKind::call) argument(*one.value, one.name.text == "name");
      add(*one.value);
    }
    if (e.closure && e.closure->body) add(*e.closure->body);
  }

  void argument(const ast::Expr& e, bool is_name) {
    if (e.kind != ast::ExprKind::name) return;
    arguments_.insert(e.text);
    if (is_name) names_.push_back(e.text);
  }

  std::set<std::string, std::less<>> arguments_;
  std::vector<std::string> names_;
};

using Uses = std::map<std::string, std::set<std::string>, std::less<>>;

void collect(const ast::Expr& e, std::set<std::string>& names) {
  if (e.kind == ast::ExprKind::name) names.insert(e.text);
  for (const ast::Argument& argument : e.args)
    if (argument.value) collect(*argument.value, names);
}

/// The shortest way from \a name back to itself, both ends included; empty: there is none.
std::vector<std::string> circle_of(const std::string& name, const Uses& uses) {
  std::vector<std::vector<std::string>> paths{{name}};
  std::set<std::string> seen;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const auto at = uses.find(paths[i].back());
    if (at == uses.end()) continue;
    for (const std::string& next : at->second) {
      std::vector<std::string> path = paths[i];
      path.push_back(next);
      if (next == name) return path;
      if (seen.insert(next).second) paths.push_back(std::move(path));
    }
  }
  return {};
}

}  // namespace

void check_recompute_words(Module::Impl& module, const ast::Expr& set, Diagnostics& diags) {
  if (module.incomplete) return;
  const ModelNames known(module);
  for (const ast::Argument& member : set.args) {
    if (!member.value || member.value->kind != ast::ExprKind::name) continue;
    const std::string& word = member.value->text;
    if (known.contains(word) || word == kResidualNorms || word == kExpertActivations ||
        word == kExpertFirstLinears || word == kSharedExperts || word == kDenseMlp)
      continue;
    const std::string near = did_you_mean(member.value->text, known.names());
    diags
        .error(member.value->span,
               fmt::format("no op and no weight is called '{}'", member.value->text))
        .with_help(near.empty() ? "name ops, or weights as models name them: {attention, q, gate}"
                                : fmt::format("did you mean '{}'?", near));
  }
}

void check_fuses(const std::vector<const ast::Entry*>& entries, Diagnostics& diags) {
  std::map<std::string, Span> seen;
  for (const ast::Entry* entry : entries) {
    if (entry->kind != ast::EntryKind::fuse || !entry->value) continue;
    for (const ast::Argument& member : entry->value->args) {
      if (!member.value || member.value->kind != ast::ExprKind::name) continue;
      const auto [at, added] = seen.emplace(member.value->text, member.value->span);
      if (added) continue;
      diags.error(member.value->span, fmt::format("'{}' is fused twice", member.value->text))
          .label(at->second, "first fused here")
          .with_help("a weight is stored once: name it in one 'fuse'");
    }
  }
}

void check_default_circles(const Behaviour& behaviour, Diagnostics& diags) {
  Uses uses;
  for (const ast::Entry* entry : behaviour.entries)
    if (entry->kind == ast::EntryKind::default_ && entry->value)
      collect(*entry->value, uses[entry->name.text]);
  for (const auto& [name, param] : behaviour.params)
    if (param.value != nullptr) collect(*param.value, uses[name]);
  std::set<std::string> said;
  for (const ast::Entry* entry : behaviour.entries) {
    if (entry->kind != ast::EntryKind::default_ || said.contains(entry->name.text)) continue;
    const std::vector<std::string> circle = circle_of(entry->name.text, uses);
    if (circle.empty()) continue;
    said.insert(circle.begin(), circle.end());
    diags
        .error(entry->value->span, fmt::format("the default of '{}' depends on itself: {}",
                                               entry->name.text, fmt::join(circle, " -> ")))
        .with_help("give one of them a value of its own");
  }
}

}  // namespace plimsoll
