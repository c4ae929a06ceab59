// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <cmath>
#include <limits>

#include "runtime/host/kernels.hpp"

namespace plimsoll::runtime::host {

bool AttentionShape::sees(std::int64_t query, std::int64_t key) const {
  const std::int64_t qp = (*q_positions)[static_cast<std::size_t>(query)];
  const std::int64_t kp = (*k_positions)[static_cast<std::size_t>(key)];
  if (causal && kp > qp) return false;
  if (window > 0 && std::abs(qp - kp) >= window) return false;
  return chunk == 0 || qp / chunk == kp / chunk;
}

namespace {

/// One query of one head: where its data lies, and its scores.
template <class T>
struct Query {
  const AttentionShape& s;
  const T *q, *k, *v;
  std::int64_t sequence, query, head;

  std::int64_t kv_head() const { return head / (s.heads / s.kv_heads); }
  std::int64_t q_row() const { return query * s.sequences + sequence; }
  std::int64_t at_q() const { return (q_row() * s.heads + head) * s.q_width; }
  std::int64_t at_out() const { return (q_row() * s.heads + head) * s.v_width; }
  std::int64_t at_row() const { return q_row() * s.heads + head; }
  std::int64_t at_k(std::int64_t key) const {
    return ((key * s.sequences + sequence) * s.kv_heads + kv_head()) * s.q_width;
  }
  std::int64_t at_v(std::int64_t key) const {
    return ((key * s.sequences + sequence) * s.kv_heads + kv_head()) * s.v_width;
  }

  /// The score before its biases, and how it changes with q k.
  double score(std::int64_t key, double* slope = nullptr) const {
    double dot = 0;
    for (std::int64_t d = 0; d < s.q_width; ++d)
      dot += static_cast<double>(q[at_q() + d]) * k[at_k(key) + d];
    const double scale = 1 / std::sqrt(static_cast<double>(s.q_width));
    const double scaled = dot * scale;
    const double t = s.cap > 0 ? std::tanh(scaled / s.cap) : 0;
    if (slope) *slope = s.cap > 0 ? scale * (1 - t * t) : scale;
    return s.cap > 0 ? s.cap * t : scaled;
  }
  double bias(std::int64_t key) const {
    if (!s.alibi) return 0;
    const auto distance = (*s.k_positions)[static_cast<std::size_t>(key)] -
                          (*s.q_positions)[static_cast<std::size_t>(query)];
    return (*s.alibi)[static_cast<std::size_t>(head)] * static_cast<double>(distance);
  }
};

template <class T, class F>
void for_each_query(const AttentionShape& s, const T* q, const T* k, const T* v, F f) {
  for (std::int64_t b = 0; b < s.sequences; ++b)
    for (std::int64_t i = 0; i < s.queries(); ++i)
      for (std::int64_t h = 0; h < s.heads; ++h) f(Query<T>{s, q, k, v, b, i, h});
}

template <class T>
void forward_query(const Query<T>& at, T* output, const AttentionKept<T>& kept) {
  const AttentionShape& s = at.s;
  std::vector<double> scores(static_cast<std::size_t>(s.keys()),
                             -std::numeric_limits<double>::infinity());
  double largest = s.sinks ? s.sinks[at.head] : -std::numeric_limits<double>::infinity();
  for (std::int64_t j = 0; j < s.keys(); ++j) {
    if (!s.sees(at.query, j)) continue;
    scores[static_cast<std::size_t>(j)] = at.score(j) + at.bias(j);
    largest = std::max(largest, scores[static_cast<std::size_t>(j)]);
  }
  // A block of a ring may hold no key that the query sees.
  const bool any = std::isfinite(largest);
  double sum = s.sinks ? std::exp(s.sinks[at.head] - largest) : 0;
  for (const double x : scores) sum += any ? std::exp(x - largest) : 0;
  std::vector<double> out(static_cast<std::size_t>(s.v_width));
  for (std::int64_t j = 0; j < s.keys(); ++j) {
    const double score = scores[static_cast<std::size_t>(j)];
    const double p = any ? std::exp(score - largest) / sum : 0;
    const std::int64_t cell = at.at_row() * s.keys() + j;
    const double left = kept.mask ? p * kept.mask[cell] / (1 - s.drop) : p;
    if (kept.scores) kept.scores[cell] = static_cast<T>(score);
    if (kept.probs) kept.probs[cell] = static_cast<T>(p);
    if (kept.dropped) kept.dropped[cell] = static_cast<T>(left);
    if (left == 0) continue;
    for (std::size_t d = 0; d < out.size(); ++d)
      out[d] += left * at.v[at.at_v(j) + static_cast<std::int64_t>(d)];
  }
  if (kept.lse) kept.lse[at.at_row()] = static_cast<T>(any ? largest + std::log(sum) : largest);
  for (std::size_t d = 0; d < out.size(); ++d)
    output[at.at_out() + static_cast<std::int64_t>(d)] = static_cast<T>(out[d]);
}

/// With P = softmax(S) and D = sum of P dP: dS = P (dP - D). Of flash, D = output . doutput, P =
/// exp(S - lse) (Dao et al. 2022, algorithm 4); a sink's P is what the others leave.
template <class T>
void backward_query(const Query<T>& at, const AttentionSaved<T>& saved, const T* doutput, T* dq,
                    T* dk, T* dv, T* dsinks) {
  const AttentionShape& s = at.s;
  const auto n = static_cast<std::size_t>(s.keys());
  std::vector<double> p(n), dp(n), slope(n);
  double dot = 0, seen = 0;
  for (std::int64_t j = 0; j < s.keys(); ++j) {
    if (!s.sees(at.query, j)) continue;
    const auto key = static_cast<std::size_t>(j);
    const std::int64_t cell = at.at_row() * s.keys() + j;
    const double score = at.score(j, &slope[key]) + at.bias(j);
    p[key] = saved.probs ? static_cast<double>(saved.probs[cell])
                         : std::exp(score - saved.lse[at.at_row()]);
    const double kept = saved.mask ? saved.mask[cell] / (1 - s.drop) : 1;
    for (std::int64_t d = 0; d < s.v_width; ++d) {
      const double g = doutput[at.at_out() + d];
      dp[key] += kept * g * at.v[at.at_v(j) + d];
      if (dv) dv[at.at_v(j) + d] += static_cast<T>(p[key] * kept * g);
    }
    dot += p[key] * dp[key];
    seen += p[key];
  }
  if (!saved.probs) {
    dot = 0;
    for (std::int64_t d = 0; d < s.v_width; ++d)
      dot += static_cast<double>(doutput[at.at_out() + d]) * saved.output[at.at_out() + d];
  }
  if (dsinks) {
    const double sink =
        saved.probs ? 1 - seen : std::exp(s.sinks[at.head] - saved.lse[at.at_row()]);
    dsinks[at.head] -= static_cast<T>(sink * dot);
  }
  for (std::int64_t j = 0; j < s.keys(); ++j) {
    const auto key = static_cast<std::size_t>(j);
    const double ds = p[key] * (dp[key] - dot) * slope[key];
    if (ds == 0) continue;
    for (std::int64_t d = 0; d < s.q_width; ++d) {
      if (dq) dq[at.at_q() + d] += static_cast<T>(ds * at.k[at.at_k(j) + d]);
      if (dk) dk[at.at_k(j) + d] += static_cast<T>(ds * at.q[at.at_q() + d]);
    }
  }
}

}  // namespace

template <class T>
void attention_forward(const AttentionShape& s, const T* q, const T* k, const T* v, T* output,
                       const AttentionKept<T>& kept) {
  for_each_query(s, q, k, v, [&](const Query<T>& at) { forward_query(at, output, kept); });
}

template <class T>
void attention_backward(const AttentionShape& s, const AttentionSaved<T>& saved, const T* doutput,
                        T* dq, T* dk, T* dv, T* dsinks) {
  for_each_query(s, saved.q, saved.k, saved.v, [&](const Query<T>& at) {
    backward_query(at, saved, doutput, dq, dk, dv, dsinks);
  });
}

#define PLIMSOLL_OF(T)                                                                            \
  template void attention_forward(const AttentionShape&, const T*, const T*, const T*, T*,        \
                                  const AttentionKept<T>&);                                       \
  template void attention_backward(const AttentionShape&, const AttentionSaved<T>&, const T*, T*, \
                                   T*, T*, T*);
PLIMSOLL_OF(float)
PLIMSOLL_OF(double)
#undef PLIMSOLL_OF

}  // namespace plimsoll::runtime::host
