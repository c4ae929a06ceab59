// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include <algorithm>

#include "lang/lowering.hpp"

namespace plimsoll {

namespace {

const eval::Enumeration kAnyWord{"a word", {}};

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& w : words) text += (text.empty() ? "" : ", ") + w;
  return text;
}

}  // namespace

void Lowering::lower_ops() {
  lowered_.resize(program_.ops.size());
  for (std::uint32_t s : representatives()) {
    const Segment& segment = program_.segments[s];
    for (OpId o = segment.first_op; o < segment.first_op + segment.op_count; ++o) lower_op(o);
  }
}

bool Lowering::speaks_of(const ast::Entry& on, std::string_view op) const {
  return std::any_of(on.words.begin(), on.words.end(),
                     [&](const ast::Name& n) { return n.text == op; });
}

std::string Lowering::activation_dtype() const {
  if (in_.job->precision == "fp32" || in_.job->precision == "fp16") return in_.job->precision;
  return "bf16";
}

/// Elements of the weight that an op's first one is stored in: its own, or those of all that are
/// fused with it (they read one value).
Expr Lowering::stored_weight(OpId id) {
  const Op& op = program_.ops[id];
  if (fuse_group_[id] < 0) return shapes_->weight_elements(op.weights.front());
  Expr sum = constant(0);
  for (OpId o = 0; o < program_.ops.size(); ++o) {
    const Op& other = program_.ops[o];
    if (fuse_group_[o] == fuse_group_[id] && storage_[other.inputs[0]] == storage_[op.inputs[0]])
      sum = pool_.add(sum, shapes_->weight_elements(other.weights.front()));
  }
  return sum;
}

/// The first linear of an op's segment, of the fuse group where one is given, that reads its input.
OpId Lowering::first_of(OpId id, int group) const {
  const Op& op = program_.ops[id];
  for (OpId o = program_.segments[op.segment].first_op; o < id; ++o) {
    const Op& other = program_.ops[o];
    if (other.kind == OpKind::linear && storage_[other.inputs[0]] == storage_[op.inputs[0]] &&
        (group < 0 || fuse_group_[o] == group))
      return o;
  }
  return id;
}

void Lowering::lower_op(OpId id) {
  const Op& op = program_.ops[id];
  LoweredOp& low = lowered_[id];
  low.op = id;
  ops::Variant variant = inventory_.facts.variant;
  if (op.kind == OpKind::dropout) variant.dropout = storage_[op.output] == op.output;
  for (WeightId w : op.weights) variant.trained_weights = inventory_.facts.trained[w];
  const bool linear = op.kind == OpKind::linear;
  const std::vector<std::string>& adapted = in_.job->adapt.on;
  if (linear && std::find(adapted.begin(), adapted.end(), op.name) != adapted.end()) {
    variant.adapter_rank = in_.job->adapt.rank;
    variant.adapter_input = fuse_group_[id] < 0 || first_of(id, fuse_group_[id]) == id;
  }
  const ops::Rule rule = ops::rule(*shapes_, op, variant);
  if (derive_) {
    low.forward_temporaries = rule.forward_temporaries;
    low.backward_temporaries = rule.backward_temporaries;
  }

  PlaceScope place(scope_, *in_.framework, *in_.job, eval_);
  const eval::Scope& scope = place.all;
  for (const ops::NamedValue& v : rule.values) place.set(v.name, number(v.elements));
  place.set("name", scope_.word("name", op.name));
  place.set("expert", boolean(constant(op.experts != kNone ? 1 : 0)));
  if (!op.weights.empty()) place.set("weight", number(stored_weight(id)));
  const bool adapts = variant.adapter_rank > 0;
  place.set("adapted", boolean(constant(adapts ? 1 : 0)));
  place.set("learns", boolean(constant(variant.trained_weights || adapts ? 1 : 0)));
  place.set("first_reader", boolean(constant(linear && first_of(id, -1) == id ? 1 : 0)));
  if (op.kind == OpKind::experts || op.kind == OpKind::combine) {
    const Value& in = program_.values[op.inputs[0]];
    const Op& opening = op.kind == OpKind::experts ? op : program_.ops[in.experts];
    place.set("count", number(constant(opening.count)));
    place.set("top_k", number(constant(opening.top_k)));
    place.set("routed", number(pool_.mul(shapes_->routed(opening), shapes_->width(in))));
    place.set("permuted", number(pool_.mul(shapes_->permuted(opening), shapes_->width(in))));
  }

  std::vector<Saves> saves;
  for (const ast::Entry* on : ons_) {
    if (!speaks_of(*on, plimsoll::name(op.kind))) continue;
    const auto condition = where(on->body, eval_, scope);
    if (!condition || is_zero(*condition)) continue;
    Saves here{*condition, {}};
    for (const ast::Entry& e : on->body) {
      if (e.kind == ast::EntryKind::save) here.entries.push_back(&e);
      if (e.kind == ast::EntryKind::item) add_op_item(low, e, op, scope, *condition);
    }
    if (!here.entries.empty()) saves.push_back(std::move(here));
    low.accounts_for_all = op.kind == OpKind::cross_entropy || op.kind == OpKind::experts;
  }
  if (derive_ && (op.output == kNone || needs_gradient_[op.output]))
    save_values(low, rule, saves, scope);
}

const ops::NamedValue* Lowering::value_named(const ops::Rule& rule, std::string_view word) {
  for (const ops::NamedValue& v : rule.values)
    if (v.name == word) return &v;
  return nullptr;
}

/// The last matching `on` with saves wins; where none is certain, the op's minimal set stands
/// behind.
void Lowering::save_values(LoweredOp& low, const ops::Rule& rule, const std::vector<Saves>& saves,
                           const eval::Scope& scope) {
  const Op& op = program_.ops[low.op];
  const Expr always = constant(1);
  for (const std::string& word : rule.always)
    if (const ops::NamedValue* value = value_named(rule, word))
      save_value(low, *value, "", always, op.span);
  Expr open = always;
  for (auto s = saves.rbegin(); s != saves.rend() && !is_zero(open); ++s) {
    const Expr condition = pool_.logical_and(open, s->condition);
    std::vector<std::string> names = rule.always;
    for (const ast::Entry* e : s->entries)
      if (save_declared(low, rule, *e, scope, condition)) names.push_back(e->name.text);
    check_sufficient(op, rule, names, s->entries.front()->span);
    open = pool_.logical_and(open, pool_.logical_not(s->condition));
  }
  if (is_zero(open)) return;
  for (const std::string& word : rule.minimal)
    if (const ops::NamedValue* value = value_named(rule, word))
      save_value(low, *value, "", open, op.span);
  if (op.kind == OpKind::glu && !fused_pointwise_)
    if (const ops::NamedValue* value = value_named(rule, "activated"))
      save_value(low, *value, "", open, op.span);
}

/// One `save VALUE [: DTYPE]`; false after an error.
bool Lowering::save_declared(LoweredOp& low, const ops::Rule& rule, const ast::Entry& e,
                             const eval::Scope& scope, Expr condition) {
  const ops::NamedValue* value = value_named(rule, e.name.text);
  if (!value) {
    std::vector<std::string> known;
    for (const ops::NamedValue& v : rule.values) known.push_back(v.name);
    diags_
        .error(e.name.span, fmt::format("'{}' has no value '{}'",
                                        plimsoll::name(program_.ops[low.op].kind), e.name.text))
        .with_help(fmt::format("it has {}", join(known)));
    return false;
  }
  std::string dtype;
  if (e.value) {
    const auto word = eval_.eval(*e.value, scope, &kAnyWord);
    if (!word) return false;
    if (const auto* w = word->as<eval::Word>()) dtype = w->text;
  }
  save_value(low, *value, dtype, condition, e.span);
  return true;
}

void Lowering::save_value(LoweredOp& low, const ops::NamedValue& value, const std::string& dtype,
                          Expr condition, Span span) {
  const bool natural_type = value.dtype == "act";
  const std::string written =
      dtype.empty() ? (natural_type ? activation_dtype() : value.dtype) : dtype;
  auto bits = dtype_bits(*in_.module, written);
  if (!bits) {
    diags_.error(span, fmt::format("'{}' is not a known dtype", written))
        .with_help("declare it: dtype NAME { bits = 8 }");
    return;
  }
  // "bf16" in a framework stands for the job's activation dtype of the same width.
  const bool natural = natural_type && *bits == inventory_.facts.activation_bytes * Rational(8) &&
                       (written == "bf16" || written == "fp16" || written == "fp32");
  const auto add = [&](ValueId id, Expr elements) {
    SavedTensor t;
    t.name = value.name;
    t.value = id;
    t.dtype = id != kNone && natural ? "" : written;
    t.condition = condition;
    t.bytes = gated(condition, pool_.ceil(pool_.mul(elements, constant(*bits / Rational(8)))));
    low.saved.push_back(std::move(t));
  };
  if (value.ids.empty()) add(kNone, value.elements);
  for (ValueId id : value.ids) add(id, shapes_->elements(id));
}

void Lowering::check_sufficient(const Op& op, const ops::Rule& rule,
                                const std::vector<std::string>& names, Span span) {
  if (rule.sufficient.empty()) return;
  const auto covers = [&](const std::vector<std::string>& set) {
    return std::all_of(set.begin(), set.end(), [&](const std::string& w) {
      return std::find(names.begin(), names.end(), w) != names.end();
    });
  };
  if (std::any_of(rule.sufficient.begin(), rule.sufficient.end(), covers)) return;
  diags_
      .error(
          span,
          fmt::format(
              "framework '{}' saves too little for '{}': its backward cannot be computed from {}",
              in_.framework->name, plimsoll::name(op.kind), join(names)))
      .with_help(fmt::format("save {}", join(rule.sufficient.front())));
}

void Lowering::add_op_item(LoweredOp& low, const ast::Entry& e, const Op& op,
                           const eval::Scope& scope, Expr condition) {
  const auto own = where(e.body, eval_, scope);
  const auto bytes = item_bytes(e, scope);
  if (!own || !bytes) return;
  condition = pool_.logical_and(condition, *own);
  if (is_zero(condition)) return;
  auto row = item_row(e, Category::activations, {LifetimeKind::op, {}, {}, false, false});
  if (!row) return;
  // A buffer of the stack's own in place of what the op would have made.
  if (const std::string replaced = text_field(e.body, "replaces"); !replaced.empty())
    for (auto* list : {&low.forward_temporaries, &low.backward_temporaries})
      for (ops::Temporary& t : *list)
        if (t.name == replaced) t.bytes = gated(pool_.logical_not(condition), t.bytes);
  row->bytes = gated(condition, *bytes);
  row->place = place_of(op.segment);
  const Lifetime& life = row->lifetime;
  OpItem item;
  item.bytes = pool_.ceil(row->bytes);
  item.item = static_cast<std::uint32_t>(inventory_.items.size());
  const auto one_phase = [&](Phase p) {
    return life.kind == LifetimeKind::span && life.from == p && life.to == p;
  };
  item.kept = life.kind == LifetimeKind::microbatch ||
              (life.kind == LifetimeKind::span && life.from == Phase::forward &&
               life.to == Phase::backward);
  item.forward = life.kind == LifetimeKind::op || one_phase(Phase::forward);
  item.backward = life.kind == LifetimeKind::op || one_phase(Phase::backward);
  const bool in_trace = item.kept || item.forward || item.backward;
  if (in_trace) {
    low.items.push_back(item);
    row->combine = Combine::add;
    row->traced = true;
  }
  inventory_.items.push_back(std::move(*row));
}

}  // namespace plimsoll
