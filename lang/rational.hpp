// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <concepts>
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
/// 0. Every operation is exact or throws ArithmeticError. Integers take a short inline path.
class Rational {
 public:
  constexpr Rational() = default;
  template <std::integral T>
  requires(!std::same_as<T, bool>) constexpr Rational(T value)
      : num_(static_cast<Int128>(value)) {}  // NOLINT: integers are rationals
  static constexpr Rational integer(Int128 value) { return Rational(value, 1); }
  static Rational fraction(Int128 num, Int128 den);
  /// From decimal text: digits, '_' between digits, one '.', an exponent. nullopt where it is
  /// malformed. Throws ArithmeticError where it does not fit.
  static std::optional<Rational> parse(std::string_view);

  constexpr Int128 num() const { return num_; }
  constexpr Int128 den() const { return den_; }
  constexpr bool is_integer() const { return den_ == 1; }
  constexpr bool is_zero() const { return num_ == 0; }
  constexpr int sign() const { return num_ < 0 ? -1 : num_ > 0; }
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

  friend Rational operator+(const Rational& a, const Rational& b) {
    Int128 sum = 0;
    if (a.den_ == 1 && b.den_ == 1 && !__builtin_add_overflow(a.num_, b.num_, &sum))
      return Rational(sum, 1);
    return add(a, b);
  }
  friend Rational operator-(const Rational& a, const Rational& b) {
    Int128 difference = 0;
    if (a.den_ == 1 && b.den_ == 1 && !__builtin_sub_overflow(a.num_, b.num_, &difference))
      return Rational(difference, 1);
    return subtract(a, b);
  }
  friend Rational operator*(const Rational& a, const Rational& b) {
    Int128 product = 0;
    if (a.den_ == 1 && b.den_ == 1 && !__builtin_mul_overflow(a.num_, b.num_, &product))
      return Rational(product, 1);
    return multiply(a, b);
  }
  friend Rational operator/(const Rational& a, const Rational& b) { return divide(a, b); }
  Rational& operator+=(const Rational& b) { return *this = *this + b; }
  Rational& operator-=(const Rational& b) { return *this = *this - b; }
  Rational& operator*=(const Rational& b) { return *this = *this * b; }
  Rational& operator/=(const Rational& b) { return *this = *this / b; }

  friend bool operator==(const Rational& a, const Rational& b) {
    return a.num_ == b.num_ && a.den_ == b.den_;
  }
  friend bool operator<(const Rational& a, const Rational& b) {
    return a.den_ == b.den_ ? a.num_ < b.num_ : less(a, b);
  }
  friend bool operator>(const Rational& a, const Rational& b) { return b < a; }
  friend bool operator<=(const Rational& a, const Rational& b) { return !(b < a); }
  friend bool operator>=(const Rational& a, const Rational& b) { return !(a < b); }

  /// "12", "-3", "1.5" where it is a short decimal, else "1/3".
  std::string str() const;

 private:
  constexpr Rational(Int128 num, Int128 den) : num_(num), den_(den) {}  // in lowest terms already

  static Rational add(const Rational&, const Rational&);
  static Rational subtract(const Rational&, const Rational&);
  static Rational multiply(const Rational&, const Rational&);
  static Rational divide(const Rational&, const Rational&);
  static bool less(const Rational&, const Rational&);

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
