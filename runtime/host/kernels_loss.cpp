// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/host/kernels.hpp"

namespace plimsoll::runtime::host {

namespace {

/// log of the sum of exponentials of each row, over all ranks.
template <class T>
std::vector<double> log_sums(const LossShape& s, const T* logits) {
  const std::int64_t real = std::clamp<std::int64_t>(s.vocab - s.first, 0, s.width);
  const auto rows = static_cast<std::size_t>(s.rows);
  std::vector<double> most(rows, -std::numeric_limits<double>::infinity()), sums(rows);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::int64_t j = 0; j < real; ++j)
      most[r] = std::max<double>(most[r], logits[static_cast<std::int64_t>(r) * s.width + j]);
  if (s.largest) s.largest(most.data(), s.rows);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::int64_t j = 0; j < real; ++j)
      sums[r] += std::exp(logits[static_cast<std::int64_t>(r) * s.width + j] - most[r]);
  if (s.sum) s.sum(sums.data(), s.rows);
  for (std::size_t r = 0; r < rows; ++r) sums[r] = most[r] + std::log(sums[r]);
  return sums;
}

}  // namespace

template <class T>
double cross_entropy_forward(const LossShape& s, const T* logits, const std::int64_t* targets) {
  const std::vector<double> sums = log_sums(s, logits);
  std::vector<double> of_target(sums.size());
  for (std::size_t r = 0; r < sums.size(); ++r) {
    const std::int64_t j = targets[r] - s.first;
    if (j >= 0 && j < s.width) of_target[r] = logits[static_cast<std::int64_t>(r) * s.width + j];
  }
  if (s.sum) s.sum(of_target.data(), s.rows);
  double loss = 0;
  for (std::size_t r = 0; r < sums.size(); ++r) loss += sums[r] - of_target[r];
  return loss;
}

template <class T>
void cross_entropy_backward(const LossShape& s, const T* logits, const std::int64_t* targets,
                            double scale, T* dlogits) {
  const std::vector<double> sums = log_sums(s, logits);
  const std::int64_t real = std::clamp<std::int64_t>(s.vocab - s.first, 0, s.width);
  for (std::size_t r = 0; r < sums.size(); ++r)
    for (std::int64_t j = 0; j < real; ++j) {
      const std::int64_t i = static_cast<std::int64_t>(r) * s.width + j;
      const double hit = targets[r] == s.first + j ? 1 : 0;
      dlogits[i] += static_cast<T>(scale * (std::exp(logits[i] - sums[r]) - hit));
    }
}

template <class T>
void route_scores(bool sigmoid, const T* logits, T* scores, std::int64_t tokens,
                  std::int64_t experts) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    const T* row = logits + t * experts;
    const double most = *std::max_element(row, row + experts);
    double sum = 0;
    for (std::int64_t e = 0; e < experts; ++e) sum += std::exp(row[e] - most);
    for (std::int64_t e = 0; e < experts; ++e)
      scores[t * experts + e] =
          static_cast<T>(sigmoid ? 1 / (1 + std::exp(-static_cast<double>(row[e])))
                                 : std::exp(row[e] - most) / sum);
  }
}

template <class T>
void route_probs(bool sigmoid, const T* scores, const std::int8_t* map, T* probs,
                 std::int64_t tokens, std::int64_t experts) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    double sum = 0;
    for (std::int64_t e = t * experts; e < (t + 1) * experts; ++e) sum += map[e] ? scores[e] : T(0);
    for (std::int64_t e = t * experts; e < (t + 1) * experts; ++e)
      probs[e] = static_cast<T>(!map[e] ? 0 : sigmoid ? scores[e] : scores[e] / sum);
  }
}

/// Of softmax over the chosen: dl = p (dp - sum of p dp); of a sigmoid: dl = s (1 - s) dp.
template <class T>
void route_backward(bool sigmoid, const RouteSaved<T>& saved, const std::int8_t* map,
                    const T* dprobs, T* dlogits, std::int64_t tokens, std::int64_t experts) {
  const auto count = static_cast<std::size_t>(tokens * experts);
  std::vector<T> scores, probs;
  const T* p = saved.probs;
  if (!p) {
    const T* s = saved.scores;
    if (!s) {
      scores.resize(count);
      route_scores(sigmoid, saved.logits, scores.data(), tokens, experts);
      s = scores.data();
    }
    probs.resize(count);
    route_probs(sigmoid, s, map, probs.data(), tokens, experts);
    p = probs.data();
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    double dot = 0;
    for (std::int64_t e = t * experts; e < (t + 1) * experts; ++e)
      if (map[e]) dot += static_cast<double>(p[e]) * dprobs[e];
    for (std::int64_t e = t * experts; e < (t + 1) * experts; ++e)
      if (map[e])
        dlogits[e] += static_cast<T>(sigmoid ? p[e] * (1 - static_cast<double>(p[e])) * dprobs[e]
                                             : p[e] * (dprobs[e] - dot));
  }
}

#define PLIMSOLL_OF(T)                                                                           \
  template double cross_entropy_forward(const LossShape&, const T*, const std::int64_t*);        \
  template void cross_entropy_backward(const LossShape&, const T*, const std::int64_t*, double,  \
                                       T*);                                                      \
  template void route_scores(bool, const T*, T*, std::int64_t, std::int64_t);                    \
  template void route_probs(bool, const T*, const std::int8_t*, T*, std::int64_t, std::int64_t); \
  template void route_backward(bool, const RouteSaved<T>&, const std::int8_t*, const T*, T*,     \
                               std::int64_t, std::int64_t);
PLIMSOLL_OF(float)
PLIMSOLL_OF(double)
#undef PLIMSOLL_OF

}  // namespace plimsoll::runtime::host
