// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>

/// Random numbers by name: each is a function of what it is for (a weight's element, a token and a
/// column), never of the order in which ranks ask, so that every layout draws the same.
namespace plimsoll::runtime::host {

/// Mixes integers to 64 evenly spread bits (the finalizer of SplitMix64; Steele et al. 2014).
inline std::uint64_t mix(std::initializer_list<std::uint64_t> words) {
  std::uint64_t h = 0x243f6a8885a308d3u;
  for (const std::uint64_t w : words) {
    h = (h ^ w) + 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
    h ^= h >> 31;
  }
  return h;
}

/// In [0, 1).
inline double uniform(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

/// Mean 0, deviation 1 (Box and Muller 1958).
inline double normal(std::uint64_t bits) {
  constexpr double kTwoPi = 6.283185307179586;
  const double u = uniform(mix({bits, 1})), v = uniform(mix({bits, 2}));
  return std::sqrt(-2 * std::log(1 - u)) * std::cos(kTwoPi * v);
}

}  // namespace plimsoll::runtime::host
