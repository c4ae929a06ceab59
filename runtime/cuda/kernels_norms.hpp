// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include "runtime/cuda/scalar.hpp"

/// Norms, and sums of columns: kernels in which a team of threads has a row, or a few columns. Sums
/// are made in fp32.
namespace plimsoll::runtime::cuda {

/// lanes a columns' team reads side by side, and the rows that it reads at once.
inline constexpr int kColumns = 32, kRowGroups = 8;

/// Calls f(column, row) for all rows of kColumns columns from \a first on, adds its numbers up and
/// calls done(column, sum).
template <class Team, class F, class Done>
PLIMSOLL_HD void sum_columns(Team& t, std::int64_t first, std::int64_t columns, std::int64_t rows,
                             F f, Done done) {
  auto* partial = static_cast<float*>(t.shared());
  for (int u = t.lane(); u < kColumns * kRowGroups; u += t.size()) {
    const std::int64_t column = first + u % kColumns;
    float sum = 0;
    for (std::int64_t r = u / kColumns; column < columns && r < rows; r += kRowGroups)
      sum += f(column, r);
    partial[u] = sum;
  }
  t.sync();
  for (int c = t.lane(); c < kColumns && first + c < columns; c += t.size()) {
    float sum = 0;
    for (int g = 0; g < kRowGroups; ++g) sum += partial[g * kColumns + c];
    done(first + c, sum);
  }
  t.sync();
}
inline constexpr std::int64_t kSumColumnsBytes = kColumns * kRowGroups * 4;

// --- norms ---------------------------------------------------------------------------------------

inline constexpr float kNormEpsilon = 1e-5f;

/// What norms have in common, see host::NormShape; `given` holds mean and 1/deviation of each row
/// where they are known.
struct NormRows {
  std::int64_t rows = 0, width = 0, whole = 0;
  bool centred = false, plus_one = false;
  Array x, y, normalized, w, bias;
  const float* given = nullptr;

  PLIMSOLL_HD float scale(std::int64_t j) const {
    return (w.there() ? w.get(j) : 1.0f) + (w.there() && plus_one ? 1.0f : 0.0f);
  }
  /// Of a backward: from what is saved.
  PLIMSOLL_HD float unit(std::int64_t r, std::int64_t j, float mean, float inverse) const {
    const std::int64_t i = r * width + j;
    if (normalized.there()) return normalized.get(i);
    if (x.there()) return (x.get(i) - mean) * inverse;
    return (y.get(i) - (bias.there() ? bias.get(j) : 0)) / scale(j);
  }
  template <class Team>
  PLIMSOLL_HD void statistics(Team& t, std::int64_t r, float& mean, float& inverse) const {
    if (given) {
      mean = given[2 * r];
      inverse = given[2 * r + 1];
      return;
    }
    const auto n = static_cast<float>(whole);
    float sum = 0;
    mean = 0;
    if (centred) {
      for (std::int64_t j = t.lane(); j < width; j += t.size()) sum += x.get(r * width + j);
      mean = t.sum(sum) / n;
    }
    sum = 0;
    for (std::int64_t j = t.lane(); j < width; j += t.size()) {
      const float d = x.get(r * width + j) - mean;
      sum += d * d;
    }
    inverse = 1 / sqrtf(t.sum(sum) / n + kNormEpsilon);
  }
};

struct NormForward {
  NormRows norm;          ///< y and normalized are written, normalized where wanted
  Array stats;            ///< where wanted: 1/rms, or mean and 1/deviation
  float* kept = nullptr;  ///< where wanted: mean and 1/deviation, whatever the norm
  bool only_statistics = false;
  PLIMSOLL_HD std::int64_t items() const { return norm.rows; }
  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t r) const {
    float mean = 0, inverse = 0;
    norm.statistics(t, r, mean, inverse);
    if (t.lane() == 0) {
      if (stats.there() && norm.centred) stats.put(2 * r, mean);
      if (stats.there()) stats.put(norm.centred ? 2 * r + 1 : r, inverse);
      if (kept) {
        kept[2 * r] = mean;
        kept[2 * r + 1] = inverse;
      }
    }
    if (only_statistics) return;
    for (std::int64_t j = t.lane(); j < norm.width; j += t.size()) {
      const std::int64_t i = r * norm.width + j;
      const float z = (norm.x.get(i) - mean) * inverse;
      if (norm.normalized.there()) norm.normalized.put(i, z);
      norm.y.put(i, z * norm.scale(j) + (norm.bias.there() ? norm.bias.get(j) : 0));
    }
  }
};

/// A row that lies divided on several ranks: this one's part of its sums. Of (x - mean)^2 where
/// `mean` (one a row) is there or the norm is not centred, else of x.
struct RowSums {
  Array x;
  std::int64_t rows = 0, width = 0;
  bool squares = false;
  const float* mean = nullptr;
  float* out = nullptr;
  PLIMSOLL_HD std::int64_t items() const { return rows; }
  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t r) const {
    const float m = mean ? mean[r] : 0;
    float sum = 0;
    for (std::int64_t j = t.lane(); j < width; j += t.size()) {
      const float d = x.get(r * width + j) - m;
      sum += squares ? d * d : d;
    }
    sum = t.sum(sum);
    if (t.lane() == 0) out[r] = sum;
  }
};
/// From sums over all ranks: means in place (no squares), or pairs for NormRows::given.
struct FinishSums {
  float *sums = nullptr, *pairs = nullptr;
  const float* mean = nullptr;
  std::int64_t rows = 0;
  float whole = 1;
  PLIMSOLL_HD std::int64_t items() const { return rows; }
  PLIMSOLL_HD void at(std::int64_t r) const {
    if (!pairs) {
      sums[r] /= whole;
      return;
    }
    pairs[2 * r] = mean ? mean[r] : 0;
    pairs[2 * r + 1] = 1 / sqrtf(sums[r] / whole + kNormEpsilon);
  }
};

/// dx; `sums` of a row over all ranks (the scaled gradient, and times the unit row) are given, or
/// made here; `only_sums`: this rank's part of them is all that is made.
struct NormBackward {
  NormRows norm;
  Array stats, dy, dx;
  float* sums = nullptr;
  float* kept = nullptr;  ///< mean and 1/deviation for NormWeights
  bool only_sums = false, add = false;
  PLIMSOLL_HD std::int64_t items() const { return norm.rows; }
  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t r) const {
    float mean = 0, inverse = 0;
    if (stats.there()) {
      mean = norm.centred ? stats.get(2 * r) : 0;
      inverse = stats.get(norm.centred ? 2 * r + 1 : r);
    } else {
      norm.statistics(t, r, mean, inverse);
    }
    if (kept && t.lane() == 0) {
      kept[2 * r] = mean;
      kept[2 * r + 1] = inverse;
    }
    float first = 0, second = 0;
    if (sums && !only_sums) {
      first = sums[2 * r];
      second = sums[2 * r + 1];
    } else {
      for (std::int64_t j = t.lane(); j < norm.width; j += t.size()) {
        const float g = dy.get(r * norm.width + j) * norm.scale(j);
        if (norm.centred) first += g;
        second += g * norm.unit(r, j, mean, inverse);
      }
      first = t.sum(first);
      second = t.sum(second);
    }
    if (only_sums) {
      if (t.lane() == 0) {
        sums[2 * r] = first;
        sums[2 * r + 1] = second;
      }
      return;
    }
    const auto n = static_cast<float>(norm.whole);
    for (std::int64_t j = t.lane(); j < norm.width; j += t.size()) {
      const std::int64_t i = r * norm.width + j;
      const float centred = dy.get(i) * norm.scale(j) - first / n;
      dx.put(i, inverse * (centred - norm.unit(r, j, mean, inverse) * second / n), add);
    }
  }
};

/// The gradients of scale and bias: an item is a few columns.
struct NormWeights {
  NormRows norm;
  Array dy, dw, dbias;          ///< added to, where wanted
  const float* kept = nullptr;  ///< mean and 1/deviation of each row
  static constexpr std::int64_t shared_bytes() { return kSumColumnsBytes; }
  PLIMSOLL_HD std::int64_t items() const { return (norm.width + kColumns - 1) / kColumns; }
  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t item) const {
    const NormRows& n = norm;
    const auto g = [&](std::int64_t j, std::int64_t r) { return dy.get(r * n.width + j); };
    if (dw.there())
      sum_columns(
          t, item * kColumns, n.width, n.rows,
          [&](std::int64_t j, std::int64_t r) {
            return g(j, r) * n.unit(r, j, kept[2 * r], kept[2 * r + 1]);
          },
          [&](std::int64_t j, float sum) { dw.put(j, sum, true); });
    if (dbias.there())
      sum_columns(t, item * kColumns, n.width, n.rows, g,
                  [&](std::int64_t j, float sum) { dbias.put(j, sum, true); });
  }
};

/// out (width) += the sum over rows.
struct ColumnSums {
  Array x, out;
  std::int64_t rows = 0, width = 0;
  static constexpr std::int64_t shared_bytes() { return kSumColumnsBytes; }
  PLIMSOLL_HD std::int64_t items() const { return (width + kColumns - 1) / kColumns; }
  template <class Team>
  PLIMSOLL_HD void team(Team& t, std::int64_t item) const {
    sum_columns(
        t, item * kColumns, width, rows,
        [&](std::int64_t j, std::int64_t r) { return x.get(r * width + j); },
        [&](std::int64_t j, float sum) { out.put(j, sum, true); });
  }
};

}  // namespace plimsoll::runtime::cuda
