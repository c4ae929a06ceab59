// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lang/rational.hpp"

namespace plimsoll {

/// Exponents of the base quantities; all zero is a count. GB/s is {bytes = 1, seconds = -1}.
struct Dimension {
  std::int8_t bytes = 0;
  std::int8_t flops = 0;
  std::int8_t seconds = 0;
  std::int8_t money = 0;

  friend bool operator==(const Dimension&, const Dimension&) = default;
  friend Dimension operator*(Dimension a, Dimension b);
  friend Dimension operator/(Dimension a, Dimension b);
  bool is_count() const { return *this == Dimension{}; }
  /// As errors name it: "a count", "bytes", "bytes per second", "money per hour"-like words.
  std::string str() const;
};

inline constexpr Dimension kCount{};
inline constexpr Dimension kBytes{1, 0, 0, 0};
inline constexpr Dimension kFlops{0, 1, 0, 0};
inline constexpr Dimension kSeconds{0, 0, 1, 0};
inline constexpr Dimension kMoney{0, 0, 0, 1};

/// A unit word of the language: "GiB", "TFLOP/s", "%", "tokens". One of it is `scale` base units.
struct Unit {
  std::string_view name;
  Rational scale;
  Dimension dimension;
};

/// The unit spelled \a word (with a glued "/s" or "/h" if there is one), or nullopt.
std::optional<Unit> find_unit(std::string_view word);
/// Every unit's spelling, for "did you mean".
const std::vector<std::string>& unit_names();
/// The factor of a glued multiplier: k M G T (1000) and Ki Mi Gi Ti (1024), or nullopt.
std::optional<Rational> find_multiplier(std::string_view word);

/// An exact number with its dimension, in base units (bytes, FLOPs, seconds, USD).
struct Quantity {
  Rational value;
  Dimension dimension;
};

/// For people: "79.18 GiB", "8,192", "450 GB/s", "38.2 %"-like text with its unit.
std::string human(const Quantity&);
/// "61.32 GiB", "812.0 MiB", "512 B".
std::string human_bytes(Int128 bytes);
/// "8,030,261,248".
std::string grouped(Int128 value);

}  // namespace plimsoll
