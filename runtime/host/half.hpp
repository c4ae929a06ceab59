// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <cstring>

/// bf16 in memory, fp32 in arithmetic.
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

/// How numbers lie in a tensor.
enum class Storage : std::uint8_t { fp32, bf16, raw };

inline std::int64_t bytes_of(Storage s) { return s == Storage::bf16 ? 2 : 4; }

inline void decode(Storage s, const std::byte* from, std::int64_t count, float* to) {
  if (s == Storage::fp32) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * 4);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, from + 2 * i, 2);
    to[i] = from_bf16(half);
  }
}

inline void encode(Storage s, const float* from, std::int64_t count, std::byte* to) {
  if (s == Storage::fp32) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * 4);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint16_t half = to_bf16(from[i]);
    std::memcpy(to + 2 * i, &half, 2);
  }
}

}  // namespace plimsoll::runtime::host
