// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/ops/family.hpp"

namespace plimsoll::ops {

/// y = x W + b. The weight's gradient needs x, x's gradient needs W alone, the bias's the output's
/// gradient (ACCOUNTING.md A.1: the output is never saved by the linear, a frozen one saves
/// nothing).
void linear(Writer& w) {
  const Value& in = w.input();
  const Value& out = w.output();
  w.name_inputs();
  w.name_output();
  if (w.variant.trained_weights) {
    w.needs({"input"});
  } else {
    w.needs({});
    w.suffices({"input"});
  }

  // A column-split linear sees every token of its ranks; inside experts, rows were gathered before.
  const Expr rows = w.op.split == Split::column ? w.shapes.tokens(out) : w.shapes.tokens(in);
  Product product{rows, w.shapes.width(out), w.shapes.width(in), w.number(1)};
  if (in.experts != kNone) {
    const Expr local =
        w.pool.ceil_div(w.number(w.program.ops[in.experts].count), w.pool.variable(Var::ep));
    product.m = w.pool.div(rows, local);
    product.count = local;
  }
  w.rule.products.push_back(product);

  if (in.experts != kNone) return;  // experts and combine move rows between ranks
  if (w.op.split == Split::column && w.sequence_sharded(in)) w.gather_input();
  if (w.op.split == Split::row) w.reduce_output();
}

}  // namespace plimsoll::ops
