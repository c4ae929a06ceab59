// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/rational.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace plimsoll {

namespace {

__extension__ typedef unsigned __int128 UInt128;

/// Decimal places up to which str() prefers "4.126953125" to a fraction.
constexpr int kShortDecimal = 9;
/// More digits than any 128-bit number has; exponents beyond it cannot fit.
constexpr int kManyDigits = 10'000;

[[noreturn]] void overflow() { throw ArithmeticError("the number does not fit in 128 bits"); }

Int128 checked_add(Int128 a, Int128 b) {
  Int128 result = 0;
  if (__builtin_add_overflow(a, b, &result)) overflow();
  return result;
}

Int128 checked_subtract(Int128 a, Int128 b) {
  Int128 result = 0;
  if (__builtin_sub_overflow(a, b, &result)) overflow();
  return result;
}

Int128 checked_multiply(Int128 a, Int128 b) {
  Int128 result = 0;
  if (__builtin_mul_overflow(a, b, &result)) overflow();
  return result;
}

UInt128 magnitude(Int128 a) { return a < 0 ? -static_cast<UInt128>(a) : static_cast<UInt128>(a); }

UInt128 gcd(UInt128 a, UInt128 b) {
  while (b != 0) {
    if ((a >> 64) == 0 && (b >> 64) == 0) {  // 64-bit remainders are several times faster
      auto x = static_cast<std::uint64_t>(a);
      auto y = static_cast<std::uint64_t>(b);
      while (y != 0) x = std::exchange(y, x % y);
      return x;
    }
    a = std::exchange(b, a % b);
  }
  return a;
}

/// gcd(a, b) for b > 0: never more than b, so it is an Int128.
Int128 gcd_with_positive(Int128 a, Int128 b) {
  return static_cast<Int128>(gcd(magnitude(a), static_cast<UInt128>(b)));
}

Int128 floor_quotient(Int128 a, Int128 b) {  // b > 0
  const Int128 quotient = a / b;
  return a % b < 0 ? quotient - 1 : quotient;
}

Int128 power_of_ten(int exponent) {
  Int128 result = 1;
  for (int i = 0; i < exponent; ++i) result = checked_multiply(result, 10);
  return result;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Digits from \a text at \a at, '_' only between two of them, appended to \a digits.
bool take_digits(std::string_view text, std::size_t& at, std::string& digits) {
  const std::size_t start = at;
  while (at < text.size()) {
    if (is_digit(text[at])) {
      digits += text[at++];
    } else if (text[at] == '_' && at > start && at + 1 < text.size() && is_digit(text[at + 1])) {
      ++at;
    } else {
      break;
    }
  }
  return at > start;
}

std::optional<int> take_exponent(std::string_view text, std::size_t& at) {
  if (at == text.size() || (text[at] != 'e' && text[at] != 'E')) return 0;
  ++at;
  const bool negative = at < text.size() && text[at] == '-';
  if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
  std::string digits;
  if (!take_digits(text, at, digits)) return std::nullopt;
  int result = 0;
  for (const char c : digits) result = std::min(result * 10 + (c - '0'), kManyDigits);
  return negative ? -result : result;
}

}  // namespace

Rational Rational::fraction(Int128 num, Int128 den) {
  if (den == 0) throw ArithmeticError("division by zero");
  const UInt128 divisor = gcd(magnitude(num), magnitude(den));
  const UInt128 top = magnitude(num) / divisor;
  const UInt128 bottom = magnitude(den) / divisor;
  constexpr UInt128 largest = ~UInt128{0} >> 1;
  const bool negative = (num < 0) != (den < 0);
  if (bottom > largest || top > largest + (negative ? 1 : 0)) overflow();
  return {static_cast<Int128>(negative ? -top : top), static_cast<Int128>(bottom)};
}

std::optional<Rational> Rational::parse(std::string_view text) {
  std::size_t at = 0;
  std::string digits;
  if (!take_digits(text, at, digits)) return std::nullopt;
  const std::size_t whole = digits.size();
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (!take_digits(text, at, digits)) return std::nullopt;
  }
  const std::optional<int> exponent = take_exponent(text, at);
  if (!exponent || at != text.size()) return std::nullopt;

  const std::size_t first = digits.find_first_not_of('0');
  if (first == std::string::npos) return Rational(0);
  const std::size_t last = digits.find_last_not_of('0') + 1;  // trailing zeros go to the exponent
  if (last - first > kManyDigits || digits.size() > std::numeric_limits<int>::max() / 2) overflow();
  Int128 mantissa = 0;
  for (std::size_t i = first; i < last; ++i)
    mantissa = checked_add(checked_multiply(mantissa, 10), digits[i] - '0');
  const int shift = *exponent + static_cast<int>(whole) - static_cast<int>(last);
  if (shift >= 0)
    return integer(checked_multiply(mantissa, power_of_ten(std::min(shift, kManyDigits))));
  return fraction(mantissa, power_of_ten(std::min(-shift, kManyDigits)));
}

std::int64_t Rational::to_int64() const {
  if (den_ != 1) throw ArithmeticError(str() + " is not a whole number");
  if (num_ > std::numeric_limits<std::int64_t>::max() ||
      num_ < std::numeric_limits<std::int64_t>::min())
    throw ArithmeticError("the number does not fit in 64 bits");
  return static_cast<std::int64_t>(num_);
}

Rational Rational::operator-() const { return {checked_subtract(0, num_), den_}; }

Rational Rational::floor() const { return den_ == 1 ? *this : integer(floor_quotient(num_, den_)); }

Rational Rational::ceil() const { return den_ == 1 ? *this : floor() + 1; }

Rational Rational::round() const { return den_ == 1 ? *this : (*this + fraction(1, 2)).floor(); }

Rational Rational::pow(const Rational& exponent) const {
  if (!exponent.is_integer())
    throw ArithmeticError("the exponent " + exponent.str() + " is not a whole number");
  if (exponent.num_ < 0) return divide(1, pow(-exponent));
  // Powers of 0, 1 and -1 never grow, whatever the exponent.
  if (den_ == 1 && num_ >= -1 && num_ <= 1) {
    if (exponent.num_ == 0) return 1;
    return num_ < 0 && exponent.num_ % 2 == 0 ? Rational(1) : *this;
  }
  Rational result = 1;
  Rational square = *this;
  for (Int128 left = exponent.num_; left > 0; left /= 2) {
    if (left % 2 != 0) result = result * square;
    if (left > 1) square = square * square;
  }
  return result;
}

Rational Rational::add(const Rational& a, const Rational& b) {
  // Knuth, TAOCP vol. 2, 4.5.1: the gcd of the denominators keeps what is in between small.
  const Int128 shared = gcd_with_positive(a.den_, b.den_);
  const Int128 sum = checked_add(checked_multiply(a.num_, b.den_ / shared),
                                 checked_multiply(b.num_, a.den_ / shared));
  const Int128 common = gcd_with_positive(sum, shared);
  return {sum / common, checked_multiply(a.den_ / shared, b.den_ / common)};
}

Rational Rational::subtract(const Rational& a, const Rational& b) {
  if (b.num_ == std::numeric_limits<Int128>::min()) {
    // -b does not fit, but a - b may.
    if (a.den_ != 1 || b.den_ != 1) overflow();
    return integer(checked_subtract(a.num_, b.num_));
  }
  return add(a, -b);
}

Rational Rational::multiply(const Rational& a, const Rational& b) {
  const Int128 left = gcd_with_positive(a.num_, b.den_);
  const Int128 right = gcd_with_positive(b.num_, a.den_);
  return {checked_multiply(a.num_ / left, b.num_ / right),
          checked_multiply(a.den_ / right, b.den_ / left)};
}

Rational Rational::divide(const Rational& a, const Rational& b) {
  if (b.num_ == 0) throw ArithmeticError("division by zero");
  if (a.den_ == 1 && b.den_ == 1) return fraction(a.num_, b.num_);
  return multiply(a, fraction(b.den_, b.num_));
}

bool Rational::less(const Rational& a, const Rational& b) {
  Int128 left = 0;
  Int128 right = 0;
  if (!__builtin_mul_overflow(a.num_, b.den_, &left) &&
      !__builtin_mul_overflow(b.num_, a.den_, &right))
    return left < right;
  // Compare whole parts, then the reciprocals of what is left: no product, so no overflow.
  const Int128 whole_a = floor_quotient(a.num_, a.den_);
  const Int128 whole_b = floor_quotient(b.num_, b.den_);
  if (whole_a != whole_b) return whole_a < whole_b;
  const Int128 rest_a = a.num_ % a.den_ + (a.num_ % a.den_ < 0 ? a.den_ : 0);
  const Int128 rest_b = b.num_ % b.den_ + (b.num_ % b.den_ < 0 ? b.den_ : 0);
  if (rest_a == 0 || rest_b == 0) return rest_a == 0 && rest_b != 0;
  return less(Rational(b.den_, rest_b), Rational(a.den_, rest_a));
}

std::string Rational::str() const {
  if (den_ == 1) return to_string(num_);
  Int128 scaled_den = den_;
  int places = 0;
  while (scaled_den != 1 && places < kShortDecimal) {  // one factor of 10, 5 or 2 a place
    if (scaled_den % 10 == 0) {
      scaled_den /= 10;
    } else if (scaled_den % 5 == 0) {
      scaled_den /= 5;
    } else if (scaled_den % 2 == 0) {
      scaled_den /= 2;
    } else {
      break;
    }
    ++places;
  }
  const UInt128 whole = magnitude(num_) / static_cast<UInt128>(den_);
  if (scaled_den != 1 || (whole >> 120) != 0) return to_string(num_) + '/' + to_string(den_);
  UInt128 rest = magnitude(num_) % static_cast<UInt128>(den_);
  std::string text = (num_ < 0 ? "-" : "") + to_string(static_cast<Int128>(whole)) + '.';
  for (; places > 0; --places) {
    rest *= 10;  // rest < den <= 10^9
    text += static_cast<char>('0' + static_cast<int>(rest / static_cast<UInt128>(den_)));
    rest %= static_cast<UInt128>(den_);
  }
  return text;
}

std::string to_string(Int128 value) {
  UInt128 rest = magnitude(value);
  std::string digits;
  do {
    digits += static_cast<char>('0' + static_cast<int>(rest % 10));
    rest /= 10;
  } while (rest != 0);
  if (value < 0) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

Rational floor_div(const Rational& a, const Rational& b) {
  if (a.is_integer() && b.is_integer() && b.sign() > 0)
    return Rational::integer(floor_quotient(a.num(), b.num()));
  return (a / b).floor();
}

Rational mod(const Rational& a, const Rational& b) { return a - b * floor_div(a, b); }

}  // namespace plimsoll
