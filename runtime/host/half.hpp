// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

/// bf16 or fp16 in memory, fp32 in arithmetic.
namespace plimsoll::runtime::host {

/// To the nearest, ties to even; a NaN stays one.
inline std::uint16_t to_bf16(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline float from_bf16(std::uint16_t half) {
  const std::uint32_t bits = std::uint32_t{half} << 16;
  float x = 0;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

/// IEEE 754 binary16, likewise: 11 bits of mantissa, and steps of 2^-24 below 2^-14. What is too
/// large for it is infinite.
inline std::uint16_t to_fp16(float x) {
  constexpr std::uint16_t kInfinite = 0x7c00u, kNan = 0x7e00u;
  const auto sign = static_cast<std::uint16_t>(std::signbit(x) ? 0x8000u : 0u);
  if (std::isnan(x)) return sign | kNan;
  const float size = std::abs(x);
  if (size < std::ldexp(1.0f, -14))
    return static_cast<std::uint16_t>(sign | std::lrint(std::ldexp(size, 24)));
  if (!(size < 65520.0f)) return sign | kInfinite;
  int exponent = 0;
  const float mantissa = std::frexp(size, &exponent);  // from 0.5 to 1
  // The mantissa's carry, where it rounds up to 2048, belongs to the exponent: as addition has it.
  const std::int64_t whole = std::lrint(std::ldexp(mantissa, 11)) - 1024;
  return static_cast<std::uint16_t>(sign | (((exponent + 14) << 10) + whole));
}

inline float from_fp16(std::uint16_t half) {
  const int exponent = half >> 10 & 31, mantissa = half & 1023;
  const float size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                     : exponent == 0
                         ? std::ldexp(static_cast<float>(mantissa), -24)
                         : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  return (half & 0x8000u) != 0 ? -size : size;
}

/// How numbers lie in a tensor.
enum class Storage : std::uint8_t { fp32, bf16, fp16, raw };

inline bool is_half(Storage s) { return s == Storage::bf16 || s == Storage::fp16; }
inline std::int64_t bytes_of(Storage s) { return is_half(s) ? 2 : 4; }

inline void decode(Storage s, const std::byte* from, std::int64_t count, float* to) {
  if (s == Storage::fp32) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * 4);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, from + 2 * i, 2);
    to[i] = s == Storage::fp16 ? from_fp16(half) : from_bf16(half);
  }
}

inline void encode(Storage s, const float* from, std::int64_t count, std::byte* to) {
  if (s == Storage::fp32) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * 4);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint16_t half = s == Storage::fp16 ? to_fp16(from[i]) : to_bf16(from[i]);
    std::memcpy(to + 2 * i, &half, 2);
  }
}

}  // namespace plimsoll::runtime::host
