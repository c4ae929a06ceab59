// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <span>
#include <vector>

#include "lang/expr.hpp"

/// How ExprPool folds: private to lang/expr*.cpp.
namespace plimsoll {

/// coefficient * product(numerator) / product(denominator); factors sorted, none a constant, a
/// product or a quotient; sums among them have no common factor and start with a positive term.
struct Monomial {
  Rational coefficient = 1;
  std::vector<Expr> numerator, denominator;
};

class Folder {
 public:
  explicit Folder(ExprPool& pool) : pool_(pool) {}

  /// A total order that depends on the expressions' structure only, not on their ids.
  static int compare(const ExprPool&, Expr, Expr);
  /// The terms of a sum, the factors of a product, the operands of a min or max, in stored order;
  /// the expression alone where it is none.
  static std::vector<Expr> flatten(const ExprPool&, ExprPool::Node, Expr);

  Expr sum(std::span<const Expr>);
  Expr product(std::span<const Expr>);
  Expr quotient(Expr, Expr);
  /// ceil or floor of a / b.
  Expr rounded_quotient(ExprPool::Node, Expr, Expr);
  Expr extremum(ExprPool::Node, Expr, Expr);
  Expr equal(Expr, Expr);
  Expr less_equal(Expr, Expr);
  Expr select(Expr, Expr, Expr);

 private:
  using Node = ExprPool::Node;
  struct Term {
    Rational coefficient;
    Expr core;
  };

  Expr chain(Node, std::span<const Expr>);
  Expr scaled(const Rational&, Expr core);
  Term split(Expr term);
  void take_factor(Monomial&, Expr, bool inverted);
  void take_factors(Monomial&, Expr, bool inverted);
  Rational content(std::span<const Term>);
  void cancel(Monomial&);
  Expr build(Monomial&);
  void sort(std::vector<Expr>&);
  Expr node(Node n, Expr a, Expr b, Expr c = {}) { return pool_.intern(n, a, b, c, 0); }
  Expr one() { return pool_.constant(1); }
  bool is(Expr e, const Rational& value) const {
    return pool_.is_constant(e) && pool_.value(e) == value;
  }

  ExprPool& pool_;
};

}  // namespace plimsoll
