// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lang/rational.hpp"

/// Symbolic expressions over layout variables: immutable, interned, folded when built, so that
/// equal expressions are one id and printing is canonical. Model and job numbers are constants in
/// them.
namespace plimsoll {

/// The nodes, written once. Truth is 0 or 1.
#define PLIMSOLL_EXPR_NODES(X)                                                                   \
  X(constant)                                                                                    \
  X(variable) X(add) X(mul) X(div) X(floor_div) X(ceil_div) X(min) X(max) X(equal) X(less_equal) \
      X(select)

/// What a layout, a stage and a search candidate are made of: every name that an expression may
/// leave open. Enumerations are numbers (recompute 0 none, 1 selective, 2 full, then the
/// framework's own).
#define PLIMSOLL_VARIABLES(X)                                                                  \
  X(tp)                                                                                        \
  X(pp) X(vpp) X(cp) X(ep) X(etp) X(dp) X(zero) X(shard) X(mbs) X(sp) X(recompute) X(schedule) \
      X(offload) X(seq) X(target) X(batch) X(microbatches) X(gpus) X(nodes) X(gpus_per_node)   \
          X(expert_dp) X(expert_shard) X(stage) X(first) X(last) X(in_flight) X(receiving)     \
              X(layers_on_stage) X(params_on_gpu) X(sequences) X(peak) X(hbm) X(headroom)      \
                  X(step_time) X(tokens_per_second) X(mfu) X(bubble) X(days) X(cost)

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
  /// Exact: the quotient is a rational number.
  Expr div(Expr, Expr);
  Expr floor_div(Expr, Expr);
  Expr ceil_div(Expr, Expr);
  Expr ceil(Expr a) { return ceil_div(a, constant(1)); }
  Expr min(Expr, Expr);
  Expr max(Expr, Expr);
  Expr equal(Expr, Expr);
  Expr less_equal(Expr, Expr);
  Expr logical_not(Expr a) { return sub(constant(1), a); }
  Expr logical_and(Expr a, Expr b) { return min(a, b); }
  Expr logical_or(Expr a, Expr b) { return max(a, b); }
  Expr select(Expr condition, Expr then, Expr otherwise);

  Node node(Expr e) const { return nodes_[e.id].node; }
  bool is_constant(Expr e) const { return nodes_[e.id].node == Node::constant; }
  const Rational& value(Expr e) const;  ///< of a constant
  Var var(Expr e) const;                ///< of a variable
  std::span<const Expr> operands(Expr e) const;
  /// Bit v is set where the expression depends on variable v.
  std::uint64_t depends_on(Expr e) const { return nodes_[e.id].variables; }
  std::size_t size() const { return nodes_.size(); }

  /// The value under \a env. Exact; throws ArithmeticError (division by zero, overflow).
  Rational eval(Expr, const Env& env) const;
  /// The expression with the given variables replaced by constants (`mask` bit set) and folded.
  Expr substitute(Expr, const Env& env, std::uint64_t mask);
  /// Canonical text over the variables' names: "2 * 8,192 * mbs * seq / (cp * tp)".
  std::string str(Expr) const;

 private:
  struct Stored {
    Node node;
    std::array<Expr, 3> operands;
    std::uint32_t payload;  ///< index of the constant, or the variable
    std::uint64_t variables;
  };
  Expr intern(Node, Expr a, Expr b, Expr c, std::uint32_t payload);

  std::vector<Stored> nodes_;
  std::vector<Rational> constants_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> index_;
};

}  // namespace plimsoll
