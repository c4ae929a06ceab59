// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/trend.hpp"

namespace plimsoll {

namespace {

constexpr std::uint64_t bit(Var v) { return std::uint64_t{1} << static_cast<unsigned>(v); }

Trend flipped(Trend t) { return t == Trend::up ? Trend::down : t == Trend::down ? Trend::up : t; }

Trend joined(Trend a, Trend b) {
  if (a == Trend::flat || a == b) return b;
  return b == Trend::flat ? a : Trend::mixed;
}

/// -1, 1: never above or below 0; 0: not known.
int sign(const ExprPool& pool, Expr e) {
  if (pool.is_constant(e)) return pool.value(e).sign() < 0 ? -1 : 1;
  if (pool.is_nonnegative(e)) return 1;
  using Node = ExprPool::Node;
  if (pool.node(e) == Node::variable) return 1;
  const auto operands = pool.operands(e);
  if (operands.size() < 2) return 0;
  const int a = sign(pool, operands[0]), b = sign(pool, operands[1]);
  switch (pool.node(e)) {
    case Node::mul:
    case Node::div:
    case Node::floor_div:
    case Node::ceil_div:
      return a * b;
    case Node::add:
    case Node::min:
    case Node::max:
      return a == b ? a : 0;
    default:
      return 0;
  }
}

/// Of a product or (\a quotient) a quotient.
Trend scaled(const ExprPool& pool, Expr a, Expr b, Trend of_a, Trend of_b, bool quotient) {
  const int sign_a = sign(pool, a), sign_b = sign(pool, b);
  if (quotient) of_b = flipped(of_b);
  // The factor that moves is turned round by a negative one beside it.
  const auto turned = [](Trend t, int by) {
    return t == Trend::flat ? t : by > 0 ? t : by < 0 ? flipped(t) : Trend::mixed;
  };
  return joined(turned(of_a, sign_b), turned(of_b, sign_a));
}

}  // namespace

Movement with_memory() { return {bit(Var::peak), bit(Var::headroom)}; }

Movement with_time() {
  return {bit(Var::step_time) | bit(Var::days) | bit(Var::cost),
          bit(Var::tokens_per_second) | bit(Var::mfu)};
}

Trend trend(const ExprPool& pool, Expr e, const Movement& m) {
  if ((pool.depends_on(e) & (m.up | m.down)) == 0) return Trend::flat;
  using Node = ExprPool::Node;
  if (pool.node(e) == Node::variable)
    return (m.up & bit(pool.var(e))) != 0 ? Trend::up : Trend::down;
  const auto operands = pool.operands(e);
  const Trend a = trend(pool, operands[0], m), b = trend(pool, operands[1], m);
  switch (pool.node(e)) {
    case Node::add:
    case Node::min:
    case Node::max:
      return joined(a, b);
    case Node::mul:
      return scaled(pool, operands[0], operands[1], a, b, false);
    case Node::div:
    case Node::floor_div:
    case Node::ceil_div:
      return scaled(pool, operands[0], operands[1], a, b, true);
    case Node::less_equal:
      return joined(flipped(a), b);
    case Node::select:
      // Only arms that move alike, chosen by something that does not move.
      return a == Trend::flat ? joined(b, trend(pool, operands[2], m)) : Trend::mixed;
    default:
      return Trend::mixed;
  }
}

}  // namespace plimsoll
