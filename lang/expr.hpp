// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lang/rational.hpp"

/// Symbolic expressions over layout variables: immutable, interned, folded when built, so that
/// equal expressions are one id and printing is canonical. Model and job numbers are constants in
/// them.
namespace plimsoll {

/// The nodes, written once. Truth is 0 or 1.
// clang-format off
#define PLIMSOLL_EXPR_NODES(X) \
  X(constant) X(variable) X(add) X(mul) X(div) X(floor_div) X(ceil_div) X(min) X(max) \
  X(equal) X(less_equal) X(select)
// clang-format on

/// What a layout, a stage and a search candidate are made of: every name that an expression may
/// leave open. Enumerations are numbers (recompute 0 none, 1 full, 2… the framework's modes).
/// Folding relies on this much: headroom, mfu, bubble, offload, cost, days, step_time and
/// tokens_per_second are any rationals, all others integers >= 0; sp, first and last are 0 or 1;
/// tp, pp, vpp, cp, ep, etp, dp, shard, mbs, seq, gpus, nodes, gpus_per_node, expert_dp and
/// expert_shard are >= 1.
// clang-format off
#define PLIMSOLL_VARIABLES(X) \
  X(tp) X(pp) X(vpp) X(cp) X(ep) X(etp) X(dp) X(zero) X(shard) X(mbs) X(sp) X(recompute) \
  X(schedule) X(offload) X(seq) X(target) X(batch) X(microbatches) X(gpus) X(nodes) \
  X(gpus_per_node) X(expert_dp) X(expert_shard) X(stage) X(first) X(last) X(in_flight) \
  X(receiving) X(layers_on_stage) X(params_on_gpu) X(sequences) X(peak) X(hbm) X(headroom) \
  X(step_time) X(tokens_per_second) X(mfu) X(bubble) X(days) X(cost)
// clang-format on

enum class Var : std::uint8_t {
#define X(name) name,
  PLIMSOLL_VARIABLES(X)
#undef X
};
#define X(name) +1
inline constexpr std::size_t kVarCount = 0 PLIMSOLL_VARIABLES(X);
#undef X
std::string_view name(Var);

/// A handle to an interned expression; cheap to copy and compare. Default: the constant 0 of the
/// pool.
struct Expr {
  std::uint32_t id = 0;
  friend bool operator==(Expr, Expr) = default;
};

/// The values of the variables that an evaluation sees. `known` says which are set; reading another
/// is our bug.
struct Env {
  std::array<Rational, kVarCount> values{};
  Rational& operator[](Var v) { return values[static_cast<std::size_t>(v)]; }
  const Rational& operator[](Var v) const { return values[static_cast<std::size_t>(v)]; }
};

/// Owns expressions. Ids grow from operands to users, so that one forward sweep evaluates
/// everything.
///
/// What is built is folded to one canonical form: like terms and equal factors merge, constants
/// come first, sums and products are flattened and sorted (stored as left-nested pairs, a constant
/// factor outermost), a fraction is one `div` of two products with integer coefficients, and `x /
/// x` goes where x is never 0. Wherever the unfolded expression has a value, the folded one has the
/// same; where it has none (x / 0), the folded one may have one (0 * (x / 0) is 0). Constants that
/// overflow and divisions by the constant 0 throw ArithmeticError when built.
class ExprPool {
 public:
  enum class Node : std::uint8_t {
#define X(name) name,
    PLIMSOLL_EXPR_NODES(X)
#undef X
  };

  ExprPool();

  Expr constant(const Rational&);
  Expr variable(Var);
  Expr add(Expr, Expr);
  Expr sub(Expr a, Expr b) { return add(a, mul(constant(-1), b)); }
  Expr mul(Expr, Expr);
  /// Of many terms or factors at once: what repeated `add` and `mul` give, in less time.
  Expr sum(std::span<const Expr>);
  Expr product(std::span<const Expr>);
  /// Exact: the quotient is a rational number.
  Expr div(Expr, Expr);
  Expr floor_div(Expr, Expr);
  Expr ceil_div(Expr, Expr);
  Expr ceil(Expr a) { return ceil_div(a, constant(1)); }
  Expr floor(Expr a) { return floor_div(a, constant(1)); }
  Expr min(Expr, Expr);
  Expr max(Expr, Expr);
  Expr equal(Expr, Expr);
  Expr less_equal(Expr, Expr);
  Expr logical_not(Expr a) { return sub(constant(1), a); }
  Expr logical_and(Expr a, Expr b) { return min(a, b); }
  Expr logical_or(Expr a, Expr b) { return max(a, b); }
  /// Only the chosen arm is evaluated. Any condition but 0 holds.
  Expr select(Expr condition, Expr then, Expr otherwise);

  Node node(Expr e) const { return nodes_[e.id].node; }
  bool is_constant(Expr e) const { return nodes_[e.id].node == Node::constant; }
  const Rational& value(Expr e) const;  ///< of a constant
  Var var(Expr e) const;                ///< of a variable
  std::span<const Expr> operands(Expr e) const;
  /// Bit v is set where the expression depends on variable v.
  std::uint64_t depends_on(Expr e) const { return nodes_[e.id].variables; }
  std::size_t size() const { return nodes_.size(); }

  /// Proven for every value of the variables; false where not known.
  bool is_integer(Expr e) const { return (nodes_[e.id].facts & kInteger) != 0; }
  bool is_nonnegative(Expr e) const { return (nodes_[e.id].facts & kNonnegative) != 0; }
  bool is_positive(Expr e) const { return (nodes_[e.id].facts & kPositive) != 0; }
  bool is_boolean(Expr e) const { return (nodes_[e.id].facts & kBoolean) != 0; }

  /// The value under \a env. Exact; throws ArithmeticError (division by zero, overflow). Many
  /// evaluations of one expression: Tape.
  Rational eval(Expr, const Env& env) const;
  /// The expression with the given variables replaced by constants (`mask` bit set) and folded.
  /// Throws ArithmeticError like the builders.
  Expr substitute(Expr, const Env& env, std::uint64_t mask);
  /// Canonical text over the variables' names: "16,384 * mbs * seq / (cp * tp)". It does not depend
  /// on the order in which expressions were built.
  std::string str(Expr) const;

 private:
  friend class Folder;
  enum Fact : std::uint8_t { kInteger = 1, kNonnegative = 2, kPositive = 4, kBoolean = 8 };
  struct Stored {
    Node node;
    std::uint8_t facts;
    std::array<Expr, 3> operands;
    std::uint32_t payload;  ///< index of the constant, or the variable
    std::uint64_t variables;
  };
  Expr intern(Node, Expr a, Expr b, Expr c, std::uint32_t payload);
  std::uint8_t facts_of(const Stored&) const;
  void grow();
  template <class Build>
  Expr remembered(Node, Expr a, Expr b, Build);

  std::vector<Stored> nodes_;
  std::vector<Rational> constants_;
  std::vector<std::uint32_t> table_;  ///< open addressing over node ids; its size a power of two
  /// Results of recent builders by operands: the same few are asked for again and again.
  struct Recent {
    Node node;
    Expr a, b, result;
  };
  std::vector<Recent> recent_;
};

/// Evaluates some expressions of a pool again and again: one sweep over the nodes that they need.
/// 64-bit integers and fractions where they suffice, exact Rationals where they do not. The pool
/// may grow meanwhile; a Tape does not look at it after its construction.
class Tape {
 public:
  Tape(const ExprPool&, std::span<const Expr> roots);

  void run(const Env&);
  /// Of root \a i at the last run. Throws ArithmeticError where it has no value.
  Rational value(std::size_t i) const;
  /// The same, which must be an integer of 64 bits (ArithmeticError otherwise).
  std::int64_t integer(std::size_t i) const;

 private:
  struct Step {
    ExprPool::Node node;
    std::uint32_t a, b, c;
  };
  /// den 0: no value in 64 bits, see `exact`.
  struct Slot {
    std::int64_t num, den;
  };
  Slot step(const Step&) const;
  void run_exactly() const;

  std::vector<Step> steps_;  ///< constants and variables are not among them
  std::vector<std::pair<std::uint32_t, Var>> inputs_;
  std::vector<std::pair<std::uint32_t, Rational>> constants_;
  std::vector<std::uint32_t> roots_;
  std::uint32_t first_step_ = 0;  ///< slot of steps_[0]; those before it hold inputs and constants
  std::vector<Slot> slots_;
  // The exact run, made when a root has no 64-bit value.
  std::vector<Rational> given_;  ///< values of inputs_ at the last run
  mutable bool exact_done_ = false;
  mutable std::vector<Rational> exact_;
  mutable std::vector<std::string> errors_;
};

}  // namespace plimsoll
