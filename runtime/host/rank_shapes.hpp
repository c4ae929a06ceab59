// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <vector>

#include "lang/ops/rule.hpp"
#include "lang/program.hpp"
#include "runtime/host/collectives.hpp"

/// Which part of each value and weight lies on one rank.
namespace plimsoll::runtime::host {

/// A value on a rank: rows (token, sequence), sequences fastest, so that a rank's share of a
/// sequence is one piece of memory.
struct ValueShape {
  std::int64_t rows = 0, width = 0;
  std::int64_t first_column = 0;
  std::int64_t tokens = 0;              ///< of a whole sequence
  std::vector<std::int64_t> positions;  ///< of this rank's tokens; empty inside experts
  bool divided = false;                 ///< its width lies on several ranks
  bool sharded = false;                 ///< sequence parallelism divides its tokens

  std::int64_t count() const { return rows * width; }
};

/// A weight on a rank: copies x rows x cols, and where each lies in the whole one. Rows and columns
/// of a padded vocabulary may lie past the whole one's.
struct WeightShape {
  std::int64_t rows = 0, cols = 0, copies = 1;
  std::int64_t first_copy = 0;
  std::vector<std::int64_t> row_of, col_of;  ///< of the whole weight, by row and column here
  /// Ranks of the tensor group that hold the same part (all of them, key and value heads that are
  /// fewer than ranks, or this one alone), and whether each has a part of its gradient or all of
  /// it.
  std::int64_t replicas = 1;
  bool partial_gradient = false;

  std::int64_t count() const { return copies * rows * cols; }
};

/// A rank's number in each of the groups that divide tensors.
struct TensorRank {
  std::int64_t tp = 0, cp = 0, ep = 0, etp = 0;
};

struct RankShapes {
  RankShapes(const ops::Shapes&, const Env&, const TensorRank&);

  const Program* program = nullptr;
  TensorRank rank;
  std::int64_t tp = 1, cp = 1, ep = 1, etp = 1, mbs = 1;
  bool sp = false;
  std::vector<ValueShape> values;
  std::vector<WeightShape> weights;
  std::vector<std::int64_t> routed;  ///< by op: rows that an experts op has room for

  /// Rows of the value before the sequence is divided over tp.
  std::int64_t full_rows(const ValueShape& v) const { return v.sharded ? v.rows * tp : v.rows; }
  std::vector<std::int64_t> full_positions(const ValueShape&) const;
};

/// Positions of a context-parallel rank's tokens: of 2 cp pieces it has one from each end, so that
/// causal work is even (ACCOUNTING.md F, Megatron's load balancing); all where cp is 1.
std::vector<std::int64_t> context_positions(std::int64_t tokens, std::int64_t cp,
                                            std::int64_t rank);

}  // namespace plimsoll::runtime::host
