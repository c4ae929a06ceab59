// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/ops/family.hpp"

namespace plimsoll::ops {

/// Rows of a table that is divided by vocabulary: every rank looks up what it has, the sum goes out
/// over tp. Backward needs the ids of all tokens (ACCOUNTING.md A.2: int64).
void embedding(Writer& w) {
  const Value& out = w.output();
  w.name_own("ids", w.shapes.full_tokens(out.tokens), "int64");
  w.name_output();
  if (w.variant.trained_weights) {
    w.needs({"ids"});
  } else {
    w.needs({});
    w.suffices({"ids"});
  }
  if (!w.op.weights.empty() && w.weight().split != Split::none) w.reduce_output();
  w.traffic(kUnaryPasses, w.full_elements(out));
}

/// Values that come from outside the model (pixels, frames): nothing flows back.
void source(Writer& w) {
  w.name_output();
  w.needs({});
}

/// The second input's rows take the places that are theirs in the first: known positions, so that
/// backward needs nothing.
void merge(Writer& w) {
  w.name_inputs();
  w.name_output();
  w.needs({});
  w.traffic(kUnaryPasses, w.shapes.elements(w.op.output));
}

/// The first rows of a table, one a position: backward knows which.
void learned_positions(Writer& w) {
  w.name_inputs();
  w.name_output();
  w.needs({});
  w.traffic(1, w.shapes.elements(w.op.output));
}

/// A bias a head and distance (T5): the buckets follow from positions. The matrix that attention
/// adds to its scores is attention's temporary.
void relative_bias(Writer& w) {
  w.name_output();
  w.needs({});
}

}  // namespace plimsoll::ops
