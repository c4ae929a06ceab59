// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/behaviour_scope.hpp"

#include <algorithm>

#include "lang/fields.hpp"
#include "lang/names.hpp"

namespace plimsoll {

namespace {

struct OpenName {
  std::string_view name;
  Dimension dimension = kCount;
};

/// A job's numeric fields, and a framework's that a job may repeat.
constexpr OpenName kJobNumbers[] = {
    {"seq"},          {"target"},      {"batch"},          {"dropout"},   {"attention_dropout"},
    {"imbalance"},    {"tokens"},      {"context"},        {"sequences"}, {"kv_block"},
    {"batch_tokens"}, {"utilization"}, {"vocab_multiple"}, {"rank"},
};
constexpr OpenName kItemNumbers[] = {{"microbatches"},  {"carried"},   {"vocab"}, {"in_flight"},
                                     {"params_on_gpu"}, {"receiving"}, {"stage"}};
constexpr std::string_view kWeightNumbers[] = {"numel", "rows", "cols", "dims"};
constexpr std::string_view kCommunicatorNumbers[] = {"ranks", "peers", "channels"};

/// Numbers of different names are different variables, so that nothing folds by accident.
Var stand_in(std::string_view name) {
  constexpr Var kAnyRationals[] = {Var::peak, Var::hbm,  Var::headroom, Var::step_time,
                                   Var::mfu,  Var::days, Var::cost,     Var::offload};
  std::size_t hash = 0;
  for (const char c : name) hash = hash * 31 + static_cast<unsigned char>(c);
  return kAnyRationals[hash % std::size(kAnyRationals)];
}

std::vector<std::string> role_words() {
  return {"linear", "expert", "head", "embedding", "norm", "bias", "router", "other"};
}

/// Parameters of every model in sight: an item may name those of the job's.
const std::set<std::string, std::less<>>& model_parameters(Module::Impl& module) {
  if (!module.model_parameters.empty()) return module.model_parameters;
  const auto add = [&](const DeclarationTable& table) {
    for (const auto& [name, declaration] : table)
      for (const ast::Entry& entry : declaration->entries)
        if (entry.kind == ast::EntryKind::param) module.model_parameters.insert(entry.name.text);
  };
  add(prelude().all(Kind::model));
  add(module.user[static_cast<std::size_t>(Kind::model)]);
  return module.model_parameters;
}

/// Sets names whose values stay open.
struct Opener {
  ExprPool& pool;
  eval::Scope& scope;

  void number(std::string_view name, Dimension dimension = kCount) const {
    scope.set(name, {eval::Number{pool.variable(stand_in(name)), dimension}, {}});
  }
  void boolean(std::string_view name, Var var) const {
    scope.set(name, {eval::Boolean{pool.variable(var)}, {}});
  }
  void word(std::string_view name, Var var, const eval::Enumeration* words) const {
    scope.set(name, {eval::OpenWord{pool.variable(var), words}, {}});
  }
};

/// What is in sight at every site: models' parameters, hardware, the job's fields, the layout.
/// \a modes: the words of `recompute`.
std::unique_ptr<const eval::Scope> seen_everywhere(Module::Impl& module,
                                                   const eval::Enumeration* modes) {
  auto scope = std::make_unique<eval::Scope>();
  const Opener open{module.pool, *scope};
  for (const std::string& name : model_parameters(module)) open.number(name);
  for (const std::string& name : hardware_names()) open.number(name, *hardware_dimension(name));
  for (const OpenName& row : kJobNumbers) open.number(row.name, row.dimension);
  open.word("precision", Var::stage,
            module.enumeration("precision", {"fp32", "fp16", "bf16", "fp8"}));
  open.word("grads", Var::stage, module.enumeration("grads", {"default", "fp32", "bf16"}));
  open.word("adapt", Var::stage, module.enumeration("adapt", {"none", "lora", "qlora"}));
  open.word("attention", Var::stage,
            module.enumeration("attention", {"flash", "cudnn", "unfused"}));
  open.word("optimizer", Var::stage,
            module.enumeration("optimizer", module.names(Kind::optimizer, false)));
  open.word("weights", Var::stage, module.dtype_words);
  open.word("kv", Var::stage, module.dtype_words);
  for (const auto rows : {derived_numbers(), layout_variables()})
    for (const VariableName& row : rows) {
      if (row.type == NameType::number) open.number(row.name, row.dimension);
      if (row.type == NameType::boolean) open.boolean(row.name, row.var);
      if (row.type == NameType::recompute)
        open.word(row.name, row.var,
                  modes != nullptr
                      ? modes
                      : module.enumeration("recompute", {"none", "full", "selective"}));
      if (row.type == NameType::schedule)
        open.word(row.name, row.var,
                  module.enumeration("schedule", {kSchedules.begin(), kSchedules.end()}));
      if (row.type == NameType::numbers || row.type == NameType::pools)
        scope->set(row.name, {eval::Unknown{}, {}});
    }
  return scope;
}

const eval::Scope* seen_everywhere(Module::Impl& module, const Behaviour& behaviour) {
  std::unique_ptr<const eval::Scope>& made = module.open_scopes[behaviour.recompute_words];
  if (made == nullptr) made = seen_everywhere(module, behaviour.recompute_words);
  return made.get();
}

}  // namespace

OpenScope::OpenScope(Module::Impl& module, const Behaviour& behaviour, Site site,
                     std::string_view op)
    : eval::Scope(seen_everywhere(module, behaviour)), any_name_(site == Site::anywhere) {
  const Opener open{module.pool, *this};
  if (site == Site::condition) return;
  for (const OpenName& row : kItemNumbers) open.number(row.name, row.dimension);
  open.boolean("first", Var::first);
  open.boolean("last", Var::last);
  if (site == Site::layer) open.number("numel");
  if (site == Site::weight) {
    for (const std::string_view name : kWeightNumbers) open.number(name);
    open.word("role", Var::stage, module.enumeration("role", role_words()));
    open.boolean("trained", Var::last);
  }
  if (site == Site::communicator)
    for (const std::string_view name : kCommunicatorNumbers) open.number(name);
  if (site == Site::weight || site == Site::op || site == Site::communicator)
    set("name", {eval::Word{"", &eval::any_words()}, {}});
  if (site != Site::op) return;
  for (const std::string_view name : {"weight", "count", "top_k", "routed", "permuted"})
    open.number(name);
  for (const std::string_view name : {"expert", "adapted", "learns", "first_reader"})
    open.boolean(name, Var::last);
  const std::vector<std::string>& values = op_values(op);
  for (const std::string& name : values) open.number(name);
  any_name_ = values.empty();
}

const eval::Value* OpenScope::make(std::string_view name) const {
  if (!any_name_ || parent()->find(name) != nullptr) return nullptr;
  // A word on the other side of == is no number, so it may not become one here.
  return &made_.try_emplace(std::string(name), eval::Value{eval::Unknown{}, {}}).first->second;
}

}  // namespace plimsoll
