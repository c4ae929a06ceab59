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
  add(prelude().tables[static_cast<std::size_t>(Kind::model)]);
  add(module.user[static_cast<std::size_t>(Kind::model)]);
  return module.model_parameters;
}

}  // namespace

OpenScope::OpenScope(Module::Impl& module, const Behaviour& behaviour, Site site,
                     std::string_view op)
    : any_name_(site == Site::anywhere) {
  ExprPool& pool = module.pool;
  const auto number = [&](std::string_view name, Dimension dimension = kCount) {
    set(name, {eval::Number{pool.variable(stand_in(name)), dimension}, {}});
  };
  const auto open_word = [&](std::string_view name, Var var, const eval::Enumeration* words) {
    set(name, {eval::OpenWord{pool.variable(var), words}, {}});
  };
  for (const std::string& name : model_parameters(module)) number(name);
  for (const std::string& name : hardware_names()) number(name, *hardware_dimension(name));
  for (const OpenName& row : kJobNumbers) number(row.name, row.dimension);
  open_word("precision", Var::stage,
            module.enumeration("precision", {"fp32", "fp16", "bf16", "fp8"}));
  open_word("grads", Var::stage, module.enumeration("grads", {"default", "fp32", "bf16"}));
  open_word("adapt", Var::stage, module.enumeration("adapt", {"none", "lora", "qlora"}));
  open_word("attention", Var::stage,
            module.enumeration("attention", {"flash", "cudnn", "unfused"}));
  open_word("optimizer", Var::stage,
            module.enumeration("optimizer", module.names(Kind::optimizer, false)));
  open_word("weights", Var::stage, module.dtype_words);
  open_word("kv", Var::stage, module.dtype_words);
  for (const auto rows : {derived_numbers(), layout_variables()})
    for (const VariableName& row : rows) {
      if (row.type == NameType::number) number(row.name, row.dimension);
      if (row.type == NameType::boolean) set(row.name, {eval::Boolean{pool.variable(row.var)}, {}});
      if (row.type == NameType::recompute)
        open_word(row.name, row.var,
                  behaviour.recompute_words != nullptr
                      ? behaviour.recompute_words
                      : module.enumeration("recompute", {"none", "full", "selective"}));
      if (row.type == NameType::schedule)
        open_word(row.name, row.var,
                  module.enumeration("schedule", {kSchedules.begin(), kSchedules.end()}));
      if (row.type == NameType::numbers || row.type == NameType::pools)
        set(row.name, {eval::Unknown{}, {}});
    }
  if (site == Site::condition) return;
  for (const OpenName& row : kItemNumbers) number(row.name, row.dimension);
  set("first", {eval::Boolean{pool.variable(Var::first)}, {}});
  set("last", {eval::Boolean{pool.variable(Var::last)}, {}});
  if (site == Site::layer) number("numel");
  if (site == Site::weight) {
    for (const std::string_view name : kWeightNumbers) number(name);
    open_word("role", Var::stage, module.enumeration("role", role_words()));
    set("trained", {eval::Boolean{pool.variable(Var::last)}, {}});
  }
  if (site == Site::communicator)
    for (const std::string_view name : kCommunicatorNumbers) number(name);
  if (site == Site::weight || site == Site::op || site == Site::communicator)
    set("name", {eval::Word{"", &eval::any_words()}, {}});
  if (site != Site::op) return;
  for (const std::string_view name : {"weight", "count", "top_k", "routed", "permuted"})
    number(name);
  for (const std::string_view name : {"expert", "adapted", "learns", "first_reader"})
    set(name, {eval::Boolean{pool.variable(Var::last)}, {}});
  const std::vector<std::string>& values = op_values(op);
  for (const std::string& name : values) number(name);
  any_name_ = values.empty();
}

const eval::Value* OpenScope::make(std::string_view name) const {
  if (!any_name_) return nullptr;
  // A word on the other side of == is no number, so it may not become one here.
  return &made_.try_emplace(std::string(name), eval::Value{eval::Unknown{}, {}}).first->second;
}

}  // namespace plimsoll
