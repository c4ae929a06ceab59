// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "lang/lower_scope.hpp"

#include <algorithm>

#include "lang/names.hpp"

namespace plimsoll {

eval::Value number(Expr e, Dimension dimension) { return {eval::Number{e, dimension, ""}, {}}; }
eval::Value boolean(Expr e) { return {eval::Boolean{e}, {}}; }

JobScope::JobScope(const LowerInput& in, const std::vector<std::string>& recompute_modes)
    : pool_(in.module->pool()) {
  add_numbers(in);
  add_job(in);
  add_layout_variables(recompute_modes);
}

const eval::Enumeration* JobScope::enumeration(std::string name, std::vector<std::string> words) {
  for (const eval::Enumeration& e : enumerations_)
    if (e.name == name) return &e;
  enumerations_.push_back({std::move(name), std::move(words)});
  return &enumerations_.back();
}

eval::Value JobScope::word(std::string_view of, std::string text) {
  return {eval::Word{std::move(text), enumeration(std::string(of), {})}, {}};
}

void JobScope::add_layout_variables(const std::vector<std::string>& recompute_modes) {
  static constexpr Var kNumbers[] = {
      Var::tp,      Var::pp,           Var::vpp,           Var::cp,        Var::ep,
      Var::etp,     Var::dp,           Var::zero,          Var::shard,     Var::mbs,
      Var::offload, Var::microbatches, Var::stage,         Var::receiving, Var::in_flight,
      Var::gpus,    Var::nodes,        Var::params_on_gpu, Var::seq,       Var::target,
      Var::batch,   Var::gpus_per_node};
  for (Var v : kNumbers) set(std::string(name(v)), number(pool_.variable(v)));
  for (Var v : {Var::sp, Var::first, Var::last})
    set(std::string(name(v)), boolean(pool_.variable(v)));
  set("recompute",
      {eval::OpenWord{pool_.variable(Var::recompute), enumeration("recompute", recompute_modes)},
       {}});
  set("schedule",
      {eval::OpenWord{
           pool_.variable(Var::schedule),
           enumeration("schedule", std::vector<std::string>(kSchedules.begin(), kSchedules.end()))},
       {}});
}

void JobScope::add_job(const LowerInput& in) {
  const Job& job = *in.job;
  const auto word_of = [&](const char* name, const std::string& text,
                           std::vector<std::string> words) {
    set(name, {eval::Word{text, enumeration(name, std::move(words))}, {}});
  };
  word_of("precision", job.precision, {"fp32", "fp16", "bf16", "fp8"});
  word_of("attention", job.attention, {"flash", "cudnn", "unfused"});
  if (!job.grads.empty()) word_of("grads", job.grads, {"fp32", "bf16"});
  word_of("optimizer", job.optimizer, {});
  word_of("adapt", job.adapt.kind.empty() ? "none" : job.adapt.kind, {"none", "lora", "qlora"});
  word_of("weights", job.weights, {});
  word_of("kv", job.kv, {});
  const auto count = [&](const char* name, const Rational& value) {
    set(name, number(pool_.constant(value)));
  };
  count("dropout", job.dropout);
  count("attention_dropout", job.attention_dropout);
  count("imbalance", job.imbalance);
  count("rank", job.adapt.rank);
  count("context", job.context);
  count("kv_block", job.kv_block);
}

void JobScope::add_numbers(const LowerInput& in) {
  for (const auto& [name, value] : in.program->params) set(name, number(pool_.constant(value)));
  const Gpu& gpu = in.cluster->pools.front().gpu;
  const auto add = [&](const std::map<std::string, Quantity>& numbers) {
    for (const auto& [name, q] : numbers) set(name, number(pool_.constant(q.value), q.dimension));
  };
  add(in.cluster->numbers);
  add(gpu.numbers);
  set("sm", number(pool_.constant(gpu.sm)));
  set("hbm", number(pool_.constant(Rational::integer(gpu.memory)), kBytes));
  set("params", number(pool_.constant(Rational::integer(in.program->parameter_count()))));
}

const ast::Expr* field(const std::vector<ast::Entry>& body, std::string_view name) {
  for (const ast::Entry& e : body)
    if (e.kind == ast::EntryKind::assign && e.name.text == name) return e.value.get();
  return nullptr;
}

std::optional<Expr> where(const std::vector<ast::Entry>& body, eval::Evaluator& evaluator,
                          const eval::Scope& scope) {
  const ast::Expr* condition = field(body, "where");
  if (!condition) return evaluator.pool().constant(1);
  return evaluator.condition(*condition, scope);
}

std::string text_field(const std::vector<ast::Entry>& body, std::string_view name) {
  const ast::Expr* e = field(body, name);
  if (!e) return "";
  return e->kind == ast::ExprKind::name || e->kind == ast::ExprKind::string ? e->text : "";
}

std::optional<Category> category_named(std::string_view word) {
  for (std::size_t i = 0; i < kCategoryCount; ++i)
    if (name(static_cast<Category>(i)) == word) return static_cast<Category>(i);
  return std::nullopt;
}

namespace {

std::optional<Phase> phase_named(std::string_view word) {
  if (word == "forward") return Phase::forward;
  if (word == "backward") return Phase::backward;
  if (word == "update") return Phase::update;
  if (word == "start") return Phase::start;
  if (word == "load") return Phase::load;
  if (word == "save") return Phase::save;
  if (word == "evaluate") return Phase::evaluate;
  return std::nullopt;
}

bool is_true(const std::vector<ast::Entry>& body, std::string_view name) {
  const ast::Expr* e = field(body, name);
  if (!e) return false;
  return e->kind == ast::ExprKind::boolean
             ? e->flag
             : e->kind == ast::ExprKind::number && !e->quantity.value.is_zero();
}

}  // namespace

Lifetime lifetime_of(const std::vector<ast::Entry>& body, Lifetime fallback, Diagnostics& diags) {
  Lifetime result = fallback;
  result.early = is_true(body, "early");
  result.late = is_true(body, "late");
  const ast::Expr* e = field(body, "lifetime");
  if (!e) return result;
  if (e->kind == ast::ExprKind::binary && e->op == ast::Op::range) {
    const auto from = phase_named(e->arg(0).text), to = phase_named(e->arg(1).text);
    if (from && to && !is_beside_steps(*from) && !is_beside_steps(*to)) {
      result.kind = LifetimeKind::span;
      result.from = *from;
      result.to = *to;
      return result;
    }
  }
  const std::string_view word = e->text;
  if (const auto phase = phase_named(word)) {
    result.kind = LifetimeKind::span;
    result.from = result.to = *phase;
  } else if (word == "always") {
    result.kind = LifetimeKind::always;
  } else if (word == "from_first_step") {
    result.kind = LifetimeKind::from_first_step;
  } else if (word == "step") {
    result.kind = LifetimeKind::step;
  } else if (word == "microbatch") {
    result.kind = LifetimeKind::microbatch;
  } else if (word == "op") {
    result.kind = LifetimeKind::op;
  } else {
    diags.error(e->span, "this is not a lifetime")
        .with_help(
            "one of always, from_first_step, step, microbatch, op, forward, backward, update, "
            "start, "
            "load, save, evaluate, or a span such as backward..update");
  }
  return result;
}

std::optional<Rational> dtype_bits(const Module& module, std::string_view name) {
  static constexpr std::pair<std::string_view, int> kBuiltIn[] = {
      {"fp32", 32}, {"fp16", 16},  {"bf16", 16},  {"fp8", 8},   {"int8", 8},
      {"int4", 4},  {"int64", 64}, {"int32", 32}, {"fp64", 64}, {"bool", 8}};
  for (const auto& [word, bits] : kBuiltIn)
    if (word == name) return Rational(bits);
  if (const DType* d = module.dtype(name)) return d->bits;
  return std::nullopt;
}

}  // namespace plimsoll
