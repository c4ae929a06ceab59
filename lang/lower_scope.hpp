// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lang/conditions.hpp"
#include "lang/eval.hpp"
#include "lang/inventory.hpp"
#include "lang/lower.hpp"

/// The names that the bodies of frameworks, optimizers and items see, and how their entries are
/// read.
namespace plimsoll {

/// Everything a framework's expressions may name, for one job: layout variables (open), the job's,
/// the model's, the cluster's and the GPU's numbers, the framework's parameters with the job's
/// choices.
class JobScope : public eval::Scope {
 public:
  JobScope(const LowerInput&, const std::vector<std::string>& recompute_modes);

  /// A word of an enumeration that the scope owns ("role", "precision", "name" …).
  eval::Value word(std::string_view enumeration, std::string text);

 private:
  void add_layout_variables(const std::vector<std::string>& recompute_modes);
  void add_job(const LowerInput&);
  void add_numbers(const LowerInput&);
  const eval::Enumeration* enumeration(std::string name, std::vector<std::string> words);

  ExprPool& pool_;
  std::deque<eval::Enumeration> enumerations_;
};

/// The names of one place (an op's values, a weight's shape) with the params of the body's owner
/// behind them, which may name what the place has.
struct PlaceScope {
  PlaceScope(const JobScope& job_scope, const Behaviour& owner, const Job& job,
             eval::Evaluator& evaluator)
      : names(&job_scope), all(owner, &job, names, evaluator) {}
  void set(std::string_view name, eval::Value value) { names.set(name, std::move(value)); }

  eval::Scope names;
  BehaviourScope all;
};

eval::Value number(Expr, Dimension = kCount);
eval::Value boolean(Expr);

/// The value of `name = …` in a body, or nullptr.
const ast::Expr* field(const std::vector<ast::Entry>& body, std::string_view name);
/// Its `where`, 1 where there is none; nullopt after an error.
std::optional<Expr> where(const std::vector<ast::Entry>& body, eval::Evaluator&,
                          const eval::Scope&);
/// A bare word (`category = buffers`) or string; "" where the field is missing.
std::string text_field(const std::vector<ast::Entry>& body, std::string_view name);
/// Errors go to \a diags; \a fallback where no lifetime is written.
Lifetime lifetime_of(const std::vector<ast::Entry>& body, Lifetime fallback, Diagnostics&);
std::optional<Category> category_named(std::string_view);
/// A storage format's bits, built in or declared; nullopt where unknown.
std::optional<Rational> dtype_bits(const Module&, std::string_view name);

}  // namespace plimsoll
