// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/smt.hpp"

#include <array>
#include <atomic>

#include "tests/catch.hpp"

using namespace plimsoll;
using smt::Answer;
using smt::Solver;
using smt::Term;

namespace {

constexpr std::int64_t kUnits = 5'000'000;

/// Pigeons of which no two share a hole: hard to refute.
void pigeons(Solver& s, int count) {
  std::vector<std::vector<Term>> in(static_cast<std::size_t>(count));
  for (std::size_t p = 0; p < in.size(); ++p) {
    for (int h = 0; h + 1 < count; ++h)
      in[p].push_back(s.boolean("p" + std::to_string(p) + "_" + std::to_string(h)));
    s.clause(in[p]);
  }
  for (std::size_t h = 0; h + 1 < in.size(); ++h)
    for (std::size_t p = 0; p < in.size(); ++p)
      for (std::size_t q = p + 1; q < in.size(); ++q) {
        const std::array<Term, 2> apart = {s.negate(in[p][h]), s.negate(in[q][h])};
        s.clause(apart);
      }
}

}  // namespace

TEST_CASE("smt: integers, clauses and models", "[smt]") {
  Solver s;
  const Term x = s.integer("x", 0, 10), y = s.integer("y", -3, 10);
  const std::array<smt::Product, 2> both = {smt::Product{2, x}, smt::Product{3, y}};
  s.require(s.equal(s.sum(both, 1), s.constant(20)));
  s.require(s.at_least(y, 4));
  REQUIRE(s.check(kUnits) == Answer::sat);
  CHECK(2 * s.value(x) + 3 * s.value(y) + 1 == 20);
  CHECK(s.value(y) >= 4);
  {
    const Solver::Scope inner(s);
    s.require(s.at_most(y, 4));  // then x would be 3.5
    CHECK(s.check(kUnits) == Answer::unsat);
  }
  CHECK(s.check(kUnits) == Answer::sat);
  CHECK(s.checks() == 3);
  CHECK(s.units() > 0);
  CHECK(s.smt2().find("(declare-fun x () Int)") != std::string::npos);
}

TEST_CASE("smt: floor and remainder go down below zero", "[smt]") {
  Solver s;
  const Term x = s.integer("x", -7, -7);
  const Term q = s.floor_div(x, 2), r = s.mod(x, 2);
  REQUIRE(s.check(kUnits) == Answer::sat);
  CHECK(s.value(q) == -4);
  CHECK(s.value(r) == 1);
}

TEST_CASE("smt: numbers past 64 bits", "[smt]") {
  Solver s;
  const Int128 huge = static_cast<Int128>(1) << 100;
  const Term x = s.integer("x", 0, 5);
  const std::array<smt::Product, 1> scaled = {smt::Product{huge, x}};
  s.require(s.at_least(s.sum(scaled), 3 * huge + 1));
  s.require(s.at_most(x, 4));
  REQUIRE(s.check(kUnits) == Answer::sat);
  CHECK(s.value(x) == 4);
}

TEST_CASE("smt: a core names the assumptions that clash", "[smt]") {
  Solver s;
  const Term x = s.integer("x", 0, 10);
  const Term a = s.boolean("a"), b = s.boolean("b"), c = s.boolean("c");
  s.require(s.implies(a, s.at_least(x, 6)));
  s.require(s.implies(b, s.at_most(x, 9)));
  s.require(s.implies(c, s.at_most(x, 5)));
  const std::array<Term, 3> all = {b, a, c};
  REQUIRE(s.check(kUnits, all) == Answer::unsat);
  CHECK(s.core() == std::vector<std::size_t>{1, 2});
  const std::array<Term, 2> two = {a, b};
  CHECK(s.check(kUnits, two) == Answer::sat);
}

TEST_CASE("smt: exactly one and at most some", "[smt]") {
  Solver s;
  std::vector<Term> b;
  for (int i = 0; i < 5; ++i) b.push_back(s.boolean("b" + std::to_string(i)));
  s.require(s.exactly_one(b));
  s.require(s.negate(b[0]));
  REQUIRE(s.check(kUnits) == Answer::sat);
  int held = 0;
  for (const Term t : b) held += s.holds(t) ? 1 : 0;
  CHECK(held == 1);
  const std::array<Term, 2> two = {b[1], b[3]};
  s.require(s.all(two));
  CHECK(s.check(kUnits) == Answer::unsat);
}

TEST_CASE("smt: too few units are unknown, and count the same every time", "[smt]") {
  std::vector<std::int64_t> spent;
  for (int again = 0; again < 2; ++again) {
    Solver s;
    pigeons(s, 9);
    CHECK(s.check(20'000) == Answer::unknown);
    spent.push_back(s.units());
  }
  CHECK(spent[0] == spent[1]);
  CHECK(spent[0] >= 20'000);
  CHECK(spent[0] < 40'000);
  Solver s;
  CHECK(s.check(0) == Answer::unknown);
  pigeons(s, 5);
  // What was not known may still be found, at whatever point the units ran out.
  for (const std::int64_t units : {10, 100, 300, 1'000, 1'500})
    CHECK(s.check(units) == Answer::unknown);
  CHECK(s.check(kUnits) == Answer::unsat);
}

TEST_CASE("smt: scopes outlast a check that ran out of units", "[smt]") {
  Solver s;
  const Term x = s.integer("x", 0, 10);
  {
    const Solver::Scope outer(s);
    s.require(s.at_least(x, 6));
    {
      const Solver::Scope inner(s);
      s.require(s.at_most(x, 5));
      CHECK(s.check(1) == Answer::unknown);
      CHECK(s.check(kUnits) == Answer::unsat);
    }
    REQUIRE(s.check(kUnits) == Answer::sat);
    CHECK(s.value(x) >= 6);
    CHECK(s.check(1) == Answer::unknown);
  }
  s.require(s.at_most(x, 5));
  REQUIRE(s.check(kUnits) == Answer::sat);
  CHECK(s.value(x) <= 5);
}

TEST_CASE("smt: a check ends once it is told to, and the solver is of use after", "[smt]") {
  Solver s;
  const Term x = s.integer("x", 0, 10);
  {
    const Solver::Scope hard(s);
    pigeons(s, 13);
    std::atomic<int> asked = 0;
    CHECK(s.check(4'000'000'000, {}, [&] { return ++asked > 3; }) == Answer::unknown);
    CHECK(asked > 3);
  }
  CHECK(s.check(kUnits, {}, [] { return true; }) == Answer::unknown);
  s.require(s.at_least(x, 7));
  REQUIRE(s.check(kUnits, {}, [] { return false; }) == Answer::sat);
  CHECK(s.value(x) >= 7);
}

TEST_CASE("smt: the lightest hitting set", "[smt]") {
  const std::vector<std::int64_t> weights = {5, 1, 1, 1};
  smt::HittingSets sets(weights);
  const auto lightest = [&] { return sets.lightest(kUnits).value(); };
  CHECK(lightest() == std::vector<bool>(4, false));
  const std::size_t a[] = {0, 1}, b[] = {0, 2}, c[] = {0, 3};
  sets.hit(a);
  sets.hit(b);
  sets.hit(c);
  CHECK(lightest() == std::vector<bool>{false, true, true, true});
  sets.hit(std::vector<std::size_t>{0});
  CHECK(lightest() == std::vector<bool>{true, false, false, false});
  sets.hit({});
  CHECK(!sets.lightest(kUnits).has_value());
}
