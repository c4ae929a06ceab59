// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include "runtime/cuda/kernels_norms.hpp"

/// Kernels in which a team of threads has a row (a column, a tile): team(t, item) for an item below
/// items(). Sums are made in fp32.
namespace plimsoll::runtime::cuda {

// --- embeddings ----------------------------------------------------------------------------------

/// Looks up the rows that this rank has of the table, zeros for others; `ids` is written where it
/// is there. Backward adds to the table.
struct Embed {
  Array table, y;
  std::int64_t* ids = nullptr;
  std::int64_t rows = 0, width = 0, first_row = 0, table_rows = 0;
  std::uint64_t seed = 0;
  std::int64_t stream = 0, first_sequence = 0, sequences = 1, vocab = 1;
  Runs positions;
  bool backward = false;
  PLIMSOLL_HD std::int64_t items() const { return rows; }
  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t r) const {
    const std::int64_t id = backward && ids ? ids[r]
                                            : token_at(seed, stream, first_sequence + r % sequences,
                                                       positions[r / sequences], vocab);
    if (ids && !backward && t.lane() == 0) ids[r] = id;
    const std::int64_t row = id - first_row;
    const bool here = row >= 0 && row < table_rows;
    if (backward && !here) return;
    for (std::int64_t j = t.lane(); j < width; j += t.size()) {
      if (backward)
        t.add(table, row * width + j, y.get(r * width + j));
      else
        y.put(r * width + j, here ? table.get(row * width + j) : 0);
    }
  }
};

// --- loss ----------------------------------------------------------------------------------------

/// Of each row of logits, of which this rank has the columns from `first` on: the largest, the sum
/// of exponentials less it, and the target's logit (0 where another rank has it): three numbers.
struct LossRows {
  Array logits;
  float* out = nullptr;  ///< rows x 3
  std::int64_t rows = 0, width = 0, first = 0, vocab = 0;
  std::uint64_t seed = 0;
  std::int64_t stream = 0, first_sequence = 0, sequences = 1;
  Runs positions;

  PLIMSOLL_HD std::int64_t target(std::int64_t r) const {
    return token_at(seed, stream, first_sequence + r % sequences, positions[r / sequences] + 1,
                    vocab);
  }
  PLIMSOLL_HD std::int64_t real() const {
    const std::int64_t n = vocab - first;
    return n < 0 ? 0 : n > width ? width : n;
  }
  PLIMSOLL_HD std::int64_t items() const { return rows; }
  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t r) const {
    float most = -INFINITY, sum = 0;
    for (std::int64_t j = t.lane(); j < real(); j += t.size())
      most = fmaxf(most, logits.get(r * width + j));
    most = t.most(most);
    for (std::int64_t j = t.lane(); j < real(); j += t.size())
      sum += expf(logits.get(r * width + j) - most);
    sum = t.sum(sum);
    if (t.lane() != 0) return;
    const std::int64_t at = target(r) - first;
    out[3 * r] = most;
    out[3 * r + 1] = sum;
    out[3 * r + 2] = at >= 0 && at < width ? logits.get(r * width + at) : 0;
  }
};
/// Between ranks: `take` copies the largest to `most`; else the sums are put in relation to the
/// largest over all ranks, and what is to be added up stands in `sums` (rows x 2).
struct LossShare {
  float *rows_of = nullptr, *most = nullptr, *sums = nullptr;
  std::int64_t rows = 0;
  bool take = false, put_back = false;
  PLIMSOLL_HD std::int64_t items() const { return rows; }
  PLIMSOLL_HD void at(std::int64_t r) const {
    float* row = rows_of + 3 * r;
    if (take) {
      most[r] = row[0];
    } else if (put_back) {
      row[0] = most[r];
      row[1] = sums[2 * r];
      row[2] = sums[2 * r + 1];
    } else {
      sums[2 * r] = row[0] > -INFINITY ? row[1] * expf(row[0] - most[r]) : 0;
      sums[2 * r + 1] = row[2];
    }
  }
};
/// loss += the sum over rows of log(sum) + largest - target.
struct LossTotal {
  const float* rows_of = nullptr;
  double* loss = nullptr;
  std::int64_t rows = 0;
  static constexpr std::int64_t items() { return 1; }
  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t) const {
    float sum = 0;
    for (std::int64_t r = t.lane(); r < rows; r += t.size())
      sum += logf(rows_of[3 * r + 1]) + rows_of[3 * r] - rows_of[3 * r + 2];
    sum = t.sum(sum);
    if (t.lane() == 0) *loss += sum;
  }
};
struct LossBackward {
  LossRows loss;  ///< `out` has the numbers over all ranks
  Array dlogits;
  float scale = 1;
  bool add = false;
  PLIMSOLL_HD std::int64_t items() const { return loss.rows; }
  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t r) const {
    const float most = loss.out[3 * r], sum = loss.out[3 * r + 1];
    const std::int64_t at = loss.target(r) - loss.first;
    for (std::int64_t j = t.lane(); j < loss.width; j += t.size()) {
      const std::int64_t i = r * loss.width + j;
      const float p = j < loss.real() ? expf(loss.logits.get(i) - most) / sum : 0;
      dlogits.put(i, scale * (p - (j == at ? 1.0f : 0.0f)), add);
    }
  }
};

/// The sum of squares of a gradient, scaled, added to *out: in two rounds, so that it is the same
/// each time.
struct Squares {
  Array x;
  std::int64_t count = 0, first_part = 0;
  double* parts = nullptr;  ///< kParts of them
  static constexpr std::int64_t kParts = 512;
  static constexpr std::int64_t items() { return kParts; }
  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t part) const {
    const std::int64_t begin = count * part / kParts, end = count * (part + 1) / kParts;
    float sum = 0;
    for (std::int64_t i = begin + t.lane(); i < end; i += t.size()) {
      const float g = x.get(i);
      sum += g * g;
    }
    sum = t.sum(sum);
    if (t.lane() == 0) parts[part] = sum;
  }
};
struct SumParts {
  const double* parts = nullptr;
  double* out = nullptr;
  double scale = 1;
  static constexpr std::int64_t items() { return 1; }
  PLIMSOLL_HD void at(std::int64_t) const {
    double sum = 0;
    for (std::int64_t i = 0; i < Squares::kParts; ++i) sum += parts[i];
    *out += scale * sum;
  }
};

// --- routing -------------------------------------------------------------------------------------

/// A router's tokens: scores (softmax or sigmoid of logits), which experts are chosen (by turns, so
/// that all get the same), their weights, their numbers. Written where there is memory.
struct Route {
  Array logits, scores, probs;
  std::int8_t* map = nullptr;
  std::int64_t* indices = nullptr;
  std::int64_t tokens = 0, experts = 0, top_k = 1;
  bool sigmoid_scores = false;
  std::int64_t first_sequence = 0, sequences = 1, whole_tokens = 0;
  Runs positions;

  PLIMSOLL_HD bool chosen(std::int64_t token, std::int64_t e) const {
    const std::int64_t global =
        (first_sequence + token % sequences) * whole_tokens + positions[token / sequences];
    const std::int64_t turn = global * top_k % experts;
    return (e - turn + experts) % experts < top_k;
  }
  PLIMSOLL_HD std::int64_t items() const { return tokens; }
  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t token) const {
    const std::int64_t row = token * experts;
    float most = -INFINITY, sum = 0;
    for (std::int64_t e = t.lane(); e < experts; e += t.size())
      most = fmaxf(most, logits.get(row + e));
    most = t.most(most);
    for (std::int64_t e = t.lane(); e < experts; e += t.size())
      sum += expf(logits.get(row + e) - most);
    sum = t.sum(sum);
    const auto score = [&](std::int64_t e) {
      const float l = logits.get(row + e);
      return sigmoid_scores ? 1 / (1 + expf(-l)) : expf(l - most) / sum;
    };
    float taken = 0;
    for (std::int64_t e = t.lane(); e < experts; e += t.size())
      if (chosen(token, e)) taken += score(e);
    taken = t.sum(taken);
    for (std::int64_t e = t.lane(); e < experts; e += t.size()) {
      const bool is = chosen(token, e);
      const float s = score(e);
      if (scores.there()) scores.put(row + e, s);
      if (map) map[row + e] = is;
      if (probs.there()) probs.put(row + e, !is ? 0 : sigmoid_scores ? s : s / taken);
    }
    if (!indices || t.lane() != 0) return;
    std::int64_t* to = indices + token * top_k;
    for (std::int64_t e = 0; e < experts; ++e)
      if (chosen(token, e)) *to++ = e;
  }
};

/// Of softmax over the chosen: dl = p (dp - sum of p dp); of a sigmoid: dl = s (1 - s) dp.
struct RouteBackward {
  Route route;  ///< probs: what forward weighted by
  Array dprobs, dlogits;
  PLIMSOLL_HD std::int64_t items() const { return route.tokens; }
  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t token) const {
    const std::int64_t row = token * route.experts;
    float dot = 0;
    for (std::int64_t e = t.lane(); e < route.experts; e += t.size())
      if (route.chosen(token, e)) dot += route.probs.get(row + e) * dprobs.get(row + e);
    dot = t.sum(dot);
    for (std::int64_t e = t.lane(); e < route.experts; e += t.size()) {
      const float p = route.probs.get(row + e), g = dprobs.get(row + e);
      const float d = route.sigmoid_scores ? p * (1 - p) * g : p * (g - dot);
      dlogits.put(row + e, route.chosen(token, e) ? d : 0);
    }
  }
};

/// y = score x, row by row.
struct ScaleRows {
  Array x, scores, y;
  std::int64_t rows = 0, width = 0;
  PLIMSOLL_HD std::int64_t items() const { return rows * width; }
  PLIMSOLL_HD void at(std::int64_t i) const { y.put(i, scores.get(i / width) * x.get(i)); }
};
struct ScaleRowsBackward {
  Array x, scores, dy, dx, dscores;  ///< dx where wanted
  std::int64_t rows = 0, width = 0;
  bool add = false;
  PLIMSOLL_HD std::int64_t items() const { return rows; }
  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t r) const {
    float dot = 0;
    const float score = scores.get(r);
    for (std::int64_t j = t.lane(); j < width; j += t.size()) {
      const float g = dy.get(r * width + j);
      dot += x.get(r * width + j) * g;
      if (dx.there()) dx.put(r * width + j, score * g, add);
    }
    dot = t.sum(dot);
    if (t.lane() == 0) dscores.put(r, dot);
  }
};

}  // namespace plimsoll::runtime::cuda
