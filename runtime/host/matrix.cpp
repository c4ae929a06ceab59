// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/host/matrix.hpp"

#include <Eigen/Core>

namespace plimsoll::runtime::host {

namespace {

template <class T>
using Matrix = Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;

}  // namespace

template <class T>
void multiply(const T* a, As a_as, const T* b, As b_as, T* c, std::int64_t m, std::int64_t n,
              std::int64_t k, bool add) {
  const bool at = a_as == As::transposed, bt = b_as == As::transposed;
  const Matrix<T> left(a, at ? k : m, at ? m : k);
  const Matrix<T> right(b, bt ? n : k, bt ? k : n);
  Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>> out(c, m, n);
  if (!add) out.setZero();
  if (m == 0 || n == 0 || k == 0) return;
  if (at && bt)
    out.noalias() += left.transpose() * right.transpose();
  else if (at)
    out.noalias() += left.transpose() * right;
  else if (bt)
    out.noalias() += left * right.transpose();
  else
    out.noalias() += left * right;
}

template void multiply(const float*, As, const float*, As, float*, std::int64_t, std::int64_t,
                       std::int64_t, bool);
template void multiply(const double*, As, const double*, As, double*, std::int64_t, std::int64_t,
                       std::int64_t, bool);

}  // namespace plimsoll::runtime::host
