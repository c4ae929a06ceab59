// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "lang/rational.hpp"
#include "planner/smt.hpp"

/// Sums of a solver's integers with rational factors.
namespace plimsoll {

/// A rational combination of integers of a solver, and between which values it lies.
struct Linear {
  std::vector<std::pair<Rational, smt::Term>> parts;
  Rational constant;
  Rational low, high;  ///< of the whole

  bool is_constant() const { return parts.empty(); }
};

/// It cannot be said in linear terms.
struct NotLinear {};

Linear number(const Rational&);
Linear scaled(const Linear&, const Rational& by);
Linear plus(const Linear&, const Linear&);
Linear minus(const Linear&, const Linear&);

/// Throws NotLinear where it is too large.
Int128 common_multiple(Int128, Int128);
/// The least positive integer that makes every factor and the constant whole; throws likewise.
Int128 denominator(const Linear&);

/// A truth: known, or a Boolean of the solver.
struct Truth {
  std::optional<bool> known;
  smt::Term term;
};

/// What follows of sums, as terms of one solver; new integers are defined to it.
class LinearTerms {
 public:
  explicit LinearTerms(smt::Solver& s) : solver(s) {}

  /// The sum that \a whole is, as an integer of the solver.
  smt::Term integer(const Linear& whole);
  Linear fresh(const Rational& low, const Rational& high);
  Truth at_least_zero(const Linear&);
  Truth not_(const Truth&);
  Truth join(std::vector<Truth>, bool all);
  void require(const Truth&);
  Linear most(std::vector<Linear>);
  Linear floor(const Linear&);
  Linear select(const Truth&, const Linear& then, const Linear& otherwise);

  smt::Solver& solver;

 private:
  std::int64_t made_ = 0;
};

}  // namespace plimsoll
