// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace plimsoll {

__extension__ typedef __int128 Int128;

/// Thrown where exact arithmetic has no answer: overflow of 128 bits, division by zero. The
/// evaluator catches it at the node that was computed and turns it into a diagnostic there.
class ArithmeticError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An exact rational number: numerator and denominator of 128 bits, in lowest terms, denominator >
/// 0. Every operation is exact or throws ArithmeticError.
class Rational {
 public:
  constexpr Rational() = default;
  constexpr Rational(std::int64_t value) : num_(value) {}  // NOLINT: integers are rationals
  constexpr Rational(int value) : num_(value) {}           // NOLINT
  static Rational integer(Int128 value);
  static Rational fraction(Int128 num, Int128 den);
  /// From decimal text: digits, '_' between digits, one '.', an exponent. nullopt where it is
  /// malformed. Throws ArithmeticError where it does not fit.
  static std::optional<Rational> parse(std::string_view);

  Int128 num() const { return num_; }
  Int128 den() const { return den_; }
  bool is_integer() const { return den_ == 1; }
  bool is_zero() const { return num_ == 0; }
  int sign() const { return num_ < 0 ? -1 : num_ > 0; }
  double to_double() const { return static_cast<double>(num_) / static_cast<double>(den_); }
  /// Throws ArithmeticError if it is no integer of 64 bits.
  std::int64_t to_int64() const;

  Rational operator-() const;
  Rational floor() const;
  Rational ceil() const;
  /// Halves go up.
  Rational round() const;
  Rational abs() const { return num_ < 0 ? -*this : *this; }
  /// Integer exponents only; throws ArithmeticError otherwise.
  Rational pow(const Rational& exponent) const;

  friend Rational operator+(const Rational&, const Rational&);
  friend Rational operator-(const Rational&, const Rational&);
  friend Rational operator*(const Rational&, const Rational&);
  friend Rational operator/(const Rational&, const Rational&);
  friend bool operator==(const Rational& a, const Rational& b) {
    return a.num_ == b.num_ && a.den_ == b.den_;
  }
  friend bool operator<(const Rational& a, const Rational& b);
  friend bool operator>(const Rational& a, const Rational& b) { return b < a; }
  friend bool operator<=(const Rational& a, const Rational& b) { return !(b < a); }
  friend bool operator>=(const Rational& a, const Rational& b) { return !(a < b); }

  /// "12", "-3", "1.5" where it is a short decimal, else "1/3".
  std::string str() const;

 private:
  Int128 num_ = 0;
  Int128 den_ = 1;
};

/// Decimal digits of a 128-bit integer.
std::string to_string(Int128);
/// floor(a / b); throws ArithmeticError where b is 0.
Rational floor_div(const Rational& a, const Rational& b);
/// a - b * floor(a / b).
Rational mod(const Rational& a, const Rational& b);

}  // namespace plimsoll
