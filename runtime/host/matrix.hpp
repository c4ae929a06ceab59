// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>

/// Matrix products on row-major buffers: the door to Eigen. For float and double.
namespace plimsoll::runtime::host {

/// A factor as it lies in memory, or its transpose.
enum class As : std::uint8_t { stored, transposed };

/// c (m x n) = or += a (m x k) * b (k x n). A transposed factor lies in memory as k x m or n x k.
template <class T>
void multiply(const T* a, As a_as, const T* b, As b_as, T* c, std::int64_t m, std::int64_t n,
              std::int64_t k, bool add);

}  // namespace plimsoll::runtime::host
