// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/rational.hpp"

#include <limits>
#include <random>

#include "tests/catch.hpp"

using plimsoll::ArithmeticError;
using plimsoll::floor_div;
using plimsoll::Int128;
using plimsoll::mod;
using plimsoll::Rational;

namespace {

constexpr Int128 kMax = std::numeric_limits<Int128>::max();
constexpr Int128 kMin = std::numeric_limits<Int128>::min();

Rational ratio(Int128 num, Int128 den) { return Rational::fraction(num, den); }
Rational big(Int128 value) { return Rational::integer(value); }

}  // namespace

TEST_CASE("rationals are kept in lowest terms with a positive denominator", "[rational]") {
  CHECK(ratio(6, -4) == ratio(-3, 2));
  CHECK(ratio(0, -7) == Rational(0));
  CHECK(ratio(kMin, kMin) == Rational(1));
  CHECK(ratio(kMin, -2) == big(kMax / 2 + 1));
  CHECK_THROWS_AS(ratio(1, 0), ArithmeticError);
  CHECK_THROWS_AS(ratio(1, kMin), ArithmeticError);
  CHECK_THROWS_AS(ratio(kMin, -1), ArithmeticError);
}

TEST_CASE("arithmetic is exact", "[rational]") {
  CHECK(ratio(1, 3) + ratio(1, 6) == ratio(1, 2));
  CHECK(ratio(1, 3) - ratio(1, 3) == Rational(0));
  CHECK(ratio(2, 3) * ratio(9, 4) == ratio(3, 2));
  CHECK(Rational(7) / 2 == ratio(7, 2));
  CHECK(ratio(7, 2) / ratio(-7, 4) == Rational(-2));
  CHECK(big(kMax) + big(kMin) == Rational(-1));
  CHECK(Rational(-1) - big(kMin) == big(kMax));
  CHECK((-ratio(7, 2)).floor() == Rational(-4));
  CHECK((-ratio(7, 2)).ceil() == Rational(-3));
  CHECK((-ratio(7, 2)).round() == Rational(-3));
  CHECK(ratio(7, 2).round() == Rational(4));
  CHECK(ratio(10, 3).round() == Rational(3));
}

TEST_CASE("what does not fit is an error, never a wrong number", "[rational]") {
  CHECK_THROWS_AS(big(kMax) + 1, ArithmeticError);
  CHECK_THROWS_AS(big(kMin) - 1, ArithmeticError);
  CHECK_THROWS_AS(big(kMax) * 2, ArithmeticError);
  CHECK_THROWS_AS(-big(kMin), ArithmeticError);
  CHECK_THROWS_AS(big(kMin).abs(), ArithmeticError);
  CHECK_THROWS_AS(ratio(1, kMax) + ratio(1, kMax - 1), ArithmeticError);
  CHECK_THROWS_AS(Rational(1) / 0, ArithmeticError);
  CHECK_THROWS_AS(ratio(1, 2) / 0, ArithmeticError);
  CHECK_THROWS_AS(floor_div(1, 0), ArithmeticError);
  CHECK_THROWS_AS(mod(1, 0), ArithmeticError);
  CHECK_THROWS_AS(big(kMax).to_int64(), ArithmeticError);
  CHECK_THROWS_AS(ratio(1, 2).to_int64(), ArithmeticError);
}

TEST_CASE("comparison never overflows", "[rational]") {
  CHECK(ratio(kMax, 3) < ratio(kMax, 2));
  CHECK_FALSE(ratio(kMax, 2) < ratio(kMax, 3));
  CHECK(ratio(kMax - 1, kMax) < ratio(kMax, kMax - 1));
  CHECK(ratio(kMin, 3) < ratio(kMax, 2));
  CHECK(ratio(kMin, 3) < ratio(kMin, 5));
  CHECK(ratio(kMax - 2, kMax - 1) < ratio(kMax - 1, kMax));
  CHECK(ratio(1, 3) <= ratio(1, 3));
}

TEST_CASE("floor division and remainder go together", "[rational]") {
  CHECK(floor_div(-7, 2) == Rational(-4));
  CHECK(floor_div(7, -2) == Rational(-4));
  CHECK(mod(-7, 2) == Rational(1));
  CHECK(mod(7, -2) == Rational(-1));
  CHECK(floor_div(ratio(7, 2), ratio(1, 3)) == Rational(10));
  const unsigned seed = 20261129;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> any(-50, 50);
  for (int i = 0; i < 2000; ++i) {
    const Rational a = ratio(any(random), 1 + std::abs(any(random)));
    const Rational b = ratio(1 + std::abs(any(random)), 1 + std::abs(any(random)));
    CHECK(b * floor_div(a, b) + mod(a, b) == a);
    CHECK(mod(a, b) >= Rational(0));
    CHECK(mod(a, b) < b);
    CHECK((a + b) - b == a);
    CHECK((a * b) / b == a);
    CHECK((a < b) == (a.to_double() < b.to_double()));
  }
}

TEST_CASE("powers", "[rational]") {
  CHECK(Rational(2).pow(126) == big(kMax / 2 + 1));
  CHECK_THROWS_AS(Rational(2).pow(127), ArithmeticError);
  CHECK(Rational(-2).pow(127) == big(kMin));
  CHECK(Rational(2).pow(-3) == ratio(1, 8));
  CHECK(ratio(2, 3).pow(3) == ratio(8, 27));
  CHECK(Rational(0).pow(0) == Rational(1));
  CHECK(Rational(-1).pow(1'000'000'000'001) == Rational(-1));
  CHECK(Rational(1).pow(big(kMax)) == Rational(1));
  CHECK_THROWS_AS(Rational(0).pow(-1), ArithmeticError);
  CHECK_THROWS_AS(Rational(2).pow(ratio(1, 2)), ArithmeticError);
  CHECK_THROWS_AS(Rational(3).pow(big(kMax)), ArithmeticError);
}

TEST_CASE("decimal text", "[rational]") {
  CHECK(Rational::parse("8_192") == Rational(8192));
  CHECK(Rational::parse("8.125") == ratio(65, 8));
  CHECK(Rational::parse("1.5e-3") == ratio(3, 2000));
  CHECK(Rational::parse("2E+3") == Rational(2000));
  CHECK(Rational::parse("0e999999999999") == Rational(0));
  CHECK(Rational::parse("1" + std::string(60, '0') + "e-60") == Rational(1));
  CHECK(Rational::parse("1." + std::string(60, '0')) == Rational(1));
  CHECK(Rational::parse("170141183460469231731687303715884105727") == big(kMax));
  CHECK_THROWS_AS(Rational::parse("170141183460469231731687303715884105728"), ArithmeticError);
  CHECK_THROWS_AS(Rational::parse(std::string(400, '9')), ArithmeticError);
  CHECK_THROWS_AS(Rational::parse("1e999999999999"), ArithmeticError);
  CHECK_THROWS_AS(Rational::parse("1e-999999999999"), ArithmeticError);
  for (const char* wrong :
       {"", ".", "1.", ".5", "1__0", "_1", "1_", "1e", "1e+", "1.5.2", "0x10", "1 "})
    CHECK_FALSE(Rational::parse(wrong));
}

TEST_CASE("numbers print as short decimals or fractions", "[rational]") {
  CHECK(Rational(-3).str() == "-3");
  CHECK(ratio(-3, 2).str() == "-1.5");
  CHECK(ratio(1, 3).str() == "1/3");
  CHECK(Rational::parse("4.126953125")->str() == "4.126953125");
  CHECK(ratio(1, 1024).str() == "1/1024");
  CHECK(ratio(1, 20).str() == "0.05");
  CHECK(plimsoll::to_string(kMin) == "-170141183460469231731687303715884105728");
}
