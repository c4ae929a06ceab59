// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/ops/rule.hpp"

#include "lang/diagnostics.hpp"
#include "lang/ops/family.hpp"

namespace plimsoll::ops {

void Writer::name_inputs(const char* name) {
  NamedValue value{name, op.inputs, pool.constant(0), "act"};
  std::vector<Expr> parts;
  for (const ValueId id : op.inputs) parts.push_back(shapes.elements(id));
  value.elements = pool.sum(parts);
  rule.values.push_back(std::move(value));
}

void Writer::name_value(const char* name, ValueId id) {
  rule.values.push_back({name, {id}, shapes.elements(id), "act"});
}

void Writer::name_own(const char* name, Expr elements, const char* dtype) {
  rule.values.push_back({name, {}, elements, dtype});
}

void Writer::traffic(const Rational& passes, Expr elements, const Rational& backward) {
  rule.bytes_forward = pool.add(rule.bytes_forward, times(passes, bytes(elements)));
  rule.bytes_backward = pool.add(rule.bytes_backward, times(passes * backward, bytes(elements)));
}

bool Writer::first_reader() const {
  for (OpId id = program.segments.empty() ? 0 : program.segments[op.segment].first_op;
       id < program.ops.size(); ++id) {
    const Op& other = program.ops[id];
    if (&other == &op) return true;
    if (other.kind == OpKind::linear && other.split == Split::column && !other.inputs.empty() &&
        other.inputs[0] == op.inputs[0])
      return false;
  }
  return true;
}

/// MEGATRON.md §6.4, ACCOUNTING.md A.1: with sequence parallelism the whole sum exists until its
/// reduce-scatter, and backward gathers the output's gradient; without, it is reduced in place.
void Writer::reduce_output() {
  const Expr whole = bytes(full_elements(output()));
  forward_temporary("output before its reduce-scatter", if_sequence_parallel(whole));
  backward_temporary("gathered gradient of the output", if_sequence_parallel(whole));
  forward_collective(CollectiveKind::reduce_scatter, Group::tp, if_sequence_parallel(whole));
  forward_collective(CollectiveKind::all_reduce, Group::tp, unless_sequence_parallel(whole));
  backward_collective(CollectiveKind::all_gather, Group::tp, if_sequence_parallel(whole));
}

/// The same places: the input is gathered, and again in backward for the weight's gradient, where
/// the whole gradient of the input exists until its reduce-scatter.
void Writer::gather_input() {
  const Expr whole = bytes(full_elements(input()));
  const bool again = variant.trained_weights;
  forward_temporary("gathered input", if_sequence_parallel(whole));
  if (again) backward_temporary("gathered input", if_sequence_parallel(whole));
  backward_temporary("gradient of the input before its reduce-scatter",
                     if_sequence_parallel(whole));
  if (!first_reader()) return;
  forward_collective(CollectiveKind::all_gather, Group::tp, if_sequence_parallel(whole));
  if (again)
    backward_collective(CollectiveKind::all_gather, Group::tp, if_sequence_parallel(whole));
  backward_collective(CollectiveKind::reduce_scatter, Group::tp, if_sequence_parallel(whole));
  backward_collective(CollectiveKind::all_reduce, Group::tp, unless_sequence_parallel(whole));
}

namespace {

void write(Writer& w) {
  switch (w.op.kind) {
    case OpKind::embedding:
      return embedding(w);
    case OpKind::input:
      return source(w);
    case OpKind::merge:
      return merge(w);
    case OpKind::learned_positions:
      return learned_positions(w);
    case OpKind::relative_bias:
      return relative_bias(w);
    case OpKind::rope:
      return rope(w);
    case OpKind::linear:
      return linear(w);
    case OpKind::rmsnorm:
    case OpKind::layernorm:
      return norm(w);
    case OpKind::attention:
      return attention(w);
    case OpKind::gelu:
    case OpKind::relu:
    case OpKind::squared_relu:
    case OpKind::silu:
    case OpKind::tanh:
    case OpKind::softcap:
      return unary(w);
    case OpKind::add:
      return add(w);
    case OpKind::mul:
      return mul(w);
    case OpKind::glu:
      return glu(w);
    case OpKind::concat:
      return concat(w);
    case OpKind::dropout:
      return dropout(w);
    case OpKind::experts:
      return experts(w);
    case OpKind::combine:
      return combine(w);
    case OpKind::mamba2:
      return mamba2(w);
    case OpKind::cross_entropy:
      return cross_entropy(w);
  }
  PLIMSOLL_ASSERT(false);
}

/// Arithmetic from the products: backward has the gradients of both factors, or of the input alone
/// where the weight is frozen; attention's backward is twice its forward, recomputed scores not
/// counted.
void count_flops(Writer& w) {
  std::vector<Expr> parts;
  for (const Product& p : w.rule.products)
    parts.push_back(w.pool.product(std::array{w.number(2), p.m, p.n, p.k, p.count}));
  const Expr products = w.pool.sum(parts);
  w.rule.flops_forward = w.pool.add(products, w.rule.attention_flops);
  w.rule.flops_backward = w.pool.add(w.times(w.variant.trained_weights ? 2 : 1, products),
                                     w.times(2, w.rule.attention_flops));
}

}  // namespace

Rule rule(const Shapes& shapes, const Op& op, const Variant& variant) {
  Writer writer(shapes, op, variant);
  write(writer);
  count_flops(writer);
  return std::move(writer.rule);
}

}  // namespace plimsoll::ops
