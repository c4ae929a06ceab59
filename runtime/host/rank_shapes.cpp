// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/host/rank_shapes.hpp"

#include <numeric>

#include "lang/diagnostics.hpp"

namespace plimsoll::runtime::host {

namespace {

std::int64_t number(const ops::Shapes& shapes, Expr e, const Env& env) {
  return shapes.pool().eval(e, env).to_int64();
}

/// Where the part of rank \a rank begins, of `whole` elements in `units` of which a rank has
/// `part`.
std::int64_t start(std::int64_t part, std::int64_t units, std::int64_t ranks, std::int64_t rank) {
  if (units == 0 || units % ranks == 0) return rank * part;
  return rank / (ranks / units) * part;
}

std::vector<std::int64_t> run(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

/// Several parts side by side, each divided for itself (Mamba's z, x, B, C and dt).
std::vector<std::int64_t> side_by_side(const std::vector<std::int64_t>& wholes, std::int64_t units,
                                       std::int64_t ranks, std::int64_t rank) {
  std::vector<std::int64_t> columns;
  std::int64_t offset = 0;
  for (const std::int64_t whole : wholes) {
    const std::int64_t part = whole / units * ((units + ranks - 1) / ranks);
    const std::int64_t first = start(part, units, ranks, rank);
    for (std::int64_t i = 0; i < part; ++i) columns.push_back(offset + first + i);
    offset += whole;
  }
  return columns;
}

/// The columns of Mamba's in_proj and convolution.
std::vector<std::int64_t> mamba_columns(const Op& op, std::size_t index, std::int64_t ranks,
                                        std::int64_t rank) {
  const std::int64_t inner = op.heads * op.head_dim, state = op.groups * op.state;
  std::vector<std::int64_t> parts = {inner, state, state};
  if (index == 0) parts = {inner, inner, state, state, op.heads};
  return side_by_side(parts, op.groups, ranks, rank);
}

}  // namespace

std::vector<std::int64_t> context_positions(std::int64_t tokens, std::int64_t cp,
                                            std::int64_t rank) {
  if (cp == 1) return run(0, tokens);
  PLIMSOLL_ASSERT(tokens % (2 * cp) == 0);
  const std::int64_t piece = tokens / (2 * cp);
  std::vector<std::int64_t> positions = run(rank * piece, piece);
  for (const std::int64_t p : run((2 * cp - 1 - rank) * piece, piece)) positions.push_back(p);
  return positions;
}

std::vector<std::int64_t> RankShapes::full_positions(const ValueShape& v) const {
  return v.sharded ? context_positions(v.tokens, cp, rank.cp) : v.positions;
}

RankShapes::RankShapes(const ops::Shapes& shapes, const Env& env, const TensorRank& r)
    : program(&shapes.program()), rank(r) {
  const auto variable = [&](Var v) { return env[v].to_int64(); };
  tp = variable(Var::tp);
  cp = variable(Var::cp);
  ep = variable(Var::ep);
  etp = variable(Var::etp);
  mbs = variable(Var::mbs);
  sp = !env[Var::sp].is_zero() && tp > 1;

  for (const Value& v : program->values) {
    ValueShape s;
    s.rows = number(shapes, shapes.tokens(v), env);
    s.width = number(shapes, shapes.width(v), env);
    s.tokens = number(shapes, v.tokens, env);
    const std::int64_t ranks = v.experts == kNone ? tp : etp;
    s.divided = v.split == Split::column && ranks > 1;
    if (s.divided)
      s.first_column = start(s.width, v.units, ranks, v.experts == kNone ? r.tp : r.etp);
    if (v.experts == kNone) {
      s.sharded = v.sequence_sharded && sp;
      s.positions = s.tokens % (cp > 1 ? 2 * cp : 1) == 0 ? context_positions(s.tokens, cp, r.cp)
                                                          : run(0, s.tokens);
      if (s.sharded) {
        const auto part = static_cast<std::ptrdiff_t>(s.positions.size()) / tp;
        s.positions.assign(s.positions.begin() + r.tp * part,
                           s.positions.begin() + (r.tp + 1) * part);
      }
    }
    values.push_back(std::move(s));
  }

  weights.resize(program->weights.size());
  for (WeightId w = 0; w < weights.size(); ++w) {
    const Weight& weight = program->weights[w];
    WeightShape& s = weights[w];
    s.rows = number(shapes, shapes.weight_rows(w), env);
    s.cols = number(shapes, shapes.weight_cols(w), env);
    s.copies = number(shapes, shapes.weight_copies(w), env);
    const std::int64_t ranks = weight.experts == kNone ? tp : etp;
    const std::int64_t mine = weight.experts == kNone ? r.tp : r.etp;
    if (weight.experts != kNone) s.first_copy = r.ep * s.copies;
    const std::int64_t units = weight.vocabulary ? 0 : weight.units;
    s.row_of = run(weight.split == Split::row ? start(s.rows, units, ranks, mine) : 0, s.rows);
    s.col_of = run(weight.split == Split::column ? start(s.cols, units, ranks, mine) : 0, s.cols);
    s.replicas = weight.split == Split::none       ? ranks
                 : units > 0 && ranks % units == 0 ? ranks / units
                                                   : 1;
    s.partial_gradient = weight.split != Split::none;
  }

  routed.resize(program->ops.size());
  for (OpId o = 0; o < routed.size(); ++o) {
    const Op& op = program->ops[o];
    if (op.kind == OpKind::experts) routed[o] = number(shapes, shapes.routed(op), env);
    for (std::size_t i = 0; i < op.weights.size(); ++i) {
      WeightShape& s = weights[op.weights[i]];
      if (op.kind == OpKind::mamba2 && i < 3) s.col_of = mamba_columns(op, i, tp, r.tp);
      // A whole weight: each rank has a part of its gradient where it sees a part of the tokens or
      // of the width (a norm a head), else they all have the same.
      if (program->weights[op.weights[i]].split != Split::none) continue;
      const ValueShape& where = values[op.inputs.empty() ? op.output : op.inputs[0]];
      s.partial_gradient = where.divided || where.sharded;
      if (op.kind == OpKind::linear && op.split == Split::row)  // its bias
        s.partial_gradient = values[op.output].sharded || op.experts != kNone;
    }
  }
}

}  // namespace plimsoll::runtime::host
