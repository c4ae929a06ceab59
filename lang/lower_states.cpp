// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include <algorithm>

#include "lang/lowering.hpp"

/// Weights, gradients, masters (the framework's) and moments (the optimizer's). Dense states are
/// divided by `shard`, experts' by `expert_shard`, from a zero stage on: 1 masters and moments, 2
/// gradients, 3 weights. A state's bytes are summed over the stage exactly and rounded up once
/// (flat buffers).
namespace plimsoll {

namespace {
const eval::Enumeration kAnyWord{"a word", {}};
}

Lowering::StateRow Lowering::state_row(const ast::Entry& e, bool of_framework) const {
  if (of_framework && e.name.text == "weight") return {&e, Category::weights, false, 3, true};
  if (of_framework && e.name.text == "grad") return {&e, Category::gradients, true, 2, true};
  if (of_framework && e.name.text == "master") return {&e, Category::master, true, 1, true};
  return {&e, Category::moments, true, 1, of_framework};
}

void Lowering::lower_states() {
  for (const auto& [entry, of_framework] : states_) lower_state(state_row(*entry, of_framework));
  inventory_.weight_elements.assign(representatives().size(), constant(0));
  for (std::size_t r = 0; r < representatives().size(); ++r) {
    const Segment& s = program_.segments[representatives()[r]];
    for (OpId o = s.first_op; o < s.first_op + s.op_count; ++o)
      for (WeightId w : program_.ops[o].weights)
        if (program_.weights[w].tied_to == kNone)
          inventory_.weight_elements[r] =
              pool_.add(inventory_.weight_elements[r], shapes_->weight_elements(w));
  }
  add_adapters();
}

const Behaviour& Lowering::owner_of_state(const StateRow& row) const {
  return row.of_framework ? *in_.framework : *in_.optimizer;
}

std::string Lowering::state_name(const StateRow& row, bool expert) const {
  std::string text;
  switch (row.category) {
    case Category::weights:
      text = "weights";
      break;
    case Category::gradients:
      text = "gradients";
      break;
    case Category::master:
      text = "master weights";
      break;
    default:
      text = fmt::format("{} {}", in_.job->optimizer, row.entry->name.text);
  }
  return expert ? "experts' " + text : text;
}

Expr Lowering::shard(int from, bool expert) {
  const Expr zero = pool_.variable(Var::zero);
  return pool_.select(pool_.less_equal(constant(from), zero),
                      pool_.variable(expert ? Var::expert_shard : Var::shard), constant(1));
}

/// Bytes of one weight's state on a rank before any shard, as an exact rational; 0 where it has
/// none.
std::optional<Expr> Lowering::state_bytes(const StateRow& row, WeightId id, std::string& dtype) {
  const Weight& w = program_.weights[id];
  const bool trained = inventory_.facts.trained[id];
  if (row.trained_only && !trained) return constant(0);
  PlaceScope place(scope_, owner_of_state(row), *in_.job, eval_);
  const eval::Scope& scope = place.all;
  place.set("numel", number(constant(w.rows * w.cols)));
  place.set("dims", number(constant(w.dims)));
  place.set("rows", number(shapes_->weight_rows(id)));
  place.set("cols", number(shapes_->weight_cols(id)));
  place.set("role", scope_.word("role", std::string(name(w.role))));
  place.set("name", scope_.word("name", w.name));
  place.set("trained", boolean(constant(trained ? 1 : 0)));
  const auto condition = where(row.entry->body, eval_, scope);
  if (!condition) return std::nullopt;
  if (is_zero(*condition)) return constant(0);
  const auto word = eval_.eval(*row.entry->value, scope, &kAnyWord);
  if (!word) return std::nullopt;
  const auto* text = word->as<eval::Word>();
  if (!text) {
    diags_.error(row.entry->value->span, fmt::format("expected a dtype, got {}", word->kind()))
        .with_help("for example fp32, or if(precision == fp16, fp16, fp32)");
    return std::nullopt;
  }
  dtype = text->text == "fp8" && row.category == Category::weights ? "bf16" : text->text;
  if (row.category == Category::gradients && !in_.job->grads.empty()) dtype = in_.job->grads;
  if (row.category == Category::weights && !trained && in_.job->adapt.kind == "qlora" &&
      (w.role == Role::linear || w.role == Role::expert))
    dtype = in_.job->adapt.base.empty() ? "nf4" : in_.job->adapt.base;
  const auto bits = dtype_bits(*in_.module, dtype);
  if (!bits) {
    diags_.error(row.entry->value->span, fmt::format("'{}' is not a known dtype", dtype))
        .with_help("declare it: dtype NAME { bits = 8 }");
    return std::nullopt;
  }
  Expr elements = shapes_->weight_elements(id);
  if (const ast::Expr* e = field(row.entry->body, "elements")) {
    const auto given = eval_.count(*e, scope);
    if (!given) return std::nullopt;
    elements = pool_.mul(*given, shapes_->weight_copies(id));
  }
  return gated(*condition, pool_.mul(elements, constant(*bits / Rational(8))));
}

void Lowering::lower_state(const StateRow& row) {
  for (std::uint32_t s : representatives()) {
    const Segment& segment = program_.segments[s];
    Expr sum[2] = {constant(0), constant(0)};
    std::string dtypes[2];
    for (OpId o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
      for (WeightId w : program_.ops[o].weights) {
        std::string dtype;
        const auto bytes = state_bytes(row, w, dtype);
        if (!bytes) return;
        if (is_zero(*bytes)) continue;
        if (program_.weights[w].tied_to != kNone) {
          add_tied_state(row, s, w, *bytes, dtype);
          continue;
        }
        const bool expert = program_.weights[w].experts != kNone;
        sum[expert] = pool_.add(sum[expert], *bytes);
        std::string& known = dtypes[expert];
        known = known.empty() || known == dtype ? dtype : "mixed";
      }
    }
    for (const bool expert : {false, true})
      if (!is_zero(sum[expert])) add_state(row, s, expert, sum[expert], dtypes[expert]);
  }
}

void Lowering::add_state(const StateRow& row, std::uint32_t segment, bool expert, Expr bytes,
                         const std::string& dtype) {
  Item item;
  item.name = state_name(row, expert);
  item.category = row.category;
  item.dtype = dtype;
  item.bytes = bytes;
  if (row.category == Category::master || row.category == Category::moments)
    item.bytes = pool_.mul(item.bytes, pool_.sub(constant(1), pool_.variable(Var::offload)));
  item.shard = shard(row.shard_from, expert);
  const LifetimeKind usual =
      row.category == Category::moments ? LifetimeKind::from_first_step : LifetimeKind::always;
  item.lifetime = lifetime_of(row.entry->body, {usual, {}, {}, false, false}, diags_);
  item.place = place_of(segment);
  item.stream = text_field(row.entry->body, "stream");
  item.source = text_field(row.entry->body, "source");
  if (item.source.empty())
    item.source =
        row.category == Category::moments
            ? fmt::format("optimizer {}, state {}", in_.job->optimizer, row.entry->name.text)
            : fmt::format("framework {}, state {}", in_.framework->name, row.entry->name.text);
  item.origin = row.entry->span;
  inventory_.items.push_back(std::move(item));
}

/// The segment that owns what a weight of \a segment is tied to; kNone where it is its own.
std::uint32_t Lowering::segment_of_owner(WeightId w, std::uint32_t segment) const {
  WeightId owner = program_.weights[w].tied_to;
  if (owner == kNone) return kNone;
  while (program_.weights[owner].tied_to != kNone) owner = program_.weights[owner].tied_to;
  for (const Op& op : program_.ops)
    if (std::find(op.weights.begin(), op.weights.end(), owner) != op.weights.end())
      return op.segment == segment ? kNone : op.segment;
  return kNone;
}

/// A tied weight on another stage is a copy with its own gradient and states; on the owner's stage
/// it is the same storage.
void Lowering::add_tied_state(const StateRow& row, std::uint32_t segment, WeightId w, Expr bytes,
                              const std::string& dtype) {
  const std::uint32_t owner = segment_of_owner(w, segment);
  if (owner == kNone) return;
  add_state(row, segment, false, bytes, dtype);
  inventory_.items.back().name += " of the tied copy";
  inventory_.items.back().absent_with = owner;
}

/// LoRA: a linear of in x out gets factors in x r and r x out, both trained; the factor on the
/// divided side is divided with it.
void Lowering::add_adapters() {
  const Adapter& adapt = in_.job->adapt;
  if (adapt.kind.empty() || adapt.kind == "none") return;
  for (std::uint32_t s : representatives()) {
    Expr elements = constant(0);
    const Segment& segment = program_.segments[s];
    for (OpId o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
      const Op& op = program_.ops[o];
      if (op.kind != OpKind::linear ||
          std::find(adapt.on.begin(), adapt.on.end(), op.name) == adapt.on.end())
        continue;
      const WeightId w = op.weights.front();
      const Expr sides = pool_.add(shapes_->weight_rows(w), shapes_->weight_cols(w));
      elements = pool_.add(
          elements, pool_.mul(pool_.mul(sides, constant(adapt.rank)), shapes_->weight_copies(w)));
    }
    if (is_zero(elements)) continue;
    for (const auto& [entry, of_framework] : states_) {
      const StateRow row = state_row(*entry, of_framework);
      PlaceScope place(scope_, owner_of_state(row), *in_.job, eval_);
      const eval::Scope& scope = place.all;
      place.set("numel", number(constant(1 << 20)));
      place.set("dims", number(constant(2)));
      place.set("rows", number(constant(adapt.rank)));
      place.set("cols", number(constant(adapt.rank)));
      place.set("role", scope_.word("role", "linear"));
      place.set("name", scope_.word("name", "adapter"));
      place.set("trained", boolean(constant(1)));
      const auto condition = where(entry->body, eval_, scope);
      const auto word = eval_.eval(*entry->value, scope, &kAnyWord);
      if (!condition || !word || is_zero(*condition)) continue;
      const auto* text = word->as<eval::Word>();
      const auto bits = text ? dtype_bits(*in_.module, text->text) : std::nullopt;
      if (!bits) continue;
      add_state(row, s, false, pool_.mul(elements, constant(*bits / Rational(8))), text->text);
      inventory_.items.back().name = "adapters' " + state_name(row, false);
    }
  }
}

}  // namespace plimsoll
