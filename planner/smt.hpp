// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lang/rational.hpp"

/// Z3 behind a door: small integers, Booleans, clauses. Nothing else of the project sees Z3.
///
/// Effort is counted in Z3's own resource units, which depend on nothing but the calls made: the
/// same program asks for the same units and gets the same answers on every machine. There is no
/// clock here. What Z3 cannot decide within its units is `unknown`, never a no.
namespace plimsoll::smt {

enum class Answer : std::uint8_t { sat, unsat, unknown };

/// A Boolean or an integer of the Solver that made it.
struct Term {
  std::uint32_t id = 0;
};

/// A factor and what it multiplies.
struct Product {
  Int128 factor = 1;
  Term term;
};

/// One incremental solver with its own context. Not for several threads at once. Z3's own failures
/// are InternalErrors.
class Solver {
 public:
  Solver();
  ~Solver();
  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;

  Term boolean(std::string_view name);
  /// An integer from \a low to \a high, both included.
  Term integer(std::string_view name, std::int64_t low, std::int64_t high);
  Term constant(Int128);
  Term truth(bool);

  Term all(std::span<const Term>);  ///< true where empty
  Term any(std::span<const Term>);  ///< false where empty
  Term negate(Term);
  Term implies(Term condition, Term then);
  /// Two Booleans or two integers.
  Term equal(Term, Term);
  Term choose(Term condition, Term then, Term otherwise);
  Term sum(std::span<const Product>, Int128 constant = 0);
  Term less_equal(Term, Term);
  Term at_least(Term integer, Int128 bound);
  Term at_most(Term integer, Int128 bound);
  /// floor(integer / divisor) and the remainder, >= 0; divisor > 0.
  Term floor_div(Term integer, Int128 divisor);
  Term mod(Term integer, Int128 divisor);
  Term exactly_one(std::span<const Term> booleans);
  Term at_most_of(std::span<const Term> booleans, unsigned count);

  void require(Term);
  /// One clause: at least one of them holds.
  void clause(std::span<const Term>);

  /// What is required while it lives is undone when it ends.
  class Scope {
   public:
    explicit Scope(Solver&);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Solver& solver_;
  };

  /// Is all that is required satisfiable, with \a assumptions (Booleans, or negations of some)? At
  /// most \a units are spent (of Z3's, at most 2^32 - 1). \a stop is asked now and then meanwhile,
  /// from another thread; once it is true the check ends, as `unknown`.
  Answer check(std::int64_t units, std::span<const Term> assumptions = {},
               const std::function<bool()>& stop = {});
  /// Which of the assumptions clash, as indices in ascending order, after `unsat`. Not minimal.
  std::vector<std::size_t> core() const;

  /// Of the last `sat`.
  std::int64_t value(Term integer) const;
  bool holds(Term boolean) const;

  std::int64_t units() const;   ///< spent by checks so far
  std::int64_t checks() const;  ///< made so far
  /// What is required now, in SMT-LIB 2, for the report of a mistake of ours.
  std::string smt2() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Sets over n weighted elements that meet every given set, the lightest first: Z3's optimisation
/// over Booleans.
class HittingSets {
 public:
  explicit HittingSets(std::span<const std::int64_t> weights);  ///< each >= 1
  ~HittingSets();
  HittingSets(const HittingSets&) = delete;
  HittingSets& operator=(const HittingSets&) = delete;

  /// From now on at least one of \a members must be in.
  void hit(std::span<const std::size_t> members);
  /// The lightest set, deterministic among equals. nullopt: \a units did not suffice, or an empty
  /// set must be met.
  std::optional<std::vector<bool>> lightest(std::int64_t units);

  std::int64_t units() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// "4.8.12"
std::string z3_version();

}  // namespace plimsoll::smt
