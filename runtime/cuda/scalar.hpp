// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

/// Numbers as kernels see them. Everything here, and every kernel's arithmetic, is compiled for the
/// GPU and for the CPU, where the unit tests hold it against the host device.
#ifdef __CUDACC__
#define PLIMSOLL_HD __host__ __device__ inline
#else
#define PLIMSOLL_HD inline
#endif

namespace plimsoll::runtime::cuda {

/// bf16 in memory, fp32 in arithmetic.
struct Bf16 {
  std::uint16_t bits = 0;
};

PLIMSOLL_HD float from_bits(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float x = 0;
  std::memcpy(&x, &bits, sizeof x);
  return x;
#endif
}
PLIMSOLL_HD std::uint32_t to_bits(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
#endif
}

PLIMSOLL_HD float widen(float x) { return x; }
PLIMSOLL_HD float widen(Bf16 x) { return from_bits(std::uint32_t{x.bits} << 16); }

/// To the nearest, ties to even; a NaN stays one.
PLIMSOLL_HD Bf16 to_bf16(float x) {
  const std::uint32_t bits = to_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>(bits >> 16 | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}
template <class E>
PLIMSOLL_HD E narrow(float x);
template <>
PLIMSOLL_HD float narrow<float>(float x) {
  return x;
}
template <>
PLIMSOLL_HD Bf16 narrow<Bf16>(float x) {
  return to_bf16(x);
}

/// How numbers lie in memory.
enum class Number : std::uint8_t { fp32, bf16 };
constexpr std::int64_t bytes_of(Number n) { return n == Number::bf16 ? 2 : 4; }

/// Numbers in the device's memory. One kernel serves both kinds: the branch is the same for all
/// threads.
struct Array {
  void* at = nullptr;
  Number number = Number::fp32;

  explicit operator bool() const { return at != nullptr; }
  PLIMSOLL_HD bool there() const { return at != nullptr; }
  PLIMSOLL_HD float get(std::int64_t i) const {
    return number == Number::bf16 ? widen(static_cast<const Bf16*>(at)[i])
                                  : static_cast<const float*>(at)[i];
  }
  PLIMSOLL_HD void put(std::int64_t i, float x) const {
    if (number == Number::bf16)
      static_cast<Bf16*>(at)[i] = to_bf16(x);
    else
      static_cast<float*>(at)[i] = x;
  }
  /// Puts, or adds to what is there.
  PLIMSOLL_HD void put(std::int64_t i, float x, bool add) const { put(i, add ? get(i) + x : x); }
  PLIMSOLL_HD Array from(std::int64_t element) const {
    return {static_cast<char*>(at) + element * (number == Number::bf16 ? 2 : 4), number};
  }
};

/// Whole numbers that lie in a few runs: positions of a rank's tokens, rows of a divided weight.
struct Runs {
  static constexpr int kMost = 16;
  int count = 0;
  std::int64_t first[kMost] = {}, length[kMost] = {};

  PLIMSOLL_HD std::int64_t operator[](std::int64_t i) const {
    int r = 0;
    while (r + 1 < count && i >= length[r]) i -= length[r++];
    return first[r] + i;
  }
  PLIMSOLL_HD std::int64_t size() const {
    std::int64_t n = 0;
    for (int r = 0; r < count; ++r) n += length[r];
    return n;
  }
};

/// Random numbers by name, bit for bit those of runtime/host/random.hpp.
struct Mixed {
  std::uint64_t h = 0x243f6a8885a308d3u;

  PLIMSOLL_HD Mixed operator()(std::uint64_t word) const {
    std::uint64_t x = (h ^ word) + 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return {x};
  }
};
PLIMSOLL_HD double uniform(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }
PLIMSOLL_HD double normal(std::uint64_t bits) {
  constexpr double kTwoPi = 6.283185307179586;
  const double u = uniform(Mixed()(bits)(1).h), v = uniform(Mixed()(bits)(2).h);
  return sqrt(-2 * log(1 - u)) * cos(kTwoPi * v);
}
/// The token at a place of the training data, see host::token().
PLIMSOLL_HD std::int64_t token_at(std::uint64_t seed, std::int64_t stream, std::int64_t sequence,
                                  std::int64_t position, std::int64_t vocab) {
  const std::uint64_t bits = Mixed()(seed)(0x746f6b656eu)(static_cast<std::uint64_t>(
      stream))(static_cast<std::uint64_t>(sequence))(static_cast<std::uint64_t>(position))
                                 .h;
  return static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(vocab));
}

/// One thread alone as a team of threads: what a kernel's block is on the CPU. A kernel that walks
/// its work from lane() in steps of size(), and calls sync() between phases that read what others
/// wrote, comes to the same on one thread as on many.
class Solo {
 public:
  explicit Solo(void* shared = nullptr) : shared_(shared) {}
  static constexpr int lane() { return 0; }
  static constexpr int size() { return 1; }
  void sync() const {}
  float sum(float x) const { return x; }
  float most(float x) const { return x; }
  void* shared() const { return shared_; }
  /// Many teams may add to one element at once.
  void add(Array to, std::int64_t i, float x) const { to.put(i, to.get(i) + x); }
  /// c (+)= a b of tiles in shared memory, either of them turned.
  template <class T, class C>
  void multiply(const T& a, bool a_turned, const T& b, bool b_turned, const C& c,
                bool add_to) const {
    const int inner = a_turned ? a.rows : a.cols;
    for (int i = 0; i < c.rows; ++i)
      for (int j = 0; j < c.cols; ++j) {
        float sum = add_to ? c(i, j) : 0;
        for (int k = 0; k < inner; ++k)
          sum += widen(a_turned ? a(k, i) : a(i, k)) * widen(b_turned ? b(j, k) : b(k, j));
        c(i, j) = sum;
      }
  }

 private:
  void* shared_;
};

}  // namespace plimsoll::runtime::cuda
