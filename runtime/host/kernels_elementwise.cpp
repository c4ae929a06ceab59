// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <cmath>

#include "lang/diagnostics.hpp"
#include "runtime/host/kernels.hpp"

namespace plimsoll::runtime::host {

namespace {

constexpr double kInverseSqrt2 = 0.70710678118654752, kInverseSqrt2Pi = 0.39894228040143268;
constexpr double kRopeBase = 10000;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double value(OpKind kind, double cap, double x) {
  switch (kind) {
    case OpKind::gelu:
      return 0.5 * x * (1 + std::erf(x * kInverseSqrt2));
    case OpKind::relu:
      return x > 0 ? x : 0;
    case OpKind::squared_relu:
      return x > 0 ? x * x : 0;
    case OpKind::silu:
      return x * sigmoid(x);
    case OpKind::tanh:
      return std::tanh(x);
    case OpKind::softcap:
      return cap * std::tanh(x / cap);
    default:
      break;
  }
  PLIMSOLL_ASSERT(false);
  return 0;
}

double slope_at(OpKind kind, double cap, double x) {
  switch (kind) {
    case OpKind::gelu:
      return 0.5 * (1 + std::erf(x * kInverseSqrt2)) + x * kInverseSqrt2Pi * std::exp(-0.5 * x * x);
    case OpKind::relu:
      return x > 0 ? 1 : 0;
    case OpKind::squared_relu:
      return x > 0 ? 2 * x : 0;
    case OpKind::silu:
      return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
    case OpKind::tanh:
    case OpKind::softcap: {
      const double t = std::tanh(kind == OpKind::tanh ? x : x / cap);
      return 1 - t * t;
    }
    default:
      break;
  }
  PLIMSOLL_ASSERT(false);
  return 0;
}

double slope_from_output(OpKind kind, double cap, double y) {
  switch (kind) {
    case OpKind::relu:
      return y > 0 ? 1 : 0;
    case OpKind::tanh:
      return 1 - y * y;
    case OpKind::softcap:
      return 1 - y / cap * (y / cap);
    default:
      break;
  }
  PLIMSOLL_ASSERT(false);
  return 0;
}

}  // namespace

template <class T>
void unary_forward(OpKind kind, double cap, const T* x, T* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = static_cast<T>(value(kind, cap, x[i]));
}

template <class T>
void unary_backward(OpKind kind, double cap, const T* x, const T* y, const T* dy, T* dx,
                    std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const double slope = x ? slope_at(kind, cap, x[i]) : slope_from_output(kind, cap, y[i]);
    dx[i] += static_cast<T>(slope * dy[i]);
  }
}

template <class T>
void rope(const T* x, T* y, const std::vector<std::int64_t>& positions, std::int64_t heads,
          std::int64_t head_dim, std::int64_t last, bool backward) {
  const std::int64_t half = last / 2;
  std::vector<double> sine(static_cast<std::size_t>(half)), cosine(sine.size());
  for (std::size_t row = 0; row < positions.size(); ++row) {
    for (std::size_t j = 0; j < sine.size(); ++j) {
      const double exponent = 2 * static_cast<double>(j) / static_cast<double>(last);
      const double angle = static_cast<double>(positions[row]) * std::pow(kRopeBase, -exponent);
      sine[j] = backward ? -std::sin(angle) : std::sin(angle);
      cosine[j] = std::cos(angle);
    }
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t at = (static_cast<std::int64_t>(row) * heads + h) * head_dim;
      const auto put = [&](std::int64_t i, double v) {
        y[at + i] = static_cast<T>(backward ? y[at + i] + v : v);
      };
      for (std::int64_t i = 0; i < head_dim - 2 * half; ++i) put(i, x[at + i]);
      const std::int64_t turned = head_dim - 2 * half;
      for (std::int64_t j = 0; j < half; ++j) {
        const double a = x[at + turned + j], b = x[at + turned + half + j];
        const auto k = static_cast<std::size_t>(j);
        put(turned + j, a * cosine[k] - b * sine[k]);
        put(turned + half + j, a * sine[k] + b * cosine[k]);
      }
    }
  }
}

#define PLIMSOLL_OF(T)                                                                           \
  template void unary_forward(OpKind, double, const T*, T*, std::int64_t);                       \
  template void unary_backward(OpKind, double, const T*, const T*, const T*, T*, std::int64_t);  \
  template void rope(const T*, T*, const std::vector<std::int64_t>&, std::int64_t, std::int64_t, \
                     std::int64_t, bool);
PLIMSOLL_OF(float)
PLIMSOLL_OF(double)
#undef PLIMSOLL_OF

}  // namespace plimsoll::runtime::host
