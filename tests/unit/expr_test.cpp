// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/expr.hpp"

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>

#include "tests/catch.hpp"

using namespace plimsoll;

namespace {

/// Unfolded expressions and their naive meaning: the oracle.
struct Tree {
  enum Kind {
    constant,
    variable,
    add,
    sub,
    mul,
    div,
    floor_div,
    ceil_div,
    min,
    max,
    equal,
    less_equal,
    logical_not,
    select
  } kind = constant;
  Rational value = 0;
  Var var = Var::tp;
  std::vector<Tree> parts;
};

Rational naive(const Tree& t, const Env& env) {
  const auto at = [&](std::size_t i) { return naive(t.parts[i], env); };
  switch (t.kind) {
    case Tree::constant:
      return t.value;
    case Tree::variable:
      return env[t.var];
    case Tree::add:
      return at(0) + at(1);
    case Tree::sub:
      return at(0) - at(1);
    case Tree::mul:
      return at(0) * at(1);
    case Tree::div:
      return at(0) / at(1);
    case Tree::floor_div:
      return floor_div(at(0), at(1));
    case Tree::ceil_div:
      return (at(0) / at(1)).ceil();
    case Tree::min: {
      const Rational a = at(0), b = at(1);
      return a < b ? a : b;
    }
    case Tree::max: {
      const Rational a = at(0), b = at(1);
      return a < b ? b : a;
    }
    case Tree::equal:
      return at(0) == at(1) ? 1 : 0;
    case Tree::less_equal:
      return at(0) <= at(1) ? 1 : 0;
    case Tree::logical_not:
      return Rational(1) - at(0);
    case Tree::select:
      return at(0).is_zero() ? at(2) : at(1);
  }
  return 0;
}

Expr build(ExprPool& pool, const Tree& t) {
  const auto at = [&](std::size_t i) { return build(pool, t.parts[i]); };
  switch (t.kind) {
    case Tree::constant:
      return pool.constant(t.value);
    case Tree::variable:
      return pool.variable(t.var);
    case Tree::add:
      return pool.add(at(0), at(1));
    case Tree::sub:
      return pool.sub(at(0), at(1));
    case Tree::mul:
      return pool.mul(at(0), at(1));
    case Tree::div:
      return pool.div(at(0), at(1));
    case Tree::floor_div:
      return pool.floor_div(at(0), at(1));
    case Tree::ceil_div:
      return pool.ceil_div(at(0), at(1));
    case Tree::min:
      return pool.min(at(0), at(1));
    case Tree::max:
      return pool.max(at(0), at(1));
    case Tree::equal:
      return pool.equal(at(0), at(1));
    case Tree::less_equal:
      return pool.less_equal(at(0), at(1));
    case Tree::logical_not:
      return pool.logical_not(at(0));
    case Tree::select:
      return pool.select(at(0), at(1), at(2));
  }
  return {};
}

const Var kSome[] = {Var::tp, Var::mbs, Var::seq, Var::stage, Var::zero, Var::sp, Var::headroom};

Tree random_tree(std::mt19937& random, int depth) {
  const auto pick = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  Tree t;
  if (depth == 0 || pick(6) == 0) {
    if (pick(3) == 0) {
      static const Rational constants[] = {
          0, 1, -1, 2, 3, -4, 8192, Rational::fraction(1, 2), Rational::fraction(-3, 4)};
      t.value = constants[pick(9)];
    } else {
      t.kind = Tree::variable;
      t.var = kSome[pick(7)];
    }
    return t;
  }
  t.kind = static_cast<Tree::Kind>(2 + pick(12));
  const int count = t.kind == Tree::select ? 3 : t.kind == Tree::logical_not ? 1 : 2;
  for (int i = 0; i < count; ++i) t.parts.push_back(random_tree(random, depth - 1));
  return t;
}

Env random_env(std::mt19937& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  Env env;
  env[Var::tp] = pick(1, 8);
  env[Var::mbs] = pick(1, 5);
  env[Var::seq] = pick(1, 100);
  env[Var::stage] = pick(0, 4);
  env[Var::zero] = pick(0, 3);
  env[Var::sp] = pick(0, 1);
  env[Var::headroom] = Rational::fraction(pick(-9, 9), pick(1, 4));
  return env;
}

std::optional<Rational> value_of(const Tree& t, const Env& env) {
  try {
    return naive(t, env);
  } catch (const ArithmeticError&) {
    return std::nullopt;
  }
}

struct Vars {
  ExprPool pool;
  Expr tp = pool.variable(Var::tp), cp = pool.variable(Var::cp), mbs = pool.variable(Var::mbs),
       seq = pool.variable(Var::seq), stage = pool.variable(Var::stage),
       sp = pool.variable(Var::sp), headroom = pool.variable(Var::headroom),
       last = pool.variable(Var::last);
  Expr n(const Rational& value) { return pool.constant(value); }
};

}  // namespace

TEST_CASE("equal expressions are one id and read well", "[expr]") {
  Vars v;
  ExprPool& p = v.pool;
  const Expr tokens = p.div(p.mul(v.mbs, v.seq), v.cp);
  CHECK(p.str(p.mul(p.mul(v.n(2), v.n(8192)), p.div(tokens, v.tp))) ==
        "16,384 * mbs * seq / (cp * tp)");
  CHECK(p.str(p.add(p.mul(v.stage, v.n(1)), v.n(0))) == "stage");
  CHECK(p.mul(v.n(2), p.mul(v.stage, v.n(3))) == p.mul(v.n(6), v.stage));
  CHECK(p.str(p.mul(v.n(0), v.stage)) == "0");
  CHECK(p.add(v.stage, v.stage) == p.mul(v.n(2), v.stage));
  CHECK(p.str(p.sub(p.add(v.stage, v.tp), v.stage)) == "tp");
  CHECK(p.mul(v.n(2), p.add(v.stage, v.tp)) == p.add(p.mul(v.n(2), v.tp), p.mul(v.n(2), v.stage)));
  CHECK(p.mul(p.add(p.mul(v.n(2), v.stage), p.mul(v.n(2), v.tp)), v.mbs) ==
        p.mul(v.n(2), p.mul(v.mbs, p.add(v.tp, v.stage))));
  CHECK(p.mul(p.div(v.seq, v.tp), v.tp) == v.seq);
  CHECK(p.str(p.mul(p.div(v.seq, v.stage), v.stage)) == "seq * stage / stage");
  CHECK(p.str(p.div(v.seq, v.n(2))) == "seq / 2");
  CHECK(p.str(p.sub(p.div(v.seq, v.n(2)), p.mul(v.n(3), v.tp))) == "seq / 2 - 3 * tp");
  CHECK(p.str(p.sub(v.n(5), v.stage)) == "5 - stage");
}

TEST_CASE("selects, rounding and comparisons fold", "[expr]") {
  Vars v;
  ExprPool& p = v.pool;
  CHECK(p.str(p.select(v.sp, v.tp, v.n(1))) == "if(sp, tp, 1)");
  CHECK(p.select(v.n(1), v.tp, v.seq) == v.tp);
  CHECK(p.select(v.stage, v.tp, v.tp) == v.tp);
  CHECK(p.select(p.logical_not(v.sp), v.tp, v.seq) == p.select(v.sp, v.seq, v.tp));
  CHECK(p.ceil(v.stage) == v.stage);
  CHECK(p.str(p.ceil(v.headroom)) == "ceil(headroom)");
  CHECK(p.str(p.ceil_div(p.mul(v.n(4), v.seq), p.mul(v.n(6), v.tp))) == "ceil(2 * seq / (3 * tp))");
  CHECK(p.str(p.floor_div(v.n(7), v.n(2))) == "3");
  CHECK(p.max(v.n(1), v.tp) == v.tp);
  CHECK(p.str(p.max(v.n(1), v.stage)) == "max(1, stage)");
  CHECK(p.min(p.min(v.stage, v.tp), v.stage) == p.min(v.tp, v.stage));
  CHECK(p.str(p.less_equal(v.n(1), v.tp)) == "1");
  CHECK(p.str(p.less_equal(v.n(2), v.tp)) == "tp >= 2");
  CHECK(p.str(p.logical_not(p.less_equal(v.tp, v.n(8)))) == "tp > 8");
  CHECK(p.str(p.logical_not(p.equal(v.stage, v.n(0)))) == "stage != 0");
  CHECK(p.logical_not(p.logical_not(v.sp)) == v.sp);
  CHECK(p.equal(v.sp, v.n(1)) == v.sp);
  CHECK(p.str(p.logical_and(v.sp, p.logical_or(v.last, p.less_equal(v.n(2), v.tp)))) ==
        "sp and (last or tp >= 2)");
  CHECK(p.str(p.add(v.n(2), p.less_equal(v.n(2), v.tp))) == "2 + (tp >= 2)");
}

TEST_CASE("constants that have no value throw", "[expr]") {
  Vars v;
  ExprPool& p = v.pool;
  CHECK_THROWS_AS(p.div(v.tp, v.n(0)), ArithmeticError);
  const Expr big = v.n(Rational::integer(std::numeric_limits<Int128>::max()));
  CHECK_THROWS_AS(p.mul(big, v.n(2)), ArithmeticError);
  const Env env;  // every variable 0
  CHECK_THROWS_AS(p.eval(p.div(v.n(1), v.stage), env), ArithmeticError);
  CHECK(p.eval(p.select(v.stage, p.div(v.n(1), v.stage), v.n(7)), env) == Rational(7));
  CHECK(p.str(p.substitute(p.select(v.stage, p.div(v.n(1), v.stage), v.n(7)), env, ~0ull)) == "7");
}

TEST_CASE("folding never changes a value", "[expr][property]") {
  const unsigned seed = 20261129;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  std::map<std::string, std::uint32_t> texts;
  ExprPool pool;
  int compared = 0;
  int without = 0;
  for (int i = 0; i < 4000; ++i) {
    const Tree tree = random_tree(random, 1 + i % 5);
    Expr e;
    try {
      e = build(pool, tree);
    } catch (const ArithmeticError&) {
      continue;  // a constant part has no value
    }
    // Equal text if and only if equal id.
    const std::string text = pool.str(e);
    const auto [known, fresh] = texts.emplace(text, e.id);
    INFO(text);
    REQUIRE(known->second == e.id);
    ExprPool other;
    other.variable(Var::headroom);
    other.variable(Var::sp);
    REQUIRE(other.str(build(other, tree)) == text);
    Tape tape(pool, std::span(&e, 1));
    for (int k = 0; k < 8; ++k) {
      const Env env = random_env(random);
      const auto expected = value_of(tree, env);
      if (!expected) continue;
      ++compared;
      REQUIRE(pool.eval(e, env) == *expected);
      tape.run(env);
      REQUIRE(tape.value(0) == *expected);
      if (pool.is_integer(e)) REQUIRE(expected->is_integer());
      if (pool.is_nonnegative(e)) REQUIRE(*expected >= 0);
      if (pool.is_positive(e)) REQUIRE(*expected > 0);
      if (pool.is_boolean(e)) REQUIRE((*expected == 0 || *expected == 1));
      REQUIRE(pool.value(pool.substitute(e, env, ~0ull)) == *expected);
      // Where it is not known yet which arm of a select is taken, one without a value may throw.
      const std::uint64_t half = random();
      std::optional<Rational> by_halves;
      try {
        by_halves = pool.eval(pool.substitute(e, env, half), env);
      } catch (const ArithmeticError&) {
        ++without;
      }
      if (by_halves) REQUIRE(*by_halves == *expected);
    }
  }
  CHECK(compared > 15000);
  CHECK(without < 100);
}

TEST_CASE("all small expressions in all small worlds", "[expr][property]") {
  // Every expression of two operators over three leaves, in every world of two variables.
  std::vector<Tree> leaves(5);
  leaves[0].value = 0;
  leaves[1].value = 1;
  leaves[2].value = Rational::fraction(-1, 2);
  leaves[3].kind = leaves[4].kind = Tree::variable;
  leaves[3].var = Var::tp;
  leaves[4].var = Var::stage;
  std::vector<Tree> ones;
  for (int kind = Tree::add; kind <= Tree::less_equal; ++kind)
    for (const Tree& a : leaves)
      for (const Tree& b : leaves) {
        Tree t;
        t.kind = static_cast<Tree::Kind>(kind);
        t.parts = {a, b};
        ones.push_back(t);
      }
  ExprPool pool;
  std::uint64_t compared = 0;
  for (int kind = Tree::add; kind <= Tree::less_equal; ++kind)
    for (const Tree& a : ones)
      for (const Tree& b : leaves)
        for (const bool swapped : {false, true}) {
          Tree t;
          t.kind = static_cast<Tree::Kind>(kind);
          t.parts = swapped ? std::vector<Tree>{b, a} : std::vector<Tree>{a, b};
          Expr e;
          try {
            e = build(pool, t);
          } catch (const ArithmeticError&) {
            continue;
          }
          Tape tape(pool, std::span(&e, 1));
          for (int tp = 1; tp <= 2; ++tp)
            for (int stage = 0; stage <= 2; ++stage) {
              Env env;
              env[Var::tp] = tp;
              env[Var::stage] = stage;
              const auto expected = value_of(t, env);
              if (!expected) continue;
              tape.run(env);
              if (tape.value(0) != *expected) FAIL(pool.str(e) << " at " << tp << ", " << stage);
              ++compared;
            }
        }
  CHECK(compared > 80000);
}

TEST_CASE("a tape falls back to exact numbers", "[expr]") {
  Vars v;
  ExprPool& p = v.pool;
  const Expr square = p.mul(v.seq, v.seq);
  const Expr roots[] = {p.mul(square, square), p.div(v.n(1), p.mul(square, square)), v.seq,
                        p.div(v.seq, v.stage)};
  Tape tape(p, roots);
  Env env;
  env[Var::seq] = 10'000'000'000;
  tape.run(env);
  CHECK_THROWS_AS(tape.value(0), ArithmeticError);  // 10^40 is past 128 bits
  CHECK(tape.integer(2) == 10'000'000'000);
  CHECK_THROWS_WITH(tape.value(3), "division by zero");
  env[Var::seq] = 1'000'000'000;
  env[Var::stage] = 3;
  tape.run(env);
  const Rational expected = Rational(1'000'000'000).pow(4);
  CHECK(tape.value(0) == expected);
  CHECK_THROWS_AS(tape.integer(0), ArithmeticError);
  CHECK(tape.value(1) == Rational(1) / expected);
  CHECK(tape.value(3) == Rational::fraction(1'000'000'000, 3));
}
