// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "planner/formula.hpp"

namespace plimsoll {

namespace {

bool is_switch(Var v) {
  switch (v) {
    case Var::sp:
    case Var::zero:
    case Var::recompute:
    case Var::schedule:
    case Var::offload:
    case Var::stage:
    case Var::first:
    case Var::last:
    case Var::receiving:
      return true;
    default:
      return false;
  }
}

std::uint64_t denominators(const ExprPool& pool, Expr e) {
  using Node = ExprPool::Node;
  if (pool.depends_on(e) == 0) return 0;
  const Node node = pool.node(e);
  const auto operands = pool.operands(e);
  std::uint64_t mask = 0;
  for (const Expr operand : operands) mask |= denominators(pool, operand);
  if (node == Node::div || node == Node::floor_div || node == Node::ceil_div)
    mask |= pool.depends_on(operands[1]);
  return mask;
}

}  // namespace

Expr Formulas::settle(Expr e) {
  const auto at = settled_.find(e.id);
  if (at != settled_.end()) return at->second;
  const Expr result = settle_new(e);
  settled_.emplace(e.id, result);
  return result;
}

Expr Formulas::settle_new(Expr e) {
  using Node = ExprPool::Node;
  const Node node = pool_.node(e);
  if (node == Node::constant) return e;
  if (node == Node::variable)
    return is_switch(pool_.var(e)) ? pool_.constant(env_[pool_.var(e)]) : e;
  if (node == Node::equal || node == Node::less_equal) return pool_.constant(pool_.eval(e, env_));
  const auto operands = pool_.operands(e);
  const Expr raw[3] = {operands[0], operands[1], operands.size() > 2 ? operands[2] : Expr{}};
  if (node == Node::select) return settle(pool_.eval(raw[0], env_).is_zero() ? raw[2] : raw[1]);
  const Expr a = settle(raw[0]), b = settle(raw[1]);
  switch (node) {
    case Node::add:
      return pool_.add(a, b);
    case Node::mul:
      return pool_.mul(a, b);
    case Node::div:
      return pool_.div(a, b);
    case Node::floor_div:
    case Node::ceil_div: {
      // Where it divides, as degrees do in a layout that can be, a quotient reads better.
      const Rational quotient = pool_.eval(raw[0], env_) / pool_.eval(raw[1], env_);
      if (quotient.is_integer()) return pool_.div(a, b);
      return node == Node::ceil_div ? pool_.ceil_div(a, b) : pool_.floor_div(a, b);
    }
    case Node::min:
      return pool_.min(a, b);
    default:
      return pool_.max(a, b);
  }
}

std::string Formulas::str(Expr e) { return pool_.str(settle(e)); }

std::uint64_t Formulas::variables(Expr e) { return pool_.depends_on(settle(e)); }

std::uint64_t Formulas::dividing(Expr e) { return denominators(pool_, settle(e)); }

bool Formulas::is_one(Expr e) {
  const Expr settled = settle(e);
  return pool_.is_constant(settled) && pool_.value(settled) == Rational(1);
}

}  // namespace plimsoll
