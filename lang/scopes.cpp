// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>

#include "lang/conditions.hpp"
#include "lang/fields.hpp"
#include "lang/names.hpp"

namespace plimsoll {

namespace {

const eval::Enumeration* words_of(const Module& module, std::string name,
                                  std::vector<std::string> words) {
  return module.impl().enumeration(std::move(name), std::move(words));
}

eval::Value word_value(const Module& module, std::string name, std::vector<std::string> words,
                       const std::string& text) {
  return {eval::Word{text, words_of(module, std::move(name), std::move(words))}, {}};
}

}  // namespace

ConditionScope::ConditionScope(const Module& module, const Job& job, const LayoutValues* values,
                               bool in_item)
    : module_(module), job_(job), values_(values), in_item_(in_item) {}

eval::Value ConditionScope::variable(Var var, Dimension dimension) const {
  ExprPool& pool = module_.pool();
  const Expr expr = values_ != nullptr ? pool.constant(values_->env[var]) : pool.variable(var);
  return {eval::Number{expr, dimension}, {}};
}

std::optional<eval::Value> ConditionScope::layout_variable(std::string_view name) const {
  const VariableName* row = find_name(layout_variables(), name);
  if (row == nullptr && in_item_) row = find_name(stage_numbers(), name);
  if (row == nullptr) return std::nullopt;
  ExprPool& pool = module_.pool();
  const eval::Value value = variable(row->var, row->dimension);
  const Expr expr = value.as<eval::Number>()->expr;
  switch (row->type) {
    case NameType::number:
      return value;
    case NameType::boolean:
      return eval::Value{eval::Boolean{expr}, {}};
    case NameType::recompute:
    case NameType::schedule: {
      const eval::Enumeration* words =
          row->type == NameType::schedule
              ? words_of(module_, "schedule", {kSchedules.begin(), kSchedules.end()})
              : recompute_words(module_, job_);
      if (values_ == nullptr) return eval::Value{eval::OpenWord{expr, words}, {}};
      const std::int64_t at = pool.value(expr).to_int64();
      if (at < 0 || static_cast<std::size_t>(at) >= words->words.size()) return std::nullopt;
      return eval::Value{eval::Word{words->words[static_cast<std::size_t>(at)], words}, {}};
    }
    case NameType::numbers: {
      if (values_ == nullptr) return eval::Value{eval::Unknown{}, {}};
      eval::List list;
      const auto& of = name == "stage_layers" ? values_->stage_layers : values_->recompute_layers;
      for (const std::int64_t n : of)
        list.items.push_back({eval::Number{pool.constant(Rational(n)), kCount}, {}});
      return eval::Value{std::move(list), {}};
    }
    case NameType::pools: {
      if (values_ == nullptr) return eval::Value{eval::Unknown{}, {}};
      eval::List list;
      const eval::Enumeration* words = words_of(module_, "stage_pool", pool_names(module_, job_));
      for (const std::string& pool_name : values_->stage_pool)
        list.items.push_back({eval::Word{pool_name, words}, {}});
      return eval::Value{std::move(list), {}};
    }
  }
  return std::nullopt;
}

std::optional<eval::Value> ConditionScope::job_field(std::string_view name) const {
  ExprPool& pool = module_.pool();
  const auto number = [&](const Rational& value) {
    return eval::Value{eval::Number{pool.constant(value), kCount}, {}};
  };
  const auto open_or = [&](Var var, const Rational& value) {
    const auto choice = job_.layout.find(std::string(name));
    const bool open = choice != job_.layout.end() && choice->second.values.size() > 1;
    return open || value.is_zero() ? variable(var, kCount) : number(value);
  };
  if (const auto at = job_.switches.find(std::string(name)); at != job_.switches.end())
    return at->second;
  if (name == "seq") return open_or(Var::seq, job_.seq);
  if (name == "target") return open_or(Var::target, job_.target);
  if (name == "batch") return open_or(Var::batch, job_.batch_in_tokens ? Rational(0) : job_.batch);
  if (name == "precision")
    return word_value(module_, "precision", {"fp32", "fp16", "bf16", "fp8"}, job_.precision);
  if (name == "attention")
    return word_value(module_, "attention", attention_words(module_, job_), job_.attention);
  if (name == "grads")
    return word_value(module_, "grads", {"default", "fp32", "bf16"},
                      job_.grads.empty() ? "default" : job_.grads);
  if (name == "dropout") return number(job_.dropout);
  if (name == "attention_dropout") return number(job_.attention_dropout);
  if (name == "imbalance") return number(job_.imbalance);
  if (name == "tokens" && !job_.tokens.is_zero()) return number(job_.tokens);
  if (name == "optimizer")
    return word_value(module_, "optimizer", module_.names("optimizer"), job_.optimizer);
  if (!job_.serve) return std::nullopt;
  if (name == "context") return number(job_.context);
  if (name == "sequences") return open_or(Var::sequences, 0);
  if (name == "kv_block") return number(job_.kv_block);
  if (name == "batch_tokens" && job_.batch_tokens) return number(*job_.batch_tokens);
  if (name == "utilization" && job_.utilization) return number(*job_.utilization);
  if (name == "weights" || name == "kv")
    return eval::Value{
        eval::Word{name == "kv" ? job_.kv : job_.weights, module_.impl().dtype_words}, {}};
  return std::nullopt;
}

std::optional<eval::Value> ConditionScope::model_parameter(std::string_view name) const {
  Diagnostics ignored;  // the model was checked when it was compiled
  const Program* program = module_.program(job_.model, ignored);
  if (program == nullptr) return std::nullopt;
  const auto at = program->params.find(std::string(name));
  if (at == program->params.end()) return std::nullopt;
  return eval::Value{eval::Number{module_.pool().constant(at->second), kCount}, {}};
}

std::optional<eval::Value> ConditionScope::hardware_field(std::string_view name) const {
  const Cluster* cluster = module_.cluster(job_.cluster);
  if (cluster == nullptr || cluster->pools.empty()) return std::nullopt;
  ExprPool& pool = module_.pool();
  const auto number = [&](const Rational& value, Dimension dimension) {
    return eval::Value{eval::Number{pool.constant(value), dimension}, {}};
  };
  if (name == "nodes") {
    if (cluster->nodes_are_free()) return variable(Var::nodes, kCount);
    std::int64_t nodes = 0;
    for (const Pool& part : cluster->pools) nodes += part.nodes.empty() ? 0 : part.nodes.front();
    return number(Rational(nodes), kCount);
  }
  const Pool& first = cluster->pools.front();
  if (name == "gpus_per_node") return number(Rational(first.gpus_per_node), kCount);
  for (const auto* numbers : {&cluster->numbers, &first.gpu.numbers})
    if (const auto at = numbers->find(std::string(name)); at != numbers->end())
      return number(at->second.value, at->second.dimension);
  // A field that was not given is 0: `sm == 90` is false on a GPU that says no sm.
  if (const std::optional<Dimension> dimension = hardware_dimension(name))
    return number(Rational(0), *dimension);
  return std::nullopt;
}

std::optional<eval::Value> ConditionScope::derived_number(std::string_view name) const {
  const VariableName* row = find_name(derived_numbers(), name);
  if (row == nullptr) return std::nullopt;
  if (name == "params") {
    Diagnostics ignored;
    const Program* program = module_.program(job_.model, ignored);
    if (program == nullptr) return eval::Value{eval::Unknown{}, {}};
    return eval::Value{
        eval::Number{module_.pool().constant(Rational::integer(program->parameter_count())),
                     kCount},
        {}};
  }
  if (name == "gpus") {
    const Cluster* cluster = module_.cluster(job_.cluster);
    if (cluster != nullptr && !cluster->nodes_are_free())
      return eval::Value{eval::Number{module_.pool().constant(Rational(cluster->gpus())), kCount},
                         {}};
  }
  return variable(row->var, row->dimension);
}

const eval::Value* ConditionScope::make(std::string_view name) const {
  if (const auto at = made_.find(name); at != made_.end()) return &at->second;
  std::optional<eval::Value> value = layout_variable(name);
  if (!value) value = job_field(name);
  if (!value) value = model_parameter(name);
  if (!value) value = hardware_field(name);
  if (!value) value = derived_number(name);
  if (!value) return nullptr;
  return &(made_[std::string(name)] = std::move(*value));
}

std::vector<std::string> ConditionScope::made_names() const {
  std::vector<std::string> names;
  for (const VariableName& row : layout_variables()) names.emplace_back(row.name);
  for (const VariableName& row : derived_numbers()) names.emplace_back(row.name);
  if (in_item_)
    for (const VariableName& row : stage_numbers()) names.emplace_back(row.name);
  for (const char* field : {"seq",       "target",   "batch",        "precision",
                            "attention", "grads",    "dropout",      "attention_dropout",
                            "imbalance", "tokens",   "optimizer",    "context",
                            "sequences", "kv_block", "batch_tokens", "utilization",
                            "weights",   "kv",       "nodes",        "gpus_per_node"})
    if (job_field(field) || hardware_field(field)) names.emplace_back(field);
  for (const auto& [name, value] : job_.switches) names.push_back(name);
  for (std::string& name : hardware_names()) names.push_back(std::move(name));
  Diagnostics ignored;
  if (const Program* program = module_.program(job_.model, ignored))
    for (const auto& [name, value] : program->params) names.push_back(name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

BehaviourScope::BehaviourScope(const Behaviour& behaviour, const Job* job, const eval::Scope& place,
                               eval::Evaluator& evaluator)
    : eval::Scope(&place), behaviour_(behaviour), job_(job), evaluator_(evaluator) {}

const eval::Value* BehaviourScope::make(std::string_view name) const {
  if (const auto at = made_.find(name); at != made_.end()) return &at->second;
  const auto param = behaviour_.params.find(name);
  if (param == behaviour_.params.end()) return nullptr;
  if (job_ != nullptr)
    if (const auto at = job_->switches.find(std::string(name)); at != job_->switches.end())
      return &at->second;
  const auto make_value = [&]() -> eval::Value {
    if (param->second.value == nullptr) return {eval::None{}, param->second.span};
    if (std::find(busy_.begin(), busy_.end(), name) != busy_.end()) {
      evaluator_
          .error(param->second.span,
                 fmt::format("the default of parameter '{}' depends on itself", name))
          .with_help("give one of the parameters that lead back here a value");
      return {eval::Unknown{}, param->second.span};
    }
    busy_.emplace_back(name);
    std::optional<eval::Value> value =
        evaluator_.eval(*param->second.value, *this, param->second.words);
    busy_.pop_back();
    return value ? std::move(*value) : eval::Value{eval::Unknown{}, param->second.span};
  };
  // Evaluated before it is stored: evaluation may come back here for other names.
  eval::Value value = make_value();
  return &made_.insert_or_assign(std::string(name), std::move(value)).first->second;
}

std::vector<std::string> BehaviourScope::made_names() const {
  std::vector<std::string> names;
  for (const auto& [name, param] : behaviour_.params) names.push_back(name);
  return names;
}

const eval::Enumeration* recompute_words(const Module& module, const Job& job) {
  const Behaviour* framework = module.framework(job.framework);
  if (framework != nullptr && framework->recompute_words != nullptr)
    return framework->recompute_words;
  return words_of(module, "recompute", {"none", "full"});
}

std::vector<std::string> attention_words(const Module& module, const Job& job) {
  if (const Behaviour* framework = module.framework(job.framework))
    if (const auto at = framework->params.find("attention"); at != framework->params.end())
      if (at->second.words != nullptr) return at->second.words->words;
  return {"flash", "cudnn", "unfused"};
}

std::vector<std::string> pool_names(const Module& module, const Job& job) {
  std::vector<std::string> names;
  if (const Cluster* cluster = module.cluster(job.cluster))
    for (const Pool& pool : cluster->pools)
      if (!pool.name.empty()) names.push_back(pool.name);
  return names;
}

}  // namespace plimsoll
