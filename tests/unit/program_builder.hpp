// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lang/expr.hpp"
#include "lang/program.hpp"

namespace plimsoll {

/// Tensor programs written by hand, as the elaborator would make them: for tests of ops alone.
struct ProgramBuilder {
  ExprPool& pool;
  Program program;

  explicit ProgramBuilder(ExprPool& p) : pool(p) { begin(false); }

  void begin(bool is_layer) {
    Segment segment;
    segment.is_layer = is_layer;
    segment.first_op = static_cast<OpId>(program.ops.size());
    segment.layer = program.layer_count;
    if (is_layer) ++program.layer_count;
    program.segments.push_back(segment);
  }
  ValueId value(std::int64_t width, Split split = Split::none, std::int64_t units = 0) {
    Value v;
    v.tokens = pool.variable(Var::seq);
    v.width = width;
    v.split = split;
    v.units = units;
    v.sequence_sharded = split != Split::column;
    program.values.push_back(v);
    return static_cast<ValueId>(program.values.size() - 1);
  }
  /// Appends the op; its output is a new value like its first input but for `width` and `split`.
  ValueId op(Op o, std::int64_t width, Split split, std::int64_t units = 0) {
    o.output = value(width, split, units);
    Value& v = program.values[o.output];
    v.producer = static_cast<OpId>(program.ops.size());
    if (!o.inputs.empty()) {
      const Value& first = program.values[o.inputs[0]];
      v.tokens = first.tokens;
      v.experts = first.experts;
      if (split == first.split) v.sequence_sharded = first.sequence_sharded;
    }
    const ValueId out = o.output;
    push(std::move(o));
    return out;
  }
  void push(Op o) {
    o.segment = static_cast<std::uint32_t>(program.segments.size() - 1);
    program.ops.push_back(std::move(o));
    ++program.segments.back().op_count;
  }
  const Value& at(ValueId v) const { return program.values[v]; }

  WeightId weight(std::string name, Role role, std::int64_t rows, std::int64_t cols, Split split,
                  std::int64_t units = 0) {
    Weight w;
    w.name = std::move(name);
    w.role = role;
    w.rows = rows;
    w.cols = cols;
    w.dims = rows == 1 ? 1 : 2;
    w.split = split;
    w.units = units;
    program.weights.push_back(w);
    return static_cast<WeightId>(program.weights.size() - 1);
  }

  ValueId embedding(std::int64_t vocab, std::int64_t width) {
    Op o;
    o.kind = OpKind::embedding;
    o.split = Split::row;
    o.vocab = vocab;
    o.weights = {weight("", Role::embedding, vocab, width, Split::row)};
    program.weights.back().vocabulary = true;
    return op(o, width, Split::none);
  }
  ValueId linear(ValueId x, std::int64_t out, Split split, std::string name,
                 std::int64_t units = 0) {
    Op o;
    o.kind = OpKind::linear;
    o.name = name;
    o.inputs = {x};
    o.split = split;
    o.units = units;
    const Role role = name == "head"           ? Role::head
                      : at(x).experts != kNone ? Role::expert
                                               : Role::linear;
    o.weights = {weight(name, role, at(x).width, out, split, units)};
    Weight& w = program.weights.back();
    w.vocabulary = name == "head";
    w.experts = at(x).experts;
    if (w.experts != kNone) w.copies = program.ops[w.experts].count;
    return op(o, out, split == Split::column ? Split::column : Split::none, units);
  }
  ValueId unary(OpKind kind, ValueId x, std::int64_t groups = 1) {
    Op o;
    o.kind = kind;
    o.inputs = {x};
    o.groups = groups;
    o.p = -1;
    if (kind == OpKind::rmsnorm || kind == OpKind::layernorm)
      o.weights = {weight("", Role::norm, 1, at(x).width / groups, Split::none)};
    return op(o, at(x).width, at(x).split, at(x).units);
  }
  ValueId binary(OpKind kind, ValueId a, ValueId b) {
    Op o;
    o.kind = kind;
    o.inputs = {a, b};
    return op(o, at(a).width, at(a).split, at(a).units);
  }
  ValueId attention(ValueId q, ValueId k, ValueId v, std::int64_t heads, std::int64_t kv_heads) {
    Op o;
    o.kind = OpKind::attention;
    o.inputs = {q, k, v};
    o.heads = heads;
    o.kv_heads = kv_heads;
    o.q_width = at(q).width / heads;
    o.k_width = at(k).width / kv_heads;
    o.v_width = at(v).width / kv_heads;
    o.causal = true;
    return op(o, heads * o.v_width, Split::column, heads);
  }
  void cross_entropy(ValueId logits, std::int64_t vocab) {
    Op o;
    o.kind = OpKind::cross_entropy;
    o.inputs = {logits};
    o.vocab = vocab;
    push(std::move(o));
  }
};

struct Shape {
  std::int64_t hidden, heads, kv_heads, ffn, vocab;
};

/// One Llama layer (RMSNorm, RoPE, GQA, SwiGLU).
inline ValueId llama_layer(ProgramBuilder& b, ValueId x, const Shape& s) {
  const std::int64_t d = s.hidden / s.heads;
  const ValueId n = b.unary(OpKind::rmsnorm, x);
  const ValueId q = b.unary(OpKind::rope, b.linear(n, s.heads * d, Split::column, "q", s.heads));
  const ValueId k =
      b.unary(OpKind::rope, b.linear(n, s.kv_heads * d, Split::column, "k", s.kv_heads));
  const ValueId v = b.linear(n, s.kv_heads * d, Split::column, "v", s.kv_heads);
  const ValueId a = b.attention(q, k, v, s.heads, s.kv_heads);
  const ValueId y = b.binary(OpKind::add, x, b.linear(a, s.hidden, Split::row, "o"));
  const ValueId m = b.unary(OpKind::rmsnorm, y);
  const ValueId g = b.linear(m, s.ffn, Split::column, "gate");
  const ValueId u = b.linear(m, s.ffn, Split::column, "up");
  const ValueId f = b.linear(b.binary(OpKind::glu, g, u), s.hidden, Split::row, "down");
  return b.binary(OpKind::add, y, f);
}

/// One layer of the textbook GPT (LayerNorm, GELU, dropout).
inline ValueId gpt_layer(ProgramBuilder& b, ValueId x, std::int64_t h, std::int64_t heads,
                         OpKind activation = OpKind::gelu) {
  const ValueId n = b.unary(OpKind::layernorm, x);
  const ValueId q = b.linear(n, h, Split::column, "q", heads);
  const ValueId k = b.linear(n, h, Split::column, "k", heads);
  const ValueId v = b.linear(n, h, Split::column, "v", heads);
  const ValueId a = b.linear(b.attention(q, k, v, heads, heads), h, Split::row, "o");
  const ValueId y = b.binary(OpKind::add, x, b.unary(OpKind::dropout, a));
  const ValueId g =
      b.unary(activation, b.linear(b.unary(OpKind::layernorm, y), 4 * h, Split::column, "up"));
  const ValueId f = b.linear(g, h, Split::row, "down");
  return b.binary(OpKind::add, y, b.unary(OpKind::dropout, f));
}

}  // namespace plimsoll
