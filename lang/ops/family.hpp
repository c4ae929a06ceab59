// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <array>
#include <string>
#include <vector>

#include "lang/ops/rule.hpp"
#include "lang/ops/traffic.hpp"

/// What the rules of all families share: private to lang/ops/*.cpp.
namespace plimsoll::ops {

/// A rule while it is written.
class Writer {
 public:
  Writer(const Shapes& op_shapes, const Op& op_, const Variant& variant_)
      : shapes(op_shapes),
        pool(op_shapes.pool()),
        program(op_shapes.program()),
        op(op_),
        variant(variant_) {}

  const Shapes& shapes;
  ExprPool& pool;
  const Program& program;
  const Op& op;
  const Variant& variant;
  Rule rule;

  const Value& input(std::size_t i = 0) const { return program.values[op.inputs[i]]; }
  const Value& output() const { return program.values[op.output]; }
  const Weight& weight(std::size_t i = 0) const { return program.weights[op.weights[i]]; }
  bool has_output() const { return op.output != kNone; }

  Expr number(const Rational& n) { return pool.constant(n); }
  Expr times(const Rational& n, Expr e) { return pool.mul(pool.constant(n), e); }
  /// Bytes of so many activation elements.
  Expr bytes(Expr elements) { return times(variant.activation_bytes, elements); }
  /// The activation between ranks that hold parts of the sequence: T tokens in all of them.
  bool sequence_sharded(const Value& v) const { return v.sequence_sharded && v.experts == kNone; }
  /// 1 where sequence parallelism divides tokens among several ranks.
  Expr sequence_parallel() {
    return pool.logical_and(pool.variable(Var::sp),
                            pool.less_equal(pool.constant(2), pool.variable(Var::tp)));
  }
  Expr if_sequence_parallel(Expr then) {
    return pool.select(sequence_parallel(), then, pool.constant(0));
  }
  Expr unless_sequence_parallel(Expr then) {
    return pool.select(sequence_parallel(), pool.constant(0), then);
  }
  /// Elements of a value before the sequence is divided over tp.
  Expr full_elements(const Value& v) {
    return pool.mul(sequence_sharded(v) ? shapes.full_tokens(v.tokens) : shapes.tokens(v),
                    shapes.width(v));
  }

  /// All inputs under one name, all of them saved or none.
  void name_inputs(const char* name = "input");
  void name_value(const char* name, ValueId);
  void name_output() { name_value("output", op.output); }
  void name_own(const char* name, Expr elements, const char* dtype = "act");

  void suffices(std::vector<std::string> names) { rule.sufficient.push_back(std::move(names)); }
  /// The first sufficient set, and what plain keeps.
  void needs(std::vector<std::string> names) {
    rule.minimal = names;
    rule.sufficient.insert(rule.sufficient.begin(), std::move(names));
  }

  void forward_temporary(const char* name, Expr size) {
    rule.forward_temporaries.push_back({name, size});
  }
  void backward_temporary(const char* name, Expr size) {
    rule.backward_temporaries.push_back({name, size});
  }
  void forward_collective(CollectiveKind kind, Group group, Expr size) {
    rule.forward_collectives.push_back({kind, group, size});
  }
  void backward_collective(CollectiveKind kind, Group group, Expr size) {
    rule.backward_collectives.push_back({kind, group, size});
  }
  /// Traffic of `passes` over so many activation elements; backward so many times that.
  void traffic(const Rational& passes, Expr elements, const Rational& backward = kBackward);
  /// Is this the first op of its segment that takes its input across a column-split region's edge?
  /// Others that read the same value use what it gathered, and add to the gradient it reduces.
  bool first_reader() const;

  /// A sum of partial results (row-split, vocabulary-split) goes out over tp.
  void reduce_output();
  /// A whole input enters a column-split region.
  void gather_input();
};

void embedding(Writer&);
void merge(Writer&);
void learned_positions(Writer&);
void relative_bias(Writer&);
void source(Writer&);
void linear(Writer&);
void norm(Writer&);
void attention(Writer&);
void rope(Writer&);
void unary(Writer&);
void add(Writer&);
void mul(Writer&);
void glu(Writer&);
void concat(Writer&);
void dropout(Writer&);
void experts(Writer&);
void combine(Writer&);
void mamba2(Writer&);
void cross_entropy(Writer&);

}  // namespace plimsoll::ops
