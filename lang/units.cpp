// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace plimsoll {

namespace {

constexpr std::int64_t kKilo = 1'000;
constexpr std::int64_t kMega = kKilo * kKilo;
constexpr std::int64_t kGiga = kMega * kKilo;
constexpr std::int64_t kTera = kGiga * kKilo;
constexpr std::int64_t kPeta = kTera * kKilo;
constexpr std::int64_t kExa = kPeta * kKilo;
constexpr std::int64_t kKibi = 1'024;
constexpr std::int64_t kMebi = kKibi * kKibi;
constexpr std::int64_t kGibi = kMebi * kKibi;
constexpr std::int64_t kTebi = kGibi * kKibi;

struct UnitRow {
  std::string_view name;
  std::int64_t num;  ///< one of it is num / den base units
  std::int64_t den;
  Dimension dimension;
};

constexpr std::array kUnits = {
    UnitRow{"B", 1, 1, kBytes},         UnitRow{"KB", kKilo, 1, kBytes},
    UnitRow{"kB", kKilo, 1, kBytes},    UnitRow{"MB", kMega, 1, kBytes},
    UnitRow{"GB", kGiga, 1, kBytes},    UnitRow{"TB", kTera, 1, kBytes},
    UnitRow{"PB", kPeta, 1, kBytes},    UnitRow{"KiB", kKibi, 1, kBytes},
    UnitRow{"MiB", kMebi, 1, kBytes},   UnitRow{"GiB", kGibi, 1, kBytes},
    UnitRow{"TiB", kTebi, 1, kBytes},   UnitRow{"b", 1, 8, kBytes},
    UnitRow{"Kb", kKilo, 8, kBytes},    UnitRow{"Mb", kMega, 8, kBytes},
    UnitRow{"Gb", kGiga, 8, kBytes},    UnitRow{"Tb", kTera, 8, kBytes},
    UnitRow{"FLOP", 1, 1, kFlops},      UnitRow{"kFLOP", kKilo, 1, kFlops},
    UnitRow{"MFLOP", kMega, 1, kFlops}, UnitRow{"GFLOP", kGiga, 1, kFlops},
    UnitRow{"TFLOP", kTera, 1, kFlops}, UnitRow{"PFLOP", kPeta, 1, kFlops},
    UnitRow{"EFLOP", kExa, 1, kFlops},  UnitRow{"ns", 1, kGiga, kSeconds},
    UnitRow{"us", 1, kMega, kSeconds},  UnitRow{"ms", 1, kKilo, kSeconds},
    UnitRow{"s", 1, 1, kSeconds},       UnitRow{"min", 60, 1, kSeconds},
    UnitRow{"h", 3'600, 1, kSeconds},   UnitRow{"day", 86'400, 1, kSeconds},
    UnitRow{"%", 1, 100, kCount},       UnitRow{"USD", 1, 1, kMoney},
    UnitRow{"tokens", 1, 1, kCount},    UnitRow{"sequences", 1, 1, kCount},
};

struct MultiplierRow {
  std::string_view name;
  std::int64_t factor;
};

constexpr std::array kMultipliers = {
    MultiplierRow{"k", kKilo},  MultiplierRow{"M", kMega},  MultiplierRow{"G", kGiga},
    MultiplierRow{"T", kTera},  MultiplierRow{"Ki", kKibi}, MultiplierRow{"Mi", kMebi},
    MultiplierRow{"Gi", kGibi}, MultiplierRow{"Ti", kTebi},
};

/// A step of a scale for people: numbers of at least `scale` base units are shown in `name`.
struct Step {
  double scale;
  std::string_view name;
};

constexpr std::array kByteRateSteps = {Step{1e15, "PB/s"}, Step{1e12, "TB/s"}, Step{1e9, "GB/s"},
                                       Step{1e6, "MB/s"},  Step{1e3, "kB/s"},  Step{0, "B/s"}};
constexpr std::array kFlopSteps = {Step{1e18, "EFLOP"}, Step{1e15, "PFLOP"}, Step{1e12, "TFLOP"},
                                   Step{1e9, "GFLOP"},  Step{1e6, "MFLOP"},  Step{1e3, "kFLOP"},
                                   Step{0, "FLOP"}};
constexpr std::array kTimeSteps = {Step{86'400, "day"}, Step{3'600, "h"}, Step{60, "min"},
                                   Step{1, "s"},        Step{1e-3, "ms"}, Step{1e-6, "us"},
                                   Step{0, "ns"}};

/// Up to four significant digits, without trailing zeros: "450", "3.35", "0.125"; grouped from
/// 10,000 on.
std::string short_decimal(double value) {
  const double size = std::abs(value);
  if (size >= 9'999.5) {
    if (size < 1e30) return grouped(static_cast<Int128>(std::round(value)));
    return fmt::format("{:.3e}", value);
  }
  if (size != 0 && size < 1e-4) return fmt::format("{:.3e}", value);
  const int whole = size < 1 ? 1 : static_cast<int>(std::floor(std::log10(size))) + 1;
  std::string text = fmt::format("{:.{}f}", value, std::max(0, 4 - whole));
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.ends_with('.')) text.pop_back();
  }
  return text;
}

template <std::size_t N>
std::string scaled(double value, const std::array<Step, N>& steps) {
  // A value that rounds up to the next step is shown there: "1 ms", not "1000 us".
  for (const Step& step : steps) {
    const bool last = &step == &steps.back();
    if (last || std::abs(value) >= step.scale * (1 - 5e-5)) {
      const double unit = step.scale > 0 ? step.scale : (step.name == "ns" ? 1e-9 : 1);
      return fmt::format("{} {}", short_decimal(value / unit), step.name);
    }
  }
  return {};
}

std::string plain(const Rational& value) {
  if (value.is_integer()) return grouped(value.num());
  return short_decimal(value.to_double());
}

/// floor(a / b + 1/2) for a >= 0.
Int128 rounded(Int128 a, Int128 b) { return a / b + (a % b >= b - a % b ? 1 : 0); }

void append(std::string& text, std::string_view name, int exponent) {
  if (!text.empty()) text += ' ';
  text += name;
  if (exponent > 1) text += fmt::format("^{}", exponent);
}

std::int8_t exponent(int value) {
  if (value < INT8_MIN || value > INT8_MAX) throw ArithmeticError("the unit has too high a power");
  return static_cast<std::int8_t>(value);
}

}  // namespace

Dimension operator*(Dimension a, Dimension b) {
  return {exponent(a.bytes + b.bytes), exponent(a.flops + b.flops), exponent(a.seconds + b.seconds),
          exponent(a.money + b.money)};
}

Dimension operator/(Dimension a, Dimension b) {
  return {exponent(a.bytes - b.bytes), exponent(a.flops - b.flops), exponent(a.seconds - b.seconds),
          exponent(a.money - b.money)};
}

std::string Dimension::str() const {
  if (is_count()) return "a count";
  if (*this == Dimension{0, 0, -1, 1}) return "money per hour";
  std::string top;
  std::string bottom;
  if (bytes > 0) append(top, "bytes", bytes);
  if (flops > 0) append(top, "FLOPs", flops);
  if (seconds > 0) append(top, "seconds", seconds);
  if (money > 0) append(top, "money", money);
  if (bytes < 0) append(bottom, "byte", -bytes);
  if (flops < 0) append(bottom, "FLOP", -flops);
  if (seconds < 0) append(bottom, "second", -seconds);
  if (money < 0) append(bottom, "USD", -money);
  if (top.empty()) top = "a count";
  return bottom.empty() ? top : top + " per " + bottom;
}

std::optional<Unit> find_unit(std::string_view word) {
  std::string_view stem = word;
  std::int64_t per = 1;
  if (stem.ends_with("/s") || stem.ends_with("/h")) {
    per = stem.back() == 'h' ? 3'600 : 1;
    stem.remove_suffix(2);
  }
  for (const UnitRow& row : kUnits) {
    if (row.name != stem) continue;
    if (stem.size() == word.size())
      return Unit{row.name, Rational::fraction(row.num, row.den), row.dimension};
    const auto den = static_cast<Int128>(row.den) * per;
    return Unit{word, Rational::fraction(row.num, den), row.dimension / kSeconds};
  }
  return std::nullopt;
}

const std::vector<std::string>& unit_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const UnitRow& row : kUnits) result.emplace_back(row.name);
    for (const char* rate :
         {"B/s", "MB/s", "GB/s", "TB/s", "Gb/s", "TFLOP/s", "PFLOP/s", "tokens/s", "USD/h"})
      result.emplace_back(rate);
    return result;
  }();
  return names;
}

std::optional<Rational> find_multiplier(std::string_view word) {
  for (const MultiplierRow& row : kMultipliers)
    if (row.name == word) return Rational(row.factor);
  return std::nullopt;
}

std::string human(const Quantity& quantity) {
  const Rational& value = quantity.value;
  const Dimension& d = quantity.dimension;
  if (d.is_count()) return plain(value);
  if (d == kBytes && !value.is_integer() && value.abs() < kKibi)
    return short_decimal(value.to_double()) + " B";
  if (d == kBytes) return human_bytes(value.round().num());
  if (d == kBytes / kSeconds) return scaled(value.to_double(), kByteRateSteps);
  if (d == kFlops) return scaled(value.to_double(), kFlopSteps);
  if (d == kFlops / kSeconds) return scaled(value.to_double(), kFlopSteps) + "/s";
  if (d == kSeconds) return value.is_zero() ? "0 s" : scaled(value.to_double(), kTimeSteps);
  if (d == kMoney) return plain(value) + " USD";
  if (d == kMoney / kSeconds) return plain(value * 3'600) + " USD/h";
  if (d == kCount / kSeconds) return plain(value) + "/s";
  return plain(value) + ' ' + d.str();
}

std::string human_bytes(Int128 bytes) {
  if (bytes < 0) {
    // The one value without an opposite is as good as its neighbour here.
    return '-' + human_bytes(-std::max(bytes, std::numeric_limits<Int128>::min() + 1));
  }
  if (bytes < kKibi) return to_string(bytes) + " B";
  static constexpr std::array steps = {Step{kKibi, "KiB"}, Step{kMebi, "MiB"}, Step{kGibi, "GiB"},
                                       Step{kTebi, "TiB"}};
  for (const Step& step : steps) {
    const auto unit = static_cast<Int128>(step.scale);
    const bool last = &step == &steps.back();
    const Int128 whole = rounded(bytes, unit);
    if (whole >= kKibi && !last) continue;
    if (whole >= kKilo)
      return fmt::format("{} {}", last ? grouped(whole) : to_string(whole), step.name);
    // Four digits, however large the number: 61.32, 812.0. Rounding may carry: 99.996 is 100.0.
    const Int128 hundredths = rounded(bytes * 100, unit);
    if (hundredths < 10'000) {
      return fmt::format("{}.{:02} {}", to_string(hundredths / 100),
                         static_cast<int>(hundredths % 100), step.name);
    }
    const Int128 tenths = rounded(bytes * 10, unit);
    return fmt::format("{}.{} {}", to_string(tenths / 10), static_cast<int>(tenths % 10),
                       step.name);
  }
  return {};
}

std::string grouped(Int128 value) {
  std::string text = to_string(value);
  const std::size_t sign = value < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > sign + 3;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

}  // namespace plimsoll
