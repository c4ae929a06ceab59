// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/linear.hpp"

#include <fmt/format.h>

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

/// The sum that \a whole is, as an integer of the solver.
smt::Term LinearTerms::integer(const Linear& whole) {
  std::vector<smt::Product> products;
  for (const auto& [factor, term] : whole.parts) products.push_back({factor.num(), term});
  return solver.sum(products, whole.constant.num());
}

Linear LinearTerms::fresh(const Rational& low, const Rational& high) {
  const smt::Term term =
      solver.integer(fmt::format("list_{}", made_++), low.to_int64(), high.to_int64());
  return {{{1, term}}, 0, low, high};
}

Truth LinearTerms::at_least_zero(const Linear& x) {
  if (x.low.sign() >= 0) return {true, {}};
  if (x.high.sign() < 0) return {false, {}};
  const Linear whole = scaled(x, Rational::integer(denominator(x)));
  if (whole.parts.size() != 1)
    return {std::nullopt, solver.at_least(integer({whole.parts, 0, 0, 0}), -whole.constant.num())};
  // factor * term >= -constant: a bound of the term itself.
  const auto& [factor, term] = whole.parts.front();
  const Rational bound = -whole.constant / factor;
  return {std::nullopt, factor.sign() > 0 ? solver.at_least(term, bound.ceil().num())
                                          : solver.at_most(term, bound.floor().num())};
}

Truth LinearTerms::not_(const Truth& t) {
  if (t.known) return {!*t.known, {}};
  return {std::nullopt, solver.negate(t.term)};
}

/// All of them, or any.
Truth LinearTerms::join(std::vector<Truth> list, bool all) {
  std::vector<smt::Term> open;
  for (const Truth& t : list) {
    if (!t.known) open.push_back(t.term);
    if (t.known && *t.known != all) return {!all, {}};
  }
  if (open.empty()) return {all, {}};
  return {std::nullopt, all ? solver.all(open) : solver.any(open)};
}

void LinearTerms::require(const Truth& t) {
  solver.require(t.known ? solver.truth(*t.known) : t.term);
}

/// The largest of some.
Linear LinearTerms::most(std::vector<Linear> list) {
  Rational low = list.front().low, high = list.front().high;
  for (const Linear& x : list) {
    low = std::max(low, x.low);
    high = std::max(high, x.high);
  }
  std::erase_if(list, [&](const Linear& x) { return x.high < low; });
  for (const Linear& x : list)
    if (x.low == high || list.size() == 1) return x;
  Int128 common = 1;
  for (const Linear& x : list) common = common_multiple(common, denominator(x));
  const Rational unit = Rational::integer(common);
  const Linear out = fresh((low * unit).floor(), (high * unit).ceil());
  std::vector<Truth> reached;
  for (const Linear& x : list) {
    const Linear above = minus(out, scaled(x, unit));
    require(at_least_zero(above));
    reached.push_back(at_least_zero(scaled(above, -1)));
  }
  require(join(reached, false));
  return scaled(out, Rational(1) / unit);
}

Linear LinearTerms::floor(const Linear& x) {
  if (x.is_constant()) return number(x.constant.floor());
  const Int128 common = denominator(x);
  if (common == 1) return x;
  const Rational unit = Rational::integer(common);
  const Linear out = fresh(x.low.floor(), x.high.floor());
  const Linear rest = minus(scaled(x, unit), scaled(out, unit));  // 0 … common - 1
  require(at_least_zero(rest));
  require(at_least_zero(minus(number(unit - Rational(1)), rest)));
  return out;
}

Linear LinearTerms::select(const Truth& c, const Linear& then, const Linear& otherwise) {
  if (c.known) return *c.known ? then : otherwise;
  const Int128 a = denominator(then), b = denominator(otherwise);
  const Rational unit = Rational::integer(a) * Rational::integer(b);
  const Linear out = fresh((std::min(then.low, otherwise.low) * unit).floor(),
                           (std::max(then.high, otherwise.high) * unit).ceil());
  const auto is = [&](const Linear& x) {
    const Linear above = minus(out, scaled(x, unit));
    return join({at_least_zero(above), at_least_zero(scaled(above, -1))}, true);
  };
  require(join({not_(c), is(then)}, false));
  require(join({c, is(otherwise)}, false));
  return scaled(out, Rational(1) / unit);
}

}  // namespace plimsoll
