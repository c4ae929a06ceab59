// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/ops/family.hpp"

namespace plimsoll::ops {

namespace {

/// Tokens a chunk of the scan: the reference kernel's default (state-spaces/mamba, ssd_combined).
constexpr std::int64_t kChunk = 256;

}  // namespace

/// A Mamba-2 mixer: in_proj to z, x, B, C and dt; a causal convolution over x, B, C; the scan by
/// chunks; a gated norm; out_proj (Dao and Gu 2024; split by heads and groups over tp like a
/// column..row pair). The fused kernel saves in_proj's output and the scan's, and has the
/// convolution, the chunk states and the norm again in backward; statistics too where not saved.
void mamba2(Writer& w) {
  const Op& op = w.op;
  ExprPool& pool = w.pool;
  const Expr ranks = pool.variable(Var::tp);
  const Expr tokens = w.shapes.full_tokens(w.input().tokens);
  const Expr heads = w.shapes.share(op.heads, op.groups, ranks);  // groups are not cut
  const Expr groups = w.shapes.share(op.groups, op.groups, ranks);
  const Expr inner = w.times(op.head_dim, heads);
  const Expr mixed = pool.add(inner, w.times(2 * op.state, groups));  // x, B, C
  const Expr projected = pool.sum(std::array{inner, mixed, heads});   // z, x, B, C, dt
  const auto of_tokens = [&](Expr width) { return pool.mul(tokens, width); };

  w.name_inputs();
  w.name_output();
  w.name_own("projected", of_tokens(projected));
  w.name_own("convolved", of_tokens(mixed));
  w.name_own("dt", of_tokens(heads), "fp32");
  w.name_own("states", pool.div(of_tokens(w.times(op.state, inner)), w.number(kChunk)), "fp32");
  w.name_own("scanned", of_tokens(inner));
  w.name_own("stats", of_tokens(groups), "fp32");
  w.name_own("normalized", of_tokens(inner));
  w.needs({"input", "projected", "scanned"});
  w.suffices({"input", "projected", "convolved", "dt", "states", "normalized", "stats"});

  const Expr hidden = w.number(w.input().width);
  w.rule.products.push_back({tokens, projected, hidden, w.number(1)});
  w.rule.products.push_back({tokens, hidden, inner, w.number(1)});
  // Within a chunk C B^T and its product with x (causal halves), then states in and out.
  const Expr scan = pool.sum(std::array{w.times(kChunk * op.state, groups), w.times(kChunk, inner),
                                        w.times(4 * op.state, inner)});
  const Expr convolution = w.times(2 * op.conv, mixed);
  w.rule.attention_flops = of_tokens(pool.add(scan, convolution));
  // Convolution, scan and gated norm each read and write once.
  w.traffic(2, of_tokens(pool.sum(std::array{mixed, mixed, inner})));

  if (w.sequence_sharded(w.input())) w.gather_input();
  w.reduce_output();
  w.rule.cache_fixed =
      pool.add(w.times(op.state, inner), w.times(op.conv > 0 ? op.conv - 1 : 0, mixed));
}

}  // namespace plimsoll::ops
