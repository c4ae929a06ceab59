// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/ops/family.hpp"

namespace plimsoll::ops {

/// Activations. From the output alone: relu (its sign), tanh and softcap (1 - y * y); the others'
/// derivatives need the input. (relu keeps its input in plain, as the GPT block's 34 counts it.)
void unary(Writer& w) {
  const OpKind kind = w.op.kind;
  w.name_inputs();
  w.name_output();
  if (kind == OpKind::tanh || kind == OpKind::softcap) {
    w.needs({"output"});
    w.suffices({"input"});
  } else {
    w.needs({"input"});
    if (kind == OpKind::relu) w.suffices({"output"});
  }
  w.traffic(kUnaryPasses, w.shapes.elements(w.op.inputs[0]));
}

void add(Writer& w) {
  w.name_inputs();
  w.name_output();
  w.needs({});
  w.traffic(kAddPasses, w.shapes.elements(w.op.output));
}

void mul(Writer& w) {
  w.name_inputs();
  w.name_output();
  w.needs({"input"});
  w.traffic(kAddPasses, w.shapes.elements(w.op.output));
}

/// act(a) * b. Fused stacks save a and b and have act(a) again (ACCOUNTING.md A.2); separate
/// kernels keep it as `activated`.
void glu(Writer& w) {
  w.name_inputs();
  w.name_output();
  w.name_own("activated", w.shapes.elements(w.op.inputs[0]));
  w.needs({"input"});
  w.traffic(kGatedPasses, w.shapes.elements(w.op.output));
}

/// A linear map by constants: nothing is needed. Its traffic stands with attention's.
void rope(Writer& w) {
  w.name_inputs();
  w.name_output();
  w.needs({});
}

/// A copy. A whole, sequence-sharded part that joins a divided one (MLA's shared rotary key) is
/// gathered first.
void concat(Writer& w) {
  w.name_inputs();
  w.name_output();
  w.needs({});
  w.traffic(kUnaryPasses, w.shapes.elements(w.op.output));
  if (w.sequence_sharded(w.output()) || w.output().experts != kNone) return;
  for (const ValueId id : w.op.inputs) {
    const Value& part = w.program.values[id];
    if (!w.sequence_sharded(part)) continue;
    const Expr whole = w.if_sequence_parallel(w.bytes(w.full_elements(part)));
    w.forward_temporary("gathered input", whole);
    w.backward_temporary("gradient of the input before its reduce-scatter", whole);
    w.forward_collective(CollectiveKind::all_gather, Group::tp, whole);
    w.backward_collective(CollectiveKind::reduce_scatter, Group::tp, whole);
  }
}

/// A mask of a byte an element. Where the job drops nothing the op is not there: its output is its
/// input's storage.
void dropout(Writer& w) {
  const bool on = w.op.p > 0 || (w.op.p < 0 && w.variant.dropout);
  const Expr elements = on ? w.shapes.elements(w.op.inputs[0]) : w.number(0);
  w.name_inputs();
  w.name_output();
  w.name_own("mask", elements, "int8");
  if (!on) return w.needs({});
  w.needs({"mask"});
  w.traffic(kUnaryPasses, elements, 1);
}

}  // namespace plimsoll::ops
