// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// What a condition reads.

#include <algorithm>

#include "planner/judge.hpp"
#include "planner/list_terms.hpp"

namespace plimsoll {

std::vector<const ast::Expr*> conjuncts(const ast::Expr& e) {
  if (e.kind != ast::ExprKind::binary || e.op != ast::Op::logical_and) return {&e};
  std::vector<const ast::Expr*> out = conjuncts(e.arg(0));
  for (const ast::Expr* right : conjuncts(e.arg(1))) out.push_back(right);
  return out;
}

bool names_list(const ast::Expr& e, std::string_view list) {
  if (e.kind == ast::ExprKind::name) return e.text == list;
  return std::any_of(e.args.begin(), e.args.end(), [&](const ast::Argument& argument) {
    return argument.value && names_list(*argument.value, list);
  });
}

bool reads_derived(const Problem& problem, const ast::Expr& e) {
  if (e.kind == ast::ExprKind::call && e.text == "bytes") return true;
  if (e.kind == ast::ExprKind::name) {
    const ConditionScope scope(*problem.module, *problem.job);
    const eval::Value* value = scope.find(e.text);
    const ExprPool& pool = problem.module->pool();
    std::optional<Expr> expr;
    if (value != nullptr) {
      if (const auto* n = value->as<eval::Number>()) expr = n->expr;
      if (const auto* b = value->as<eval::Boolean>()) expr = b->expr;
    }
    return expr && (pool.depends_on(*expr) & derived_variables()) != 0;
  }
  return std::any_of(e.args.begin(), e.args.end(), [&](const ast::Argument& argument) {
    return argument.value && reads_derived(problem, *argument.value);
  });
}

namespace {

void collect_entries(const ast::Expr& e, EntriesRead& out) {
  const auto of = [&](const ast::Expr& list) -> std::optional<std::set<std::size_t>>* {
    if (list.kind != ast::ExprKind::name) return nullptr;
    if (list.text == "stage_layers") return &out.stage_layers;
    if (list.text == "recompute_layers") return &out.recompute_layers;
    return nullptr;
  };
  if (auto* list = of(e)) {
    list->reset();
    return;
  }
  if (e.kind == ast::ExprKind::index)
    if (auto* list = of(e.arg(0)); list != nullptr && e.arg(1).kind == ast::ExprKind::number) {
      const Rational& at = e.arg(1).quantity.value;
      if (*list && at.is_integer() && at.sign() >= 0)
        (*list)->insert(static_cast<std::size_t>(at.num()));
      return;
    }
  for (const ast::Argument& argument : e.args)
    if (argument.value) collect_entries(*argument.value, out);
}

}  // namespace

EntriesRead entries_read(const ast::Expr& e) {
  EntriesRead out{std::set<std::size_t>{}, std::set<std::size_t>{}};
  collect_entries(e, out);
  return out;
}

}  // namespace plimsoll
