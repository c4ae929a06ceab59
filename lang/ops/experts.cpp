// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/ops/family.hpp"

namespace plimsoll::ops {

/// Routes tokens: logits of a linear router, scores (softmax or sigmoid), the top k of them, and
/// the rows sent to the ranks of their experts. Names as in MEGATRON.md §4: logits, scores, probs
/// and map are dense (a token and expert), indices one a routed row; `permuted` are the rows sent,
/// `routed` those received. The scores and the map (or indices) give the routing back. The router
/// is a linear of its own and keeps its input as every linear does. Copies on the way are the
/// framework's items.
void experts(Writer& w) {
  const Expr tokens = w.shapes.tokens(w.input());
  const Expr dense = w.times(w.op.count, tokens);
  const Expr sent = w.shapes.permuted(w.op);
  const Expr received = w.shapes.routed(w.op);
  const Expr width = w.shapes.width(w.input());
  w.name_inputs();
  w.name_own("logits", dense, "fp32");
  w.name_own("scores", dense, "fp32");
  w.name_own("probs", dense, "fp32");
  w.name_own("map", dense, "int8");
  w.name_own("indices", sent, "int64");
  w.name_own("permuted", w.pool.mul(sent, width));
  w.name_value("routed", w.op.output);
  w.name_output();
  w.needs({"scores", "map"});
  w.suffices({"scores", "indices"});
  w.suffices({"logits", "map"});
  w.suffices({"logits", "indices"});
  w.suffices({"probs", "map"});
  if (w.variant.trained_weights) w.rule.always = {"input"};

  w.rule.products.push_back({tokens, w.number(w.op.count), width, w.number(1)});
  w.traffic(kRoutedPasses, w.pool.mul(sent, width));
  const Expr sent_bytes = w.bytes(w.pool.mul(sent, width));
  const Expr received_bytes = w.bytes(w.pool.mul(received, width));
  w.forward_collective(CollectiveKind::all_to_all, Group::ep, sent_bytes);
  w.forward_collective(CollectiveKind::all_gather, Group::etp, received_bytes);
  w.backward_collective(CollectiveKind::reduce_scatter, Group::etp, received_bytes);
  w.backward_collective(CollectiveKind::all_to_all, Group::ep, sent_bytes);
}

/// Sends the experts' rows back and adds them up by their scores. The scores multiply the rows
/// inside the experts, before the last linear (as Megatron does, ACCOUNTING.md A.4), so that what
/// that one saved serves their gradients: nothing more is needed. `probs` is a score a row.
void combine(Writer& w) {
  const Op& opening = w.program.ops[w.input().experts];
  const Expr width = w.number(w.output().width);
  const Expr sent = w.bytes(w.pool.mul(w.shapes.permuted(opening), width));
  const Expr received = w.bytes(w.pool.mul(w.shapes.routed(opening), width));
  w.name_inputs();
  w.name_output();
  w.name_own("probs", w.shapes.routed(opening), "fp32");
  w.needs({});
  w.backward_temporary("gradient of the rows before their exchange", sent);
  w.traffic(kRoutedPasses, w.pool.mul(w.shapes.permuted(opening), width));
  w.forward_collective(CollectiveKind::reduce_scatter, Group::etp, received);
  w.forward_collective(CollectiveKind::all_to_all, Group::ep, sent);
  w.backward_collective(CollectiveKind::all_to_all, Group::ep, sent);
  w.backward_collective(CollectiveKind::all_gather, Group::etp, received);
}

}  // namespace plimsoll::ops
