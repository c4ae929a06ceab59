// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/units.hpp"

#include "tests/catch.hpp"

using namespace plimsoll;

TEST_CASE("every unit of the language", "[units]") {
  CHECK(find_unit("GB")->scale == Rational(1'000'000'000));
  CHECK(find_unit("GiB")->scale == Rational(1'073'741'824));
  CHECK(find_unit("Gb")->scale == Rational(125'000'000));
  CHECK(find_unit("b")->scale == Rational::fraction(1, 8));
  CHECK(find_unit("kB")->scale == find_unit("KB")->scale);
  CHECK(find_unit("TFLOP")->dimension == kFlops);
  CHECK(find_unit("%")->scale == Rational::fraction(1, 100));
  CHECK(find_unit("us")->scale == Rational::fraction(1, 1'000'000));
  CHECK(find_unit("day")->scale == Rational(86'400));
  CHECK(find_unit("tokens")->dimension == kCount);
  CHECK(find_unit("USD")->dimension == kMoney);
  for (const std::string& name : unit_names()) {
    REQUIRE(find_unit(name));
    CHECK(find_unit(name)->name == name);
  }
  for (const char* wrong : {"", "gb", "Gib", "GIB", "kb", "/s", "FLOPS", "GB/m", "GB/s/s", "Ki"})
    CHECK_FALSE(find_unit(wrong));
}

TEST_CASE("a rate is one unit", "[units]") {
  CHECK(find_unit("Gb/s")->scale == Rational(125'000'000));
  CHECK(find_unit("GB/s")->dimension == kBytes / kSeconds);
  CHECK(find_unit("USD/h")->scale == Rational::fraction(1, 3'600));
  CHECK(find_unit("USD/h")->dimension == kMoney / kSeconds);
  CHECK(find_unit("tokens/s")->dimension == kCount / kSeconds);
}

TEST_CASE("multipliers", "[units]") {
  CHECK(find_multiplier("k") == Rational(1'000));
  CHECK(find_multiplier("Ti") == Rational(1'099'511'627'776));
  CHECK_FALSE(find_multiplier("K"));
  CHECK_FALSE(find_multiplier("ki"));
}

TEST_CASE("dimensions are named as errors need them", "[units]") {
  CHECK(kCount.str() == "a count");
  CHECK(kBytes.str() == "bytes");
  CHECK(kFlops.str() == "FLOPs");
  CHECK((kBytes / kSeconds).str() == "bytes per second");
  CHECK((kMoney / kSeconds).str() == "money per hour");
  CHECK((kCount / kBytes).str() == "a count per byte");
  CHECK((kBytes * kBytes / kSeconds).str() == "bytes^2 per second");
  Dimension high{100, 0, 0, 0};
  CHECK_THROWS_AS(high * high, ArithmeticError);
}

TEST_CASE("bytes for people: four digits, the unit always there", "[units]") {
  CHECK(human_bytes(0) == "0 B");
  CHECK(human_bytes(512) == "512 B");
  CHECK(human_bytes(1'023) == "1023 B");
  CHECK(human_bytes(1'024) == "1.00 KiB");
  CHECK(human_bytes(Int128{812} << 20) == "812.0 MiB");
  CHECK(human_bytes(65'841'848'975) == "61.32 GiB");
  CHECK(human_bytes((Int128{1} << 30) - 1) == "1.00 GiB");
  CHECK(human_bytes((Int128{1000} << 20)) == "1000 MiB");
  CHECK(human_bytes((Int128{100} << 30) - 1) == "100.0 GiB");
  CHECK(human_bytes(-(Int128{3} << 29)) == "-1.50 GiB");
  CHECK(human_bytes(Int128{12'345} << 40) == "12,345 TiB");
  CHECK(human_bytes(std::numeric_limits<Int128>::min())
            .starts_with("-154,742,504,910,672,534,362,390,528"));
}

TEST_CASE("quantities for people", "[units]") {
  const auto of = [](const char* number, const char* unit) {
    const Unit u = *find_unit(unit);
    return human({*Rational::parse(number) * u.scale, u.dimension});
  };
  CHECK(human({8'192, kCount}) == "8,192");
  CHECK(human({Rational::fraction(1, 3), kCount}) == "0.333");
  CHECK(of("80", "GB") == "74.51 GiB");
  CHECK(of("450", "GB/s") == "450 GB/s");
  CHECK(of("3.35", "TB/s") == "3.35 TB/s");
  CHECK(of("989.4", "TFLOP/s") == "989.4 TFLOP/s");
  CHECK(of("0.9999999", "ms") == "1 ms");
  CHECK(of("8.4", "s") == "8.4 s");
  CHECK(of("90", "min") == "1.5 h");
  CHECK(of("0", "s") == "0 s");
  CHECK(of("2.5", "USD/h") == "2.5 USD/h");
  CHECK(of("12345", "USD") == "12,345 USD");
  CHECK(of("34", "b") == "4.25 B");
  CHECK(of("1200", "tokens/s") == "1,200/s");
  CHECK(grouped(8'030'261'248) == "8,030,261,248");
  CHECK(grouped(-1'000) == "-1,000");
  CHECK(grouped(999) == "999");
}
