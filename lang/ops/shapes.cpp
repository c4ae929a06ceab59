// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <array>

#include "lang/diagnostics.hpp"
#include "lang/ops/rule.hpp"

namespace plimsoll::ops {

namespace {

/// Is the value's width the vocabulary (logits, and what is made of them element by element)?
bool is_vocabulary(const Program& program, const Value& value) {
  const Value* v = &value;
  while (v->producer != kNone) {
    const Op& op = program.ops[v->producer];
    if (op.kind == OpKind::linear)
      return !op.weights.empty() && program.weights[op.weights[0]].vocabulary;
    const bool elementwise = op.kind == OpKind::softcap || op.kind == OpKind::tanh ||
                             op.kind == OpKind::mul || op.kind == OpKind::add ||
                             op.kind == OpKind::dropout;
    if (!elementwise || op.inputs.empty()) return false;
    v = &program.values[op.inputs[0]];
  }
  return false;
}

/// Which side of a weight is the vocabulary: an embedding's rows, a head's columns.
bool vocabulary_in_rows(const Weight& w) {
  return w.dims > 1 && (w.split == Split::row || w.role == Role::embedding);
}

}  // namespace

Expr Shapes::full_tokens(Expr tokens_a_sequence) const {
  return pool_.div(pool_.mul(pool_.variable(Var::mbs), tokens_a_sequence), pool_.variable(Var::cp));
}

Expr Shapes::sharded_tokens(Expr tokens_a_sequence) const {
  const Expr full = full_tokens(tokens_a_sequence);
  return pool_.select(pool_.variable(Var::sp), pool_.div(full, pool_.variable(Var::tp)), full);
}

Expr Shapes::tokens(const Value& v) const {
  if (v.experts != kNone) return routed(program_.ops[v.experts]);
  return v.sequence_sharded ? sharded_tokens(v.tokens) : full_tokens(v.tokens);
}

Expr Shapes::width(const Value& v) const {
  const Expr ranks = tensor_ranks(v.experts);
  if (is_vocabulary(program_, v)) {
    const Expr padded = padded_vocabulary(v.width);
    return v.split == Split::column ? pool_.div(padded, ranks) : padded;
  }
  if (v.split != Split::column) return pool_.constant(v.width);
  return share(v.width, v.units, ranks);
}

Expr Shapes::elements(ValueId id) const {
  const Value& v = program_.values[id];
  return pool_.mul(tokens(v), width(v));
}

Expr Shapes::permuted(const Op& experts) const {
  PLIMSOLL_ASSERT(experts.kind == OpKind::experts);
  const Expr chosen =
      pool_.mul(tokens(program_.values[experts.inputs[0]]), pool_.constant(experts.top_k));
  if (experts.capacity.is_zero()) return chosen;
  const Expr count = pool_.constant(experts.count);
  const Expr capacity = pool_.constant(experts.capacity);
  return pool_.mul(pool_.ceil_div(pool_.mul(capacity, chosen), count), count);
}

Expr Shapes::routed(const Op& experts) const {
  const Expr balanced = pool_.mul(permuted(experts), pool_.variable(Var::etp));
  if (imbalance_ == 1 || !experts.capacity.is_zero()) return balanced;
  return pool_.ceil(pool_.mul(pool_.constant(imbalance_), balanced));
}

Expr Shapes::tensor_ranks(OpId experts) const {
  return pool_.variable(experts == kNone ? Var::tp : Var::etp);
}

Expr Shapes::share(std::int64_t n, std::int64_t units, Expr ranks) const {
  if (units == 0) return pool_.div(pool_.constant(n), ranks);
  const Expr each = pool_.constant(Rational::fraction(n, units));
  return pool_.mul(each, pool_.ceil_div(pool_.constant(units), ranks));
}

Expr Shapes::padded_vocabulary(std::int64_t vocab) const {
  return pool_.mul(pool_.ceil_div(pool_.constant(vocab), vocab_multiple_), vocab_multiple_);
}

Expr Shapes::weight_rows(WeightId id) const {
  const Weight& w = program_.weights[id];
  const bool padded = w.vocabulary && vocabulary_in_rows(w);
  const Expr ranks = tensor_ranks(w.experts);
  if (w.split != Split::row) return padded ? padded_vocabulary(w.rows) : pool_.constant(w.rows);
  return padded ? pool_.div(padded_vocabulary(w.rows), ranks) : share(w.rows, w.units, ranks);
}

Expr Shapes::weight_cols(WeightId id) const {
  const Weight& w = program_.weights[id];
  const bool padded = w.vocabulary && !vocabulary_in_rows(w);
  const Expr ranks = tensor_ranks(w.experts);
  if (w.split != Split::column) return padded ? padded_vocabulary(w.cols) : pool_.constant(w.cols);
  return padded ? pool_.div(padded_vocabulary(w.cols), ranks) : share(w.cols, w.units, ranks);
}

Expr Shapes::weight_copies(WeightId id) const {
  const Weight& w = program_.weights[id];
  if (w.experts == kNone) return pool_.constant(w.copies);
  return pool_.ceil_div(pool_.constant(w.copies), pool_.variable(Var::ep));
}

Expr Shapes::weight_elements(WeightId id) const {
  return pool_.product(std::array{weight_rows(id), weight_cols(id), weight_copies(id)});
}

}  // namespace plimsoll::ops
