// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lang/eval.hpp"
#include "lang/module.hpp"

/// What names mean in a job's conditions, and in the bodies of frameworks and optimizers.
namespace plimsoll {

/// Concrete values of a layout, for expressions that no Expr can hold: per-stage lists, and
/// `bytes("…")`.
struct LayoutValues {
  Env env;  ///< every variable that conditions may read
  std::vector<std::int64_t> stage_layers, recompute_layers;
  std::vector<std::string> stage_pool;  ///< names of pools
  /// Bytes of a category or an item at the peak; nullopt: there is none of that name.
  std::function<std::optional<Int128>(std::string_view)> bytes;
};

/// The names that a job's conditions, and the items of its framework, see: layout variables, the
/// job's fields (and the switches it sets), parameters of the model, fields of the cluster and its
/// GPUs, derived numbers. Layout variables and derived numbers are variables (Var), or constants
/// where \a values is given; everything else is a constant. A name of two kinds is whichever comes
/// first here; check_condition reports it.
class ConditionScope : public eval::Scope {
 public:
  /// \a in_item: `stage first last receiving params_on_gpu` are in sight too.
  ConditionScope(const Module&, const Job&, const LayoutValues* values = nullptr,
                 bool in_item = false);

 protected:
  const eval::Value* make(std::string_view) const override;
  std::vector<std::string> made_names() const override;

 private:
  std::optional<eval::Value> layout_variable(std::string_view) const;
  std::optional<eval::Value> job_field(std::string_view) const;
  std::optional<eval::Value> model_parameter(std::string_view) const;
  std::optional<eval::Value> hardware_field(std::string_view) const;
  std::optional<eval::Value> derived_number(std::string_view) const;
  eval::Value variable(Var, Dimension) const;

  const Module& module_;
  const Job& job_;
  const LayoutValues* values_;
  bool in_item_;
  mutable std::map<std::string, eval::Value, std::less<>> made_;

  friend class NameKinds;
};

/// The names of a framework's or optimizer's body at one place: first its params (the job's switch,
/// else the default, evaluated here, since it may name what the place has), then those of \a place
/// (`numel`, `role`, an op's values …) and what is around it.
class BehaviourScope : public eval::Scope {
 public:
  /// \a job: nullptr while a body is checked without one.
  BehaviourScope(const Behaviour&, const Job* job, const eval::Scope& place, eval::Evaluator&);

 protected:
  const eval::Value* make(std::string_view) const override;
  std::vector<std::string> made_names() const override;

 private:
  const Behaviour& behaviour_;
  const Job* job_;
  eval::Evaluator& evaluator_;
  mutable std::map<std::string, eval::Value, std::less<>> made_;
  mutable std::vector<std::string> busy_;
};

/// A condition (or objective) in the form that a search can use.
struct Lowered {
  /// Over layout variables and derived numbers; 0 or 1 for a condition. nullopt where it reads
  /// per-stage lists or `bytes("…")`: evaluate it on concrete values then.
  std::optional<Expr> expr;
  std::uint64_t variables = 0;  ///< bit v: it reads variable v (also where expr is nullopt)
  bool lists = false;           ///< reads stage_layers, recompute_layers or stage_pool
  bool bytes = false;           ///< calls bytes("…")
};

/// nullopt after errors, which compile() has reported already for the conditions of its jobs.
std::optional<Lowered> lower_condition(const Module&, const Job&, const ast::Expr&, Diagnostics&);
/// Likewise an expression with a number (an objective).
std::optional<Lowered> lower_number(const Module&, const Job&, const ast::Expr&, Diagnostics&);

/// Does the condition hold? nullopt where it has no value at this layout (an index past a list's
/// end, a division by zero); a layout where a requirement has no value does not meet it. Of what
/// `and`, `or`, `not` and `=>` join, each part without a value counts as one that does not hold,
/// whichever side it stands on.
std::optional<bool> eval_condition(const Module&, const Job&, const ast::Expr&,
                                   const LayoutValues&);
std::optional<Rational> eval_number(const Module&, const Job&, const ast::Expr&,
                                    const LayoutValues&);

/// Reports unknown and ambiguous names and wrong kinds of a condition or (\a number) an objective.
bool check_condition(const Module&, const Job&, const ast::Expr&, bool number, Diagnostics&);

/// What a param of the job's framework is worth: the job's own, else its default. nullopt where the
/// framework has none of that name.
std::optional<eval::Value> framework_switch(const Module&, const Job&, std::string_view name);

}  // namespace plimsoll
