// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/ops/family.hpp"

namespace plimsoll::ops {

/// y = x W + b. The weight's gradient needs x, x's gradient needs W alone, the bias's the output's
/// gradient (ACCOUNTING.md A.1: the output is never saved by the linear, a frozen one saves
/// nothing). An adapter x A B beside a frozen weight needs x, or a copy of its own with dropout's
/// mask, and x A.
void linear(Writer& w) {
  const Value& in = w.input();
  const Value& out = w.output();
  w.name_inputs();
  w.name_output();
  const bool adapts = w.variant.adapter_rank > 0;
  const Expr dropped =
      adapts && w.variant.adapter_input ? w.shapes.elements(w.op.inputs[0]) : w.number(0);
  w.name_own("dropped", dropped);
  w.name_own("dropped_mask", dropped, "int8");
  w.name_own("low", w.times(w.variant.adapter_rank, w.shapes.tokens(in)));
  if (adapts) {
    w.rule.always = {"low"};
    w.suffices({"dropped", "dropped_mask"});
  }
  if (w.variant.trained_weights || adapts) {
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
