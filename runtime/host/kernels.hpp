// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "lang/program.hpp"

/// The arithmetic of the ops on plain row-major buffers (tokens x width), forward and backward, for
/// float and double. Nothing here knows of ranks. Backward passes add to the gradients they are
/// given, and a gradient that is nullptr is not wanted. What a pass may read is in its arguments.
namespace plimsoll::runtime::host {

// --- linear: y = x w + bias; x m x k, w k x n
// ------------------------------------------------------
template <class T>
void linear_forward(const T* x, const T* w, const T* bias, T* y, std::int64_t m, std::int64_t k,
                    std::int64_t n);
template <class T>
void linear_backward(const T* x, const T* w, const T* dy, T* dx, T* dw, T* dbias, std::int64_t m,
                     std::int64_t k, std::int64_t n);

// --- norms
// -----------------------------------------------------------------------------------------
/// `rows` vectors of `width` elements (tokens times groups). The scale is shared by all rows;
/// without one (nullptr) it is 1. Of a vector that lies divided on several ranks, `whole` is its
/// full length and `sum` adds numbers up over them.
struct NormShape {
  std::int64_t rows = 0, width = 0, whole = 0;
  bool centred = false;   ///< layernorm: the mean is taken off; statistics are pairs
  bool plus_one = false;  ///< the scale is 1 + w
  std::function<void(double*, std::int64_t)> sum;
};
inline constexpr double kNormEpsilon = 1e-5;

/// Statistics: 1/rms a row, or mean and 1/deviation. They and `normalized` are written where
/// wanted.
template <class T>
void norm_forward(const NormShape&, const T* x, const T* w, const T* bias, T* y, T* stats,
                  T* normalized);
/// From one of: x (statistics too where given), y and stats, normalized and stats.
template <class T>
struct NormSaved {
  const T *x = nullptr, *y = nullptr, *normalized = nullptr, *stats = nullptr;
};
template <class T>
void norm_backward(const NormShape&, const NormSaved<T>&, const T* w, const T* bias, const T* dy,
                   T* dx, T* dw, T* dbias);

// --- element by element
// ----------------------------------------------------------------------------
/// gelu (with the error function), relu, squared_relu, silu, tanh, softcap (cap * tanh(x / cap)).
template <class T>
void unary_forward(OpKind, double cap, const T* x, T* y, std::int64_t count);
/// From x, or (relu, tanh, softcap) y: one of them is nullptr.
template <class T>
void unary_backward(OpKind, double cap, const T* x, const T* y, const T* dy, T* dx,
                    std::int64_t count);

/// Turns the last `last` elements of each of `heads` heads by angles of the row's position: pairs
/// are an element of the first half and its fellow of the second. Backward turns back and adds.
template <class T>
void rope(const T* x, T* y, const std::vector<std::int64_t>& positions, std::int64_t heads,
          std::int64_t head_dim, std::int64_t last, bool backward);

// --- attention
// -------------------------------------------------------------------------------------
/// Rows of q, k and v are (token, sequence of the micro-batch), heads side by side in a row; rows
/// of one sequence see each other. Scores are q k / sqrt(q's width), then softcap, then biases.
struct AttentionShape {
  std::int64_t sequences = 1;  ///< of the micro-batch
  std::int64_t heads = 0, kv_heads = 0, q_width = 0, v_width = 0;
  const std::vector<std::int64_t>*q_positions = nullptr, *k_positions = nullptr;
  bool causal = false;
  std::int64_t window = 0, chunk = 0;
  double cap = 0;                              ///< 0: none
  const std::vector<double>* alibi = nullptr;  ///< a slope a head
  const double* sinks = nullptr;               ///< a logit a head that takes part in the softmax
  double drop = 0;                             ///< share of probabilities that the mask removes

  std::int64_t queries() const { return static_cast<std::int64_t>(q_positions->size()); }
  std::int64_t keys() const { return static_cast<std::int64_t>(k_positions->size()); }
  std::int64_t q_rows() const { return queries() * sequences; }
  std::int64_t k_rows() const { return keys() * sequences; }
  bool sees(std::int64_t query, std::int64_t key) const;
};
/// What an unfused pass leaves: probabilities (q_rows x heads x keys), their mask and what is left
/// of them. The flash pass leaves lse (q_rows x heads). Each is written where it is not nullptr;
/// `mask` is read.
template <class T>
struct AttentionKept {
  T *lse = nullptr, *scores = nullptr, *probs = nullptr, *dropped = nullptr;
  const std::int8_t* mask = nullptr;
};
template <class T>
void attention_forward(const AttentionShape&, const T* q, const T* k, const T* v, T* output,
                       const AttentionKept<T>&);
/// From output and lse, or from probs and (where dropped) mask.
template <class T>
struct AttentionSaved {
  const T *q = nullptr, *k = nullptr, *v = nullptr, *output = nullptr, *lse = nullptr,
          *probs = nullptr;
  const std::int8_t* mask = nullptr;
};
template <class T>
void attention_backward(const AttentionShape&, const AttentionSaved<T>&, const T* doutput, T* dq,
                        T* dk, T* dv, T* dsinks);

// --- loss
// ------------------------------------------------------------------------------------------
/// Rows of logits of which this rank has the columns `first` .. `first + width` of `vocab`; columns
/// from vocab on are padding and have no part. `largest` and `sum` combine a number a row over the
/// ranks that have the others.
struct LossShape {
  std::int64_t rows = 0, width = 0, first = 0, vocab = 0;
  std::function<void(double*, std::int64_t)> largest, sum;
};
/// The sum over rows of -log softmax(logits)[target].
template <class T>
double cross_entropy_forward(const LossShape&, const T* logits, const std::int64_t* targets);
template <class T>
void cross_entropy_backward(const LossShape&, const T* logits, const std::int64_t* targets,
                            double scale, T* dlogits);

// --- routing
// ---------------------------------------------------------------------------------------
/// scores = softmax or sigmoid of logits. A chosen expert's weight is its score, of softmax divided
/// by the sum of the chosen ones.
template <class T>
void route_scores(bool sigmoid, const T* logits, T* scores, std::int64_t tokens,
                  std::int64_t experts);
/// From scores (or logits) and the map of what was chosen (tokens x experts).
template <class T>
void route_probs(bool sigmoid, const T* scores, const std::int8_t* map, T* probs,
                 std::int64_t tokens, std::int64_t experts);
/// From one of scores, logits, probs.
template <class T>
struct RouteSaved {
  const T *scores = nullptr, *logits = nullptr, *probs = nullptr;
};
template <class T>
void route_backward(bool sigmoid, const RouteSaved<T>&, const std::int8_t* map, const T* dprobs,
                    T* dlogits, std::int64_t tokens, std::int64_t experts);

}  // namespace plimsoll::runtime::host
