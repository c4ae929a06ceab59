// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <cmath>

#include "runtime/host/kernels.hpp"

namespace plimsoll::runtime::host {

namespace {

/// Mean (0 unless centred) and 1/deviation of each row.
struct Row {
  double mean = 0, inverse = 0;
};

void total(const NormShape& s, std::vector<double>& sums) {
  if (s.sum) s.sum(sums.data(), static_cast<std::int64_t>(sums.size()));
}

template <class T>
std::vector<Row> statistics(const NormShape& s, const T* x) {
  std::vector<Row> rows(static_cast<std::size_t>(s.rows));
  std::vector<double> sums(rows.size());
  const double n = static_cast<double>(s.whole);
  if (s.centred) {
    for (std::size_t r = 0; r < rows.size(); ++r)
      for (std::int64_t j = 0; j < s.width; ++j)
        sums[r] += x[static_cast<std::int64_t>(r) * s.width + j];
    total(s, sums);
    for (std::size_t r = 0; r < rows.size(); ++r) rows[r].mean = sums[r] / n;
  }
  for (std::size_t r = 0; r < rows.size(); ++r) {
    sums[r] = 0;
    for (std::int64_t j = 0; j < s.width; ++j) {
      const double d = x[static_cast<std::int64_t>(r) * s.width + j] - rows[r].mean;
      sums[r] += d * d;
    }
  }
  total(s, sums);
  for (std::size_t r = 0; r < rows.size(); ++r)
    rows[r].inverse = 1 / std::sqrt(sums[r] / n + kNormEpsilon);
  return rows;
}

template <class T>
std::vector<Row> read_statistics(const NormShape& s, const T* stats) {
  std::vector<Row> rows(static_cast<std::size_t>(s.rows));
  for (std::size_t r = 0; r < rows.size(); ++r)
    rows[r] = s.centred ? Row{stats[2 * r], stats[2 * r + 1]} : Row{0, stats[r]};
  return rows;
}

template <class T>
double scale(const NormShape& s, const T* w, std::int64_t j) {
  return (w ? w[j] : 1.0) + (w && s.plus_one ? 1.0 : 0.0);
}

}  // namespace

template <class T>
void norm_forward(const NormShape& s, const T* x, const T* w, const T* bias, T* y, T* stats,
                  T* normalized) {
  const std::vector<Row> rows = statistics(s, x);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (stats && s.centred) stats[2 * r] = static_cast<T>(rows[r].mean);
    if (stats) stats[s.centred ? 2 * r + 1 : r] = static_cast<T>(rows[r].inverse);
    for (std::int64_t j = 0; j < s.width; ++j) {
      const std::int64_t i = static_cast<std::int64_t>(r) * s.width + j;
      const double z = (x[i] - rows[r].mean) * rows[r].inverse;
      if (normalized) normalized[i] = static_cast<T>(z);
      y[i] = static_cast<T>(z * scale(s, w, j) + (bias ? bias[j] : T(0)));
    }
  }
}

template <class T>
void norm_backward(const NormShape& s, const NormSaved<T>& saved, const T* w, const T* bias,
                   const T* dy, T* dx, T* dw, T* dbias) {
  const std::vector<Row> rows =
      saved.stats ? read_statistics(s, saved.stats) : statistics(s, saved.x);
  const auto normalized = [&](std::size_t r, std::int64_t j) -> double {
    const std::int64_t i = static_cast<std::int64_t>(r) * s.width + j;
    if (saved.normalized) return saved.normalized[i];
    if (saved.x) return (saved.x[i] - rows[r].mean) * rows[r].inverse;
    return (saved.y[i] - (bias ? bias[j] : T(0))) / scale(s, w, j);
  };
  // Means over a row of the scaled gradient, and of it times the normalized row.
  std::vector<double> sums(2 * rows.size());
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::int64_t j = 0; j < s.width; ++j) {
      const double g = dy[static_cast<std::int64_t>(r) * s.width + j];
      const double z = normalized(r, j);
      if (s.centred) sums[2 * r] += g * scale(s, w, j);
      sums[2 * r + 1] += g * scale(s, w, j) * z;
      if (dw) dw[j] += static_cast<T>(g * z);
      if (dbias) dbias[j] += static_cast<T>(g);
    }
  total(s, sums);
  if (!dx) return;
  const double n = static_cast<double>(s.whole);
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::int64_t j = 0; j < s.width; ++j) {
      const std::int64_t i = static_cast<std::int64_t>(r) * s.width + j;
      const double centred = dy[i] * scale(s, w, j) - sums[2 * r] / n;
      dx[i] += static_cast<T>(rows[r].inverse * (centred - normalized(r, j) * sums[2 * r + 1] / n));
    }
}

#define PLIMSOLL_OF(T)                                                                             \
  template void norm_forward(const NormShape&, const T*, const T*, const T*, T*, T*, T*);          \
  template void norm_backward(const NormShape&, const NormSaved<T>&, const T*, const T*, const T*, \
                              T*, T*, T*);
PLIMSOLL_OF(float)
PLIMSOLL_OF(double)
#undef PLIMSOLL_OF

}  // namespace plimsoll::runtime::host
