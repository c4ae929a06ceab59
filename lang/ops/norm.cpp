// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/ops/family.hpp"

namespace plimsoll::ops {

/// Statistics are fp32: 1/rms (RMSNorm) or mean and 1/deviation (LayerNorm) a token and group
/// (ACCOUNTING.md A.1). They can be had again from the input; with them the output (its weight
/// divided out) or the normalized value serves as well as the input.
void norm(Writer& w) {
  const Value& in = w.input();
  Expr groups = w.number(w.op.groups);
  if (in.split == Split::column && w.op.groups > 1)
    groups = w.shapes.share(w.op.groups, w.op.groups, w.shapes.tensor_ranks(in.experts));
  const int each = w.op.kind == OpKind::layernorm ? 2 : 1;
  const Expr stats = w.pool.product(std::array{w.number(each), groups, w.shapes.tokens(in)});
  w.name_inputs();
  w.name_output();
  w.name_own("stats", stats, "fp32");
  w.name_own("normalized", w.shapes.elements(w.op.inputs[0]));
  w.needs({"input"});
  w.suffices({"output", "stats"});
  w.suffices({"normalized", "stats"});
  w.traffic(kNormPasses, w.shapes.elements(w.op.inputs[0]));
  if (in.split == Split::column && w.op.groups == 1) {  // sums over the whole width: all ranks
    const Group group = in.experts == kNone ? Group::tp : Group::etp;
    w.forward_collective(CollectiveKind::all_reduce, group, w.times(4, stats));
    w.backward_collective(CollectiveKind::all_reduce, group, w.times(4, stats));
  }
}

}  // namespace plimsoll::ops
