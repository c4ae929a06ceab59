// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/ops/family.hpp"

namespace plimsoll::ops {

namespace {

/// Pairs of a query and a key that one sequence computes: all, half of them where causal, and a
/// band (window w: w*s - w*w/2) or blocks (chunk) where limited. TIME.md §1.
Expr pairs(Writer& w, Expr queries, Expr keys) {
  ExprPool& pool = w.pool;
  const Rational half = Rational::fraction(1, 2);
  Expr reach = keys;
  if (w.op.window > 0) reach = pool.min(w.number(w.op.window), keys);
  if (w.op.chunk > 0) reach = pool.min(w.number(w.op.chunk), reach);
  const Expr all = pool.mul(queries, reach);
  if (!w.op.causal) return all;
  if (w.op.window > 0) return pool.sub(all, w.times(half, pool.mul(reach, reach)));
  return w.times(half, all);
}

/// While serving a rank keeps k and v of its heads (at least one), or what `cache` names, whole.
void cache(Writer& w) {
  std::vector<Expr> parts;
  if (w.op.cache.empty()) {
    const Expr ranks = w.pool.variable(Var::tp);
    parts.push_back(w.shapes.share(w.op.kv_heads * w.op.k_width, w.op.kv_heads, ranks));
    parts.push_back(w.shapes.share(w.op.kv_heads * w.op.v_width, w.op.kv_heads, ranks));
  }
  for (const ValueId id : w.op.cache) parts.push_back(w.shapes.width(w.program.values[id]));
  w.rule.cache_per_token = w.pool.sum(parts);
  w.rule.cache_window = w.op.window;
  w.rule.cache_chunk = w.op.chunk;
}

}  // namespace

/// softmax(q k^T) v. Flash and cuDNN kernels save q, k, v, the output and a log-sum-exp a query and
/// head; unfused attention the probabilities, with dropout their mask and the dropped ones too
/// (ACCOUNTING.md A.2, MEGATRON.md §4). Stacks that repeat k and v to all heads save those instead.
void attention(Writer& w) {
  const Op& op = w.op;
  const Value& q = w.input(0);
  const Value& k = w.input(1);
  const Expr heads = w.shapes.share(op.heads, op.heads, w.shapes.tensor_ranks(q.experts));
  const Expr rows = w.pool.mul(w.shapes.tokens(q), heads);
  const Expr scores = w.pool.mul(rows, k.tokens);
  const bool unfused = w.variant.attention == "unfused";
  const bool drops = unfused && w.variant.attention_dropout;

  w.name_value("q", op.inputs[0]);
  w.name_value("k", op.inputs[1]);
  w.name_value("v", op.inputs[2]);
  w.name_output();
  const Expr expanded = w.pool.mul(w.shapes.tokens(k), heads);
  w.name_own("k_expanded", w.times(op.k_width, expanded));
  w.name_own("v_expanded", w.times(op.v_width, expanded));
  w.name_own("lse", rows, "fp32");
  w.name_own("scores", scores);
  w.name_own("probs", scores);
  w.name_own("mask", drops ? scores : w.number(0), "int8");
  w.name_own("dropped", drops ? scores : w.number(0));
  w.name_inputs();

  std::vector<std::vector<std::string>> rest = {{"output", "lse"}};
  if (unfused) rest = {{"probs"}};
  if (drops) rest = {{"probs", "mask", "dropped"}, {"probs", "mask"}};
  for (const auto& more : rest) {
    for (const bool repeated : {false, true}) {
      std::vector<std::string> names = {"q", repeated ? "k_expanded" : "k",
                                        repeated ? "v_expanded" : "v"};
      names.insert(names.end(), more.begin(), more.end());
      if (w.rule.sufficient.empty()) w.rule.minimal = names;
      w.suffices(std::move(names));
    }
  }

  // A tensor of biases (T5) stands in memory as heads x queries x keys, once for all sequences.
  if (op.inputs.size() > 3 && unfused) {
    const Expr bias = w.bytes(w.pool.product(std::array{heads, q.tokens, k.tokens}));
    w.forward_temporary("position bias", bias);
    w.backward_temporary("position bias and its gradient", w.times(2, bias));
  }

  const Expr sequences = w.pool.div(w.pool.variable(Var::mbs), w.pool.variable(Var::cp));
  w.rule.attention_flops = w.pool.product(std::array{w.number(2 * (op.k_width + op.v_width)), heads,
                                                     sequences, pairs(w, q.tokens, k.tokens)});
  const Expr kv = w.pool.add(w.shapes.elements(op.inputs[1]), w.shapes.elements(op.inputs[2]));
  w.traffic(kAttentionPasses, w.pool.add(w.shapes.elements(op.inputs[0]), kv));
  if (unfused) w.traffic(Rational::fraction(kUnfusedPasses, 2), scores, kUnfusedBackward);

  // Context parallelism passes k and v of all ranks around, and their gradients back.
  const Expr around = w.bytes(w.pool.mul(kv, w.pool.variable(Var::cp)));
  w.forward_collective(CollectiveKind::ring, Group::cp, around);
  w.backward_collective(CollectiveKind::ring, Group::cp, w.times(2, around));
  cache(w);
}

}  // namespace plimsoll::ops
