// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/linear.hpp"

#include <algorithm>
#include <numeric>

namespace plimsoll {

Linear number(const Rational& value) { return {{}, value, value, value}; }

Linear scaled(const Linear& x, const Rational& by) {
  if (by.is_zero()) return number(0);
  Linear out = x;
  for (auto& [factor, term] : out.parts) factor *= by;
  out.constant *= by;
  out.low = x.low * by;
  out.high = x.high * by;
  if (by.sign() < 0) std::swap(out.low, out.high);
  return out;
}

Linear plus(const Linear& a, const Linear& b) {
  Linear out = a;
  out.constant += b.constant;
  out.low += b.low;
  out.high += b.high;
  for (const auto& added : b.parts) {
    const auto same = std::find_if(out.parts.begin(), out.parts.end(), [&](const auto& part) {
      return part.second.id == added.second.id;
    });
    if (same == out.parts.end())
      out.parts.push_back(added);
    else
      same->first += added.first;
  }
  std::erase_if(out.parts, [](const auto& part) { return part.first.is_zero(); });
  if (out.parts.empty()) out.low = out.high = out.constant;
  return out;
}

Linear minus(const Linear& a, const Linear& b) { return plus(a, scaled(b, -1)); }

namespace {
constexpr Int128 kLargest = Int128{1} << 62;
}  // namespace

Int128 common_multiple(Int128 a, Int128 b) {
  if (a > kLargest || b > kLargest) throw NotLinear{};
  const Int128 out = a / std::gcd(static_cast<std::int64_t>(a), static_cast<std::int64_t>(b)) * b;
  if (out > kLargest) throw NotLinear{};
  return out;
}

Int128 denominator(const Linear& x) {
  Int128 out = x.constant.den();
  for (const auto& [factor, term] : x.parts) out = common_multiple(out, factor.den());
  return out;
}

}  // namespace plimsoll
