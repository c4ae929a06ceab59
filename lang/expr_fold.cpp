// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/expr_fold.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "lang/diagnostics.hpp"

namespace plimsoll {

namespace {

constexpr std::size_t kRecent = 1024;

Int128 gcd(Int128 a, Int128 b) {
  while (b != 0) {
    const Int128 rest = a % b;
    a = b;
    b = rest;
  }
  return a < 0 ? -a : a;
}

/// Variables print best in alphabetical order, whatever their numbers are.
const std::array<std::uint8_t, kVarCount>& variable_ranks() {
  static const std::array<std::uint8_t, kVarCount> ranks = [] {
    std::array<std::uint8_t, kVarCount> order{}, result{};
    std::iota(order.begin(), order.end(), std::uint8_t{0});
    std::sort(order.begin(), order.end(), [](std::uint8_t a, std::uint8_t b) {
      return name(static_cast<Var>(a)) < name(static_cast<Var>(b));
    });
    for (std::size_t i = 0; i < order.size(); ++i) result[order[i]] = static_cast<std::uint8_t>(i);
    return result;
  }();
  return ranks;
}

int order(const Rational& a, const Rational& b) { return a < b ? -1 : b < a ? 1 : 0; }

}  // namespace

/// Operands are compared from the last to the first, so that chains are walked in a loop and shared
/// parts end the walk at once.
int Folder::compare(const ExprPool& pool, Expr a, Expr b) {
  while (a.id != b.id) {
    const Node node = pool.node(a);
    if (node != pool.node(b)) return node < pool.node(b) ? -1 : 1;
    if (node == Node::constant) return order(pool.value(a), pool.value(b));
    if (node == Node::variable) {
      const auto& ranks = variable_ranks();
      const auto rank = [&](Expr e) { return int{ranks[static_cast<std::size_t>(pool.var(e))]}; };
      return rank(a) - rank(b);
    }
    const auto left = pool.operands(a);
    const auto right = pool.operands(b);
    std::size_t i = left.size() - 1;
    while (i > 0 && left[i].id == right[i].id) --i;
    const Expr next_a = left[i];
    const Expr next_b = right[i];
    if (i > 0) return compare(pool, next_a, next_b);
    a = next_a;
    b = next_b;
  }
  return 0;
}

std::vector<Expr> Folder::flatten(const ExprPool& pool, Node node, Expr e) {
  std::vector<Expr> parts;
  std::optional<Expr> coefficient;
  if (node == Node::mul && pool.node(e) == node && pool.is_constant(pool.operands(e)[0])) {
    coefficient = pool.operands(e)[0];
    e = pool.operands(e)[1];
  }
  while (pool.node(e) == node) {
    parts.push_back(pool.operands(e)[1]);
    e = pool.operands(e)[0];
  }
  parts.push_back(e);
  if (coefficient) parts.push_back(*coefficient);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

void Folder::sort(std::vector<Expr>& list) {
  std::sort(list.begin(), list.end(), [this](Expr a, Expr b) { return compare(pool_, a, b) < 0; });
}

Expr Folder::chain(Node n, std::span<const Expr> list) {
  PLIMSOLL_ASSERT(!list.empty());
  Expr result = list[0];
  for (std::size_t i = 1; i < list.size(); ++i) result = node(n, result, list[i]);
  return result;
}

/// coefficient * core, where core is a canonical product, quotient or other term with coefficient 1
/// (never a sum).
Expr Folder::scaled(const Rational& coefficient, Expr core) {
  if (coefficient.is_zero()) return pool_.constant(0);
  if (coefficient == 1) return core;
  if (pool_.is_constant(core)) return pool_.constant(coefficient * pool_.value(core));
  Expr numerator = core;
  std::optional<Expr> denominator;
  if (pool_.node(core) == Node::div) {
    numerator = pool_.operands(core)[0];
    denominator = pool_.operands(core)[1];
  }
  const Expr top = pool_.constant(Rational::integer(coefficient.num()));
  if (is(numerator, 1)) {
    numerator = top;
  } else if (coefficient.num() != 1) {
    numerator = node(Node::mul, top, numerator);
  }
  if (coefficient.den() != 1) {
    const Expr bottom = pool_.constant(Rational::integer(coefficient.den()));
    denominator = denominator ? node(Node::mul, bottom, *denominator) : bottom;
  }
  return denominator ? node(Node::div, numerator, *denominator) : numerator;
}

/// A canonical term's coefficient and what is left without it (the constant 1 of a constant).
Folder::Term Folder::split(Expr term) {
  if (pool_.is_constant(term)) return {pool_.value(term), one()};
  if (pool_.node(term) == Node::mul) {
    const Expr left = pool_.operands(term)[0];
    if (pool_.is_constant(left)) return {pool_.value(left), pool_.operands(term)[1]};
    return {1, term};
  }
  if (pool_.node(term) == Node::div) {
    const Term top = split(pool_.operands(term)[0]);
    const Term bottom = split(pool_.operands(term)[1]);
    const Rational coefficient = top.coefficient / bottom.coefficient;
    if (coefficient == 1) return {1, term};
    return {coefficient, is(bottom.core, 1) ? top.core : node(Node::div, top.core, bottom.core)};
  }
  return {1, term};
}

Expr Folder::sum(std::span<const Expr> list) {
  std::vector<Term> terms;
  for (const Expr e : list)
    for (const Expr part : flatten(pool_, Node::add, e)) terms.push_back(split(part));
  std::sort(terms.begin(), terms.end(),
            [this](const Term& a, const Term& b) { return compare(pool_, a.core, b.core) < 0; });
  std::vector<Expr> result;
  for (std::size_t i = 0; i < terms.size();) {
    Rational coefficient = 0;
    const Expr core = terms[i].core;
    for (; i < terms.size() && terms[i].core == core; ++i) coefficient += terms[i].coefficient;
    if (!coefficient.is_zero()) result.push_back(scaled(coefficient, core));
  }
  return result.empty() ? pool_.constant(0) : chain(Node::add, result);
}

/// The common factor of a sum's terms, with the sign of the first one; 1 where it does not fit.
Rational Folder::content(std::span<const Term> terms) {
  try {
    Int128 top = 0;
    Rational bottom = 1;
    for (const Term& term : terms) {
      top = gcd(top, term.coefficient.num());
      const Int128 den = term.coefficient.den();
      bottom *= Rational::integer(den / gcd(den, bottom.num()));
    }
    const Rational result = Rational::integer(top) / bottom;
    return terms[0].coefficient < 0 ? -result : result;
  } catch (const ArithmeticError&) {
    return 1;
  }
}

/// Multiplies by a factor that is no product or quotient. A sum's common factor goes out of it, so
/// that 2 * (x + y) * z and (2 * x + 2 * y) * z are one.
void Folder::take_factor(Monomial& m, Expr factor, bool inverted) {
  Rational coefficient = 1;
  if (pool_.is_constant(factor)) {
    coefficient = pool_.value(factor);
  } else if (pool_.node(factor) == Node::add) {
    std::vector<Term> terms;
    for (const Expr part : flatten(pool_, Node::add, factor)) terms.push_back(split(part));
    coefficient = content(terms);
    if (coefficient != 1) {
      std::vector<Expr> primitive;
      for (const Term& t : terms) primitive.push_back(scaled(t.coefficient / coefficient, t.core));
      factor = chain(Node::add, primitive);
    }
  }
  if (inverted) {
    m.coefficient /= coefficient;
  } else {
    m.coefficient *= coefficient;
  }
  if (!pool_.is_constant(factor)) (inverted ? m.denominator : m.numerator).push_back(factor);
}

void Folder::take_factors(Monomial& m, Expr e, bool inverted) {
  if (pool_.node(e) == Node::div) {
    const Expr top = pool_.operands(e)[0];
    const Expr bottom = pool_.operands(e)[1];
    take_factors(m, top, inverted);
    take_factors(m, bottom, !inverted);
    return;
  }
  for (const Expr factor : flatten(pool_, Node::mul, e)) take_factor(m, factor, inverted);
}

/// Takes equal factors out of numerator and denominator where they are never 0.
void Folder::cancel(Monomial& m) {
  std::vector<Expr> top, bottom;
  std::size_t i = 0;
  std::size_t k = 0;
  while (i < m.numerator.size() && k < m.denominator.size()) {
    const int c = compare(pool_, m.numerator[i], m.denominator[k]);
    if (c == 0 && pool_.is_positive(m.numerator[i])) {
      ++i;
      ++k;
    } else if (c <= 0) {
      top.push_back(m.numerator[i++]);
    } else {
      bottom.push_back(m.denominator[k++]);
    }
  }
  top.insert(top.end(), m.numerator.begin() + static_cast<std::ptrdiff_t>(i), m.numerator.end());
  bottom.insert(bottom.end(), m.denominator.begin() + static_cast<std::ptrdiff_t>(k),
                m.denominator.end());
  m.numerator = std::move(top);
  m.denominator = std::move(bottom);
}

Expr Folder::build(Monomial& m) {
  if (m.coefficient.is_zero()) return pool_.constant(0);
  sort(m.numerator);
  sort(m.denominator);
  if (!m.denominator.empty()) cancel(m);
  if (m.denominator.empty() && m.numerator.size() == 1 && pool_.node(m.numerator[0]) == Node::add) {
    std::vector<Expr> terms;
    for (const Expr part : flatten(pool_, Node::add, m.numerator[0])) {
      const Term term = split(part);
      terms.push_back(scaled(m.coefficient * term.coefficient, term.core));
    }
    return chain(Node::add, terms);
  }
  Expr core = m.numerator.empty() ? one() : chain(Node::mul, m.numerator);
  if (!m.denominator.empty()) core = node(Node::div, core, chain(Node::mul, m.denominator));
  return scaled(m.coefficient, core);
}

Expr Folder::product(std::span<const Expr> list) {
  Monomial m;
  for (const Expr e : list) {
    if (is(e, 0)) return e;
    take_factors(m, e, false);
  }
  return build(m);
}

Expr Folder::quotient(Expr a, Expr b) {
  if (is(b, 0)) throw ArithmeticError("division by zero");
  Monomial m;
  take_factors(m, a, false);
  take_factors(m, b, true);
  return build(m);
}

Expr Folder::rounded_quotient(Node n, Expr a, Expr b) {
  const Expr exact = quotient(a, b);
  if (pool_.is_integer(exact)) return exact;
  if (pool_.is_constant(exact)) {
    const Rational& value = pool_.value(exact);
    return pool_.constant(n == Node::ceil_div ? value.ceil() : value.floor());
  }
  if (pool_.node(exact) == Node::div) {
    const auto parts = pool_.operands(exact);
    return node(n, parts[0], parts[1]);
  }
  return node(n, exact, one());
}

Expr Folder::extremum(Node n, Expr a, Expr b) {
  std::vector<Expr> list = flatten(pool_, n, a);
  for (const Expr e : flatten(pool_, n, b)) list.push_back(e);
  std::optional<Rational> limit;
  std::erase_if(list, [&](Expr e) {
    if (!pool_.is_constant(e)) return false;
    const Rational& value = pool_.value(e);
    if (!limit || (n == Node::min ? value < *limit : value > *limit)) limit = value;
    return true;
  });
  sort(list);
  list.erase(std::unique(list.begin(), list.end()), list.end());
  if (!limit) return chain(n, list);
  // What is known to lie beyond the limit goes, or makes the limit go.
  const bool low = n == Node::min;
  const auto at_least = [&](Expr e) -> std::optional<Rational> {
    if (pool_.is_positive(e) && pool_.is_integer(e)) return Rational(1);
    if (pool_.is_nonnegative(e)) return Rational(0);
    return std::nullopt;
  };
  const auto at_most = [&](Expr e) -> std::optional<Rational> {
    if (pool_.is_boolean(e)) return Rational(1);
    return std::nullopt;
  };
  const auto beyond = [&](Expr e) {
    const auto bound = low ? at_least(e) : at_most(e);
    return bound && (low ? *bound >= *limit : *bound <= *limit);
  };
  const auto within = [&](Expr e) {
    const auto bound = low ? at_most(e) : at_least(e);
    return bound && (low ? *bound <= *limit : *bound >= *limit);
  };
  std::erase_if(list, beyond);
  if (list.empty()) return pool_.constant(*limit);
  if (std::any_of(list.begin(), list.end(), within)) return chain(n, list);
  list.insert(list.begin(), pool_.constant(*limit));
  return chain(n, list);
}

Expr Folder::equal(Expr a, Expr b) {
  if (a == b) return one();
  if (compare(pool_, a, b) > 0) std::swap(a, b);  // a constant comes first
  if (!pool_.is_constant(a)) return node(Node::equal, a, b);
  const Rational value = pool_.value(a);
  if (pool_.is_constant(b)) return pool_.constant(0);
  if (pool_.is_boolean(b)) {
    if (value == 1) return b;
    if (value == 0) return pool_.logical_not(b);
    return pool_.constant(0);
  }
  if ((pool_.is_integer(b) && !value.is_integer()) || (pool_.is_nonnegative(b) && value < 0) ||
      (pool_.is_positive(b) && value == 0))
    return pool_.constant(0);
  return node(Node::equal, a, b);
}

Expr Folder::less_equal(Expr a, Expr b) {
  if (a == b) return one();
  const auto positive_integer = [&](Expr e) { return pool_.is_positive(e) && pool_.is_integer(e); };
  if (pool_.is_constant(a)) {
    const Rational value = pool_.value(a);
    if (pool_.is_constant(b)) return pool_.constant(value <= pool_.value(b) ? 1 : 0);
    if ((pool_.is_nonnegative(b) && value <= 0) || (positive_integer(b) && value <= 1))
      return one();
    if (pool_.is_boolean(b)) return value <= 1 ? b : pool_.constant(0);
    if (pool_.is_integer(b)) return node(Node::less_equal, pool_.constant(value.ceil()), b);
  } else if (pool_.is_constant(b)) {
    const Rational value = pool_.value(b);
    if ((pool_.is_nonnegative(a) && value < 0) || (pool_.is_positive(a) && value <= 0) ||
        (positive_integer(a) && value < 1))
      return pool_.constant(0);
    if (pool_.is_boolean(a)) return value >= 1 ? one() : pool_.logical_not(a);
    if (pool_.is_integer(a)) return node(Node::less_equal, a, pool_.constant(value.floor()));
  }
  return node(Node::less_equal, a, b);
}

Expr Folder::select(Expr condition, Expr then, Expr otherwise) {
  if (pool_.is_constant(condition)) return pool_.value(condition).is_zero() ? otherwise : then;
  if (then == otherwise) return then;
  if (pool_.is_positive(condition)) return then;
  if (pool_.is_boolean(condition)) {
    if (is(then, 1) && is(otherwise, 0)) return condition;
    if (is(then, 0) && is(otherwise, 1)) return pool_.logical_not(condition);
    // if(not c, a, b) is if(c, b, a).
    if (pool_.node(condition) == Node::add)
      return node(Node::select, pool_.logical_not(condition), otherwise, then);
  }
  return node(Node::select, condition, then, otherwise);
}

template <class Build>
Expr ExprPool::remembered(Node node, Expr a, Expr b, Build build) {
  const std::uint64_t hash =
      (std::uint64_t{a.id} << 32 | b.id) * 0x9E3779B97F4A7C15ull + static_cast<std::uint64_t>(node);
  const std::size_t at = (hash ^ hash >> 32) % kRecent;
  if (recent_.empty()) recent_.resize(kRecent, Recent{Node::constant, {}, {}, {}});
  const Recent& old = recent_[at];
  if (old.node == node && old.a == a && old.b == b) return old.result;
  const Expr result = build();
  recent_[at] = {node, a, b, result};
  return result;
}

Expr ExprPool::add(Expr a, Expr b) {
  return remembered(Node::add, a, b, [&] { return sum(std::array{a, b}); });
}
Expr ExprPool::mul(Expr a, Expr b) {
  return remembered(Node::mul, a, b, [&] { return product(std::array{a, b}); });
}
Expr ExprPool::sum(std::span<const Expr> terms) { return Folder(*this).sum(terms); }
Expr ExprPool::product(std::span<const Expr> factors) { return Folder(*this).product(factors); }
Expr ExprPool::div(Expr a, Expr b) {
  return remembered(Node::div, a, b, [&] { return Folder(*this).quotient(a, b); });
}
Expr ExprPool::floor_div(Expr a, Expr b) {
  return remembered(Node::floor_div, a, b,
                    [&] { return Folder(*this).rounded_quotient(Node::floor_div, a, b); });
}
Expr ExprPool::ceil_div(Expr a, Expr b) {
  return remembered(Node::ceil_div, a, b,
                    [&] { return Folder(*this).rounded_quotient(Node::ceil_div, a, b); });
}
Expr ExprPool::min(Expr a, Expr b) {
  return remembered(Node::min, a, b, [&] { return Folder(*this).extremum(Node::min, a, b); });
}
Expr ExprPool::max(Expr a, Expr b) {
  return remembered(Node::max, a, b, [&] { return Folder(*this).extremum(Node::max, a, b); });
}
Expr ExprPool::equal(Expr a, Expr b) { return Folder(*this).equal(a, b); }
Expr ExprPool::less_equal(Expr a, Expr b) { return Folder(*this).less_equal(a, b); }
Expr ExprPool::select(Expr condition, Expr then, Expr otherwise) {
  return Folder(*this).select(condition, then, otherwise);
}

}  // namespace plimsoll
