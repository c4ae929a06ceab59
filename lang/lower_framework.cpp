// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include <algorithm>

#include "lang/conditions.hpp"
#include "lang/lowering.hpp"

namespace plimsoll {

namespace {
const eval::Enumeration kAnyWord{"a word", {}};
}

Lowering::Lowering(const LowerInput& in, Diagnostics& diags)
    : in_(in),
      program_(*in.program),
      pool_(in.module->pool()),
      diags_(diags),
      eval_(pool_, diags),
      modes_{"none", "full"},
      scope_(in, (modes_.insert(modes_.end(), in.framework->recompute_modes.begin(),
                                in.framework->recompute_modes.end()),
                  modes_)),
      table_(inventory_.items) {
  inventory_.program = in.program;
  inventory_.recompute_modes = modes_;
  Facts& facts = inventory_.facts;
  facts.imbalance = in.job->imbalance;
  facts.vocab_multiple = constant(1);
  facts.variant.attention = in.job->attention;
  facts.variant.dropout = in.job->dropout > Rational(0);
  facts.variant.attention_dropout = in.job->attention_dropout > Rational(0);
  const int activation = in.job->precision == "fp32" ? 4 : 2;
  facts.activation_bytes = activation;
  facts.variant.activation_bytes = activation;
  facts.weight_bytes = in.job->precision == "fp8" ? 1 : activation;
  policies_ = {{RecomputePolicy::none, {}, {}, {}}, {RecomputePolicy::full, {}, {}, {}}};
  policies_.resize(modes_.size());
}

void Lowering::read_framework() {
  for (const ast::Entry* e : in_.framework->entries) read_entry(*e);
  if (in_.optimizer)
    for (const ast::Entry* e : in_.optimizer->entries) {
      if (e->kind == ast::EntryKind::state) states_.push_back({e, false});
      if (e->kind == ast::EntryKind::item) items_.push_back({e, in_.optimizer});
    }
  shapes_.emplace(program_, pool_, inventory_.facts.imbalance, inventory_.facts.vocab_multiple);
  find_trained();
  // A switch that is known by its name, as a server's `activations` is.
  const auto away = framework_switch(*in_.module, *in_.job, "offload_activations");
  if (const auto* yes = away ? away->as<eval::Boolean>() : nullptr)
    offloads_layers_ = pool_.is_constant(yes->expr) && !pool_.value(yes->expr).is_zero();
  inventory_.offloads_activations = inventory_.offloads_activations || offloads_layers_;
}

void Lowering::read_entry(const ast::Entry& e) {
  PlaceScope place(scope_, *in_.framework, *in_.job, eval_);
  const eval::Scope& scope = place.all;
  switch (e.kind) {
    case ast::EntryKind::on:
      ons_.push_back(&e);
      break;
    case ast::EntryKind::state:
      states_.push_back({&e, true});
      break;
    case ast::EntryKind::item:
      items_.push_back({&e, in_.framework});
      break;
    case ast::EntryKind::recompute:
      read_recompute(e);
      break;
    case ast::EntryKind::fuse: {
      std::vector<std::string> names;
      for (const ast::Argument& a : e.value->args) names.push_back(a.value->text);
      fuse_.push_back(std::move(names));
      break;
    }
    case ast::EntryKind::default_:
      for (std::size_t v = 0; v < kVarCount; ++v) {
        if (name(static_cast<Var>(v)) != e.name.text) continue;
        const auto value = eval_.eval(*e.value, scope);
        if (!value) return;
        if (const auto* n = value->as<eval::Number>())
          inventory_.defaults.push_back({static_cast<Var>(v), n->expr});
        if (const auto* b = value->as<eval::Boolean>())
          inventory_.defaults.push_back({static_cast<Var>(v), b->expr});
      }
      break;
    case ast::EntryKind::assign: {
      const std::string& field = e.name.text;
      if (field == "vocab_multiple") {
        if (const auto n = eval_.count(*e.value, scope)) inventory_.facts.vocab_multiple = *n;
      } else if (field == "pointwise") {
        const auto value = eval_.eval(*e.value, scope, &kAnyWord);
        if (!value) return;
        if (const auto* w = value->as<eval::Word>()) fused_pointwise_ = w->text != "separate";
      } else if (field == "derive" || field == "context" || field == "allocator") {
        bool& to = field == "derive"    ? derive_
                   : field == "context" ? context_
                                        : inventory_.counts_blocks;
        if (const auto c = eval_.condition(*e.value, scope)) to = !is_zero(*c);
      } else if (field == "replay") {
        if (const auto c = eval_.condition(*e.value, scope)) inventory_.replay = !is_zero(*c);
      } else if (field == "reserved_factor" || field == "margin") {
        if (const auto r = eval_.constant(*e.value, scope, kCount))
          (field == "margin" ? inventory_.margin : inventory_.reserved_factor) = *r;
        if (field == "reserved_factor")
          inventory_.reserved_source =
              fmt::format("framework {}: reserved_factor", in_.framework->name);
      }
      break;
    }
    default:
      break;
  }
}

void Lowering::read_recompute(const ast::Entry& e) {
  const auto mode = std::find(modes_.begin(), modes_.end(), e.name.text);
  if (mode == modes_.end()) return;
  RecomputePolicy policy;
  for (const ast::Entry& field : e.body) {
    if (field.kind != ast::EntryKind::assign || !field.value) continue;
    const std::string& what = field.name.text;
    if (what == "keep" || what == "drop")
      policy.kind = what == "keep" ? RecomputePolicy::keep : RecomputePolicy::drop;
    if (what == "offload") inventory_.offloads_activations = true;
    std::vector<std::string>& words = what == "discard"   ? policy.discards
                                      : what == "offload" ? policy.offloads
                                                          : policy.words;
    for (const ast::Argument& a : field.value->args) words.push_back(a.value->text);
  }
  policies_[static_cast<std::size_t>(mode - modes_.begin())] = std::move(policy);
}

bool Lowering::is_frozen(const Weight& w) const {
  const Job& job = *in_.job;
  if (!job.adapt.kind.empty() && job.adapt.kind != "none") return true;
  const auto frozen = [&](std::string_view word) {
    return std::find(job.freeze.begin(), job.freeze.end(), word) != job.freeze.end();
  };
  if (frozen(w.name)) return true;
  std::string_view path = program_.blocks.empty() ? "" : std::string_view(program_.blocks[w.block]);
  while (!path.empty()) {  // "moe.mlp": frozen with either
    const std::size_t dot = path.find('.');
    if (frozen(path.substr(0, dot))) return true;
    path = dot == std::string_view::npos ? "" : path.substr(dot + 1);
  }
  return false;
}

void Lowering::find_trained() {
  for (const Weight& w : program_.weights) inventory_.facts.trained.push_back(!is_frozen(w));
}

}  // namespace plimsoll
