// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/ops/family.hpp"

namespace plimsoll::ops {

/// The mean of -log softmax(logits)[target]. Backward is softmax minus one at the target: from the
/// logits, or the softmax in their place (a framework's dtype and copies: ACCOUNTING.md A.3). Over
/// a divided vocabulary the maximum, the sum and the target's logit are reduced, 4 B a token each.
void cross_entropy(Writer& w) {
  const Value& logits = w.input();
  const Expr tokens = w.shapes.tokens(logits);
  w.name_inputs("logits");
  w.name_inputs();
  w.name_own("targets", tokens, "int64");
  w.needs({"logits"});
  w.suffices({"input"});
  w.traffic(kLossPasses, w.shapes.elements(w.op.inputs[0]), 1);
  if (logits.split == Split::column)
    w.forward_collective(CollectiveKind::all_reduce, Group::tp, w.times(3 * 4, tokens));
}

}  // namespace plimsoll::ops
