// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/conditions.hpp"

#include <algorithm>

#include "lang/bytes_names.hpp"
#include "lang/fields.hpp"
#include "lang/names.hpp"

namespace plimsoll {

namespace {

/// Stages of the made-up layout on which conditions over lists are type-checked.
constexpr std::int64_t kSampleStages = 64;

/// `bytes("category or item")`.
class BytesCall : public eval::Calls {
 public:
  BytesCall(const Module& module, Diagnostics& diags, const LayoutValues* values)
      : module_(module), diags_(diags), values_(values) {}

  bool knows(std::string_view name) const override { return name == "bytes"; }
  std::vector<std::string> names() const override { return {"bytes"}; }
  std::optional<eval::Value> call(const ast::Expr& call, const eval::Scope&) override {
    if (call.args.size() != 1 || call.arg(0).kind != ast::ExprKind::string ||
        !call.args[0].name.text.empty()) {
      diags_.error(call.span, "'bytes' expects the name of a category or an item, as a string")
          .with_help("for example bytes(\"activations\")");
      return std::nullopt;
    }
    ExprPool& pool = module_.pool();
    if (values_ == nullptr)  // stands for a number that is not known yet
      return eval::Value{eval::Number{pool.variable(Var::peak), kBytes}, call.span};
    const std::optional<Int128> bytes =
        values_->bytes ? values_->bytes(call.arg(0).text) : std::nullopt;
    if (!bytes) {
      diags_
          .error(call.arg(0).span,
                 fmt::format("no category or item is called \"{}\"", call.arg(0).text))
          .with_help("`plimsoll bill` lists the items of a job");
      return std::nullopt;
    }
    return eval::Value{eval::Number{pool.constant(Rational::integer(*bytes)), kBytes}, call.span};
  }

 private:
  const Module& module_;
  Diagnostics& diags_;
  const LayoutValues* values_;
};

void collect_names(const ast::Expr& e, std::vector<const ast::Expr*>& names, bool& bytes) {
  if (e.kind == ast::ExprKind::name) names.push_back(&e);
  if (e.kind == ast::ExprKind::call && e.text == "bytes") bytes = true;
  for (const ast::Argument& argument : e.args)
    if (argument.value) collect_names(*argument.value, names, bytes);
}

bool is_list(std::string_view name) {
  const VariableName* row = find_name(layout_variables(), name);
  return row != nullptr && (row->type == NameType::numbers || row->type == NameType::pools);
}

/// What an expression reads, by names alone.
Lowered reads(const Module& module, const ConditionScope& scope, const ast::Expr& e) {
  Lowered result;
  std::vector<const ast::Expr*> names;
  collect_names(e, names, result.bytes);
  for (const ast::Expr* name : names) {
    if (is_list(name->text)) {
      result.lists = true;
      continue;
    }
    const eval::Value* value = scope.find(name->text);
    if (value == nullptr) continue;
    if (const auto* number = value->as<eval::Number>())
      result.variables |= module.pool().depends_on(number->expr);
    if (const auto* boolean = value->as<eval::Boolean>())
      result.variables |= module.pool().depends_on(boolean->expr);
    if (const auto* word = value->as<eval::OpenWord>())
      result.variables |= module.pool().depends_on(word->expr);
  }
  return result;
}

/// Evaluates an expression of a job: its framework's params are in sight too.
std::optional<Expr> evaluate(const Module& module, const Job& job, const ast::Expr& e, bool number,
                             const LayoutValues* values, Diagnostics& diags) {
  BytesCall calls(module, diags, values);
  eval::Evaluator evaluator(module.pool(), diags, &calls);
  const ConditionScope names(module, job, values);
  const Behaviour* framework = module.framework(job.framework);
  const auto in = [&](const eval::Scope& scope) -> std::optional<Expr> {
    if (!number) return evaluator.condition(e, scope);
    const std::optional<eval::Value> value = evaluator.eval(e, scope);
    if (!value || value->as<eval::Unknown>() != nullptr) return std::nullopt;
    if (const auto* found = value->as<eval::Number>()) return found->expr;
    diags.error(e.span, fmt::format("expected a number to aim at, got {}", value->kind()))
        .with_help("for example minimize step_time, or maximize tokens_per_second");
    return std::nullopt;
  };
  if (framework == nullptr) return in(names);
  return in(BehaviourScope(*framework, &job, names, evaluator));
}

LayoutValues sample_values(const Module& module, const Job& job) {
  LayoutValues values;
  for (Rational& value : values.env.values) value = 1;
  values.env[Var::recompute] = 0;
  values.env[Var::schedule] = 0;
  values.env[Var::pp] = kSampleStages;
  values.stage_layers.assign(kSampleStages, 1);
  values.recompute_layers.assign(kSampleStages, 1);
  const std::vector<std::string> pools = pool_names(module, job);
  for (std::int64_t i = 0; i < kSampleStages; ++i)
    values.stage_pool.push_back(pools.empty() ? ""
                                              : pools[static_cast<std::size_t>(i) % pools.size()]);
  values.bytes = [](std::string_view) { return std::optional<Int128>(1); };
  return values;
}

}  // namespace

/// In which of the kinds of LANGUAGE.md a name is found.
class NameKinds {
 public:
  NameKinds(const Module& module, const Job& job) : module_(module), scope_(module, job) {}

  std::vector<std::string> of(const std::string& name) const {
    std::vector<std::string> kinds;
    if (scope_.layout_variable(name)) kinds.emplace_back("a layout variable");
    if (scope_.job_field(name)) kinds.emplace_back("a field of the job");
    if (scope_.model_parameter(name))
      kinds.push_back(fmt::format("a parameter of model '{}'", scope_.job_.model));
    if (scope_.hardware_field(name)) kinds.emplace_back("a field of the cluster or its GPU");
    if (scope_.derived_number(name)) kinds.emplace_back("a derived number");
    return kinds;
  }

  /// Pools of unlike GPUs, and a field in which they differ.
  bool differs(const std::string& name) const {
    const Cluster* cluster = module_.cluster(scope_.job_.cluster);
    if (cluster == nullptr || cluster->pools.size() < 2) return false;
    const auto value = [&](const Pool& pool) -> Rational {
      if (name == "gpus_per_node") return Rational(pool.gpus_per_node);
      const auto at = pool.gpu.numbers.find(name);
      return at == pool.gpu.numbers.end() ? Rational(0) : at->second.value;
    };
    return std::any_of(cluster->pools.begin(), cluster->pools.end(), [&](const Pool& pool) {
      return !(value(pool) == value(cluster->pools.front()));
    });
  }

  const Job& job() const { return scope_.job_; }

 private:
  const Module& module_;
  ConditionScope scope_;
};

namespace {

/// Names that have no one value here. False after an error.
bool check_names(const NameKinds& kinds, const std::vector<const ast::Expr*>& names,
                 Diagnostics& diags) {
  bool ok = true;
  for (const ast::Expr* name : names) {
    const std::vector<std::string> found = kinds.of(name->text);
    if (found.size() > 1) {
      diags
          .error(name->span,
                 fmt::format("'{}' is {} and {}: a condition cannot tell which is meant",
                             name->text, found[0], found[1]))
          .with_help("rename the one that this file declares");
      ok = false;
    } else if ((name->text == "days" || name->text == "cost") && kinds.job().tokens.is_zero() &&
               found.size() == 1) {
      diags
          .error(name->span,
                 fmt::format("'{}' needs the tokens of the whole run, which the job does not say",
                             name->text))
          .with_help("add a line such as tokens = 15T");
      ok = false;
    } else if (found.size() == 1 && found[0] == "a field of the cluster or its GPU" &&
               kinds.differs(name->text)) {
      diags
          .error(name->span, fmt::format("'{}' differs between the pools of cluster '{}'",
                                         name->text, kinds.job().cluster))
          .with_help("write the number that is meant");
      ok = false;
    }
  }
  return ok;
}

std::optional<Lowered> lower(const Module& module, const Job& job, const ast::Expr& e, bool number,
                             Diagnostics& diags) {
  const ConditionScope scope(module, job);
  Lowered result = reads(module, scope, e);
  if (result.lists || result.bytes) return result;
  result.expr = evaluate(module, job, e, number, nullptr, diags);
  if (!result.expr) return std::nullopt;
  result.variables = module.pool().depends_on(*result.expr);
  return result;
}

std::optional<Rational> concrete(const Module& module, const Job& job, const ast::Expr& e,
                                 bool number, const LayoutValues& values) {
  Diagnostics ignored;  // no value here, which is an answer
  const std::optional<Expr> found = evaluate(module, job, e, number, &values, ignored);
  if (!found || !module.pool().is_constant(*found)) return std::nullopt;
  return module.pool().value(*found);
}

}  // namespace

std::optional<Lowered> lower_condition(const Module& module, const Job& job, const ast::Expr& e,
                                       Diagnostics& diags) {
  return lower(module, job, e, false, diags);
}

std::optional<Lowered> lower_number(const Module& module, const Job& job, const ast::Expr& e,
                                    Diagnostics& diags) {
  return lower(module, job, e, true, diags);
}

std::optional<bool> eval_condition(const Module& module, const Job& job, const ast::Expr& e,
                                   const LayoutValues& values) {
  const auto part = [&](std::size_t i) { return eval_condition(module, job, e.arg(i), values); };
  if (e.kind == ast::ExprKind::unary && e.op == ast::Op::logical_not)
    return !part(0).value_or(false);
  if (e.kind == ast::ExprKind::binary &&
      (e.op == ast::Op::logical_and || e.op == ast::Op::logical_or || e.op == ast::Op::implies)) {
    const std::optional<bool> left = part(0), right = part(1);
    if (!left && !right && e.op != ast::Op::implies) return std::nullopt;
    const bool a = left.value_or(false), b = right.value_or(false);
    return e.op == ast::Op::logical_and ? a && b : e.op == ast::Op::logical_or ? a || b : !a || b;
  }
  const std::optional<Rational> found = concrete(module, job, e, false, values);
  if (!found) return std::nullopt;
  return !found->is_zero();
}

std::optional<Rational> eval_number(const Module& module, const Job& job, const ast::Expr& e,
                                    const LayoutValues& values) {
  return concrete(module, job, e, true, values);
}

bool check_condition(const Module& module, const Job& job, const ast::Expr& e, bool number,
                     Diagnostics& diags) {
  std::vector<const ast::Expr*> names;
  bool bytes = false;
  collect_names(e, names, bytes);
  if (!check_names(NameKinds(module, job), names, diags)) return false;
  if (bytes && !check_bytes_names(module, job, e, diags)) return false;
  const bool lists = std::any_of(names.begin(), names.end(),
                                 [](const ast::Expr* name) { return is_list(name->text); });
  if (!lists) return evaluate(module, job, e, number, nullptr, diags).has_value();
  const LayoutValues sample = sample_values(module, job);
  return evaluate(module, job, e, number, &sample, diags).has_value();
}

std::optional<eval::Value> framework_switch(const Module& module, const Job& job,
                                            std::string_view name) {
  const Behaviour* framework = module.framework(job.framework);
  if (framework == nullptr || framework->params.find(name) == framework->params.end())
    return std::nullopt;
  Diagnostics ignored;  // the framework's body was checked when it was compiled
  eval::Evaluator evaluator(module.pool(), ignored);
  const ConditionScope names(module, job);
  const BehaviourScope scope(*framework, &job, names, evaluator);
  const eval::Value* value = scope.find(name);
  return value == nullptr ? std::nullopt : std::optional<eval::Value>(*value);
}

}  // namespace plimsoll
