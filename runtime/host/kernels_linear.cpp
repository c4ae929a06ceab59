// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/host/kernels.hpp"
#include "runtime/host/matrix.hpp"

namespace plimsoll::runtime::host {

template <class T>
void linear_forward(const T* x, const T* w, const T* bias, T* y, std::int64_t m, std::int64_t k,
                    std::int64_t n) {
  multiply(x, As::stored, w, As::stored, y, m, n, k, false);
  if (!bias) return;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) y[i * n + j] += bias[j];
}

template <class T>
void linear_backward(const T* x, const T* w, const T* dy, T* dx, T* dw, T* dbias, std::int64_t m,
                     std::int64_t k, std::int64_t n) {
  if (dx) multiply(dy, As::stored, w, As::transposed, dx, m, k, n, true);
  if (dw) multiply(x, As::transposed, dy, As::stored, dw, k, n, m, true);
  if (!dbias) return;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) dbias[j] += dy[i * n + j];
}

#define PLIMSOLL_OF(T)                                                                       \
  template void linear_forward(const T*, const T*, const T*, T*, std::int64_t, std::int64_t, \
                               std::int64_t);                                                \
  template void linear_backward(const T*, const T*, const T*, T*, T*, T*, std::int64_t,      \
                                std::int64_t, std::int64_t);
PLIMSOLL_OF(float)
PLIMSOLL_OF(double)
#undef PLIMSOLL_OF

}  // namespace plimsoll::runtime::host
