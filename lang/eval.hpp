// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lang/ast.hpp"
#include "lang/diagnostics.hpp"
#include "lang/expr.hpp"
#include "lang/program.hpp"
#include "lang/units.hpp"

/// The one evaluator of the language's expressions. Numbers are symbolic (Expr): a layout variable
/// that is open stays a variable, everything else folds to a constant.
namespace plimsoll::eval {

/// An enumeration: the words that a parameter or layout variable may take, in order.
struct Enumeration {
  std::string name;
  std::vector<std::string> words;
};

struct Number {
  Expr expr;
  Dimension dimension;
  /// "tokens", "sequences" or "": counts keep what they count for `batch = 4Mi tokens`.
  std::string_view unit = {};
};
struct Boolean {
  Expr expr;  ///< 0 or 1
};
/// A word whose enumeration is known from its place, or a string of the same kind.
struct Word {
  std::string text;
  const Enumeration* of = nullptr;
};
/// An enumeration's value that is still open: `expr` is the index of the word.
struct OpenWord {
  Expr expr;
  const Enumeration* of = nullptr;
};
struct String {
  std::string text;  ///< versions compare part by part
};
struct None {};
/// An activation of the program that is being built; kLoss: what cross_entropy returns.
struct Tensor {
  ValueId id;
};
inline constexpr ValueId kLoss = kNone;
/// What to do about two values of unlike kinds or dimensions.
inline constexpr const char* kAlike =
    "both must be of one kind; a plain number takes a unit, as in 2 GiB or 3 s";
/// A name whose value is wrong, as was reported already: what uses it fails without a word.
struct Unknown {};
struct Value;
struct List {
  std::vector<Value> items;
};
struct Interval {
  Number from, to;
};
/// A set's members, ranges among them.
struct Set {
  std::vector<Value> items;
};

struct Value {
  std::variant<None, Number, Boolean, Word, OpenWord, String, Tensor, List, Interval, Set, Unknown>
      data;
  Span span;  ///< where it was written

  template <class T>
  const T* as() const {
    return std::get_if<T>(&data);
  }
  /// "a count", "bytes", "a word", "a list" … for "expected X, got Y".
  std::string kind() const;
  /// `none`, as itself or as a word of an enumeration that has it.
  bool is_none() const;
};

/// Where names come from. Scopes nest; `find` looks here first and then in the parent. What `find`
/// returns stays where it is for as long as the scope lives.
class Scope {
 public:
  explicit Scope(const Scope* parent = nullptr) : parent_(parent) {}
  virtual ~Scope() = default;
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  void set(std::string_view name, Value value);
  const Value* find(std::string_view name) const;
  /// The value of a name that was set in this very scope, to be changed.
  Value* own(std::string_view name);
  /// Every name in sight, for "did you mean".
  std::vector<std::string> names() const;
  const Scope* parent() const { return parent_; }

 protected:
  /// A name that is made when asked for (lazily), asked each time. nullptr: unknown here.
  virtual const Value* make(std::string_view) const { return nullptr; }
  /// The names that make() knows.
  virtual std::vector<std::string> made_names() const { return {}; }

 private:
  const Value* find_hashed(std::string_view name, std::uint32_t hash) const;

  const Scope* parent_;
  std::vector<std::uint32_t> hashes_;
  std::deque<std::pair<std::string, Value>> values_;
};

/// Calls that are no built-in functions: ops and blocks while a model is built, `bytes("…")` in
/// conditions. nullopt after an error was reported.
class Calls {
 public:
  virtual ~Calls() = default;
  /// Is this name callable here? (for `unknown function`, did you mean)
  virtual bool knows(std::string_view name) const = 0;
  virtual std::vector<std::string> names() const = 0;
  virtual std::optional<Value> call(const ast::Expr& call, const Scope&) = 0;
  /// `+` or `*` where an operand is a tensor; both operands are as they were evaluated.
  virtual std::optional<Value> combine(const ast::Expr& node, ast::Op op, const Value& left,
                                       const Value& right);
  /// Adds to an error what led to it (the calls of blocks).
  virtual void explain(Diagnostic&) const {}
};

class Evaluator {
 public:
  Evaluator(ExprPool& pool, Diagnostics& diags, Calls* calls = nullptr)
      : pool_(pool), diags_(diags), calls_(calls) {}
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  /// The value, or nullopt after one error at the offending node. A bare name that is in no scope
  /// is an error unless \a words is given (a default, an argument of an enumerated parameter): then
  /// it is a word of it; with an Enumeration of no words any name may be a word. Words of an
  /// enumeration win over variables; where any name may be one, variables win.
  std::optional<Value> eval(const ast::Expr&, const Scope&, const Enumeration* words = nullptr);

  /// eval, then insist on a kind; the error names what was expected and what was found.
  std::optional<Expr> count(const ast::Expr&, const Scope&);
  std::optional<Expr> quantity(const ast::Expr&, const Scope&, Dimension);
  std::optional<Expr> condition(const ast::Expr&, const Scope&);
  std::optional<Rational> constant(const ast::Expr&, const Scope&, Dimension);

  /// The same demands on a value at hand; \a where is the node that was evaluated.
  std::optional<Expr> as_quantity(const Value&, Dimension, Span where);
  std::optional<Expr> as_condition(const Value&, Span where);
  /// a = b of the language, for values at hand (`where`: for errors).
  std::optional<Expr> equal(const Value& a, const Value& b, Span where);
  /// value in of, for values at hand.
  std::optional<Expr> contains(const Value& value, const Value& of, Span where);
  /// Reports, with what Calls::explain adds.
  Diagnostic& error(Span where, std::string message);
  void error(Span where, const ArithmeticError&);

  ExprPool& pool() { return pool_; }
  Diagnostics& diags() { return diags_; }

 private:
  using Result = std::optional<Value>;

  Result dispatch(const ast::Expr&, const Scope&, const Enumeration* words);
  Result name(const ast::Expr&, const Scope&, const Enumeration* words);
  Result collection(const ast::Expr&, const Scope&, const Enumeration* words);
  Result index(const ast::Expr&, const Scope&);
  Result unary(const ast::Expr&, const Scope&);
  Result binary(const ast::Expr&, const Scope&);
  Result chain(const ast::Expr&, const Scope&);
  Result arithmetic(const ast::Expr& node, Value left, Value right);
  Result power(const ast::Expr& node, const Value& left, const Value& right);
  Result range(const ast::Expr& node, const Value& left, const Value& right);
  Result logical(const ast::Expr&, const Scope&);
  Result comparison(const ast::Expr&, const Scope&);
  Result order(const ast::Expr& node, const Value& left, const Value& right);
  Result membership(const ast::Expr&, const Scope&);
  Result choose(const ast::Expr&, const Scope&, const Enumeration* words);
  Result call(const ast::Expr&, const Scope&, const Enumeration* words);
  Result function(const ast::Expr& call, std::vector<Value> args);
  Result fold(const ast::Expr& call, std::vector<Value>& args);
  Result length(const ast::Expr& call, const Value& arg);
  Result rounding(const ast::Expr& call, const Value& arg);
  Result log2(const ast::Expr& call, const Value& arg);
  Result mod(const ast::Expr& call, const Value& a, const Value& b);
  Result select(const ast::Expr& node, Expr condition, const Value& then, const Value& otherwise);
  const Number* number(const Value&, Span where);
  Result make(Expr expr, Dimension dimension, Span span, std::string_view unit = {}) const {
    return Value{Number{expr, dimension, unit}, span};
  }
  Result truth(Expr expr, Span span) const { return Value{Boolean{expr}, span}; }
  std::nullopt_t unknown_name(const ast::Expr&, const Scope&);

  ExprPool& pool_;
  Diagnostics& diags_;
  Calls* calls_;
  int depth_ = 0;
};

/// The enumeration that the words of a value belong to, or nullptr: none in sight.
const Enumeration* enumeration_of(const Value&);
/// The enumeration of no words: any name may be one of it.
const Enumeration& any_words();
/// "2.11" against "2.9", part by part, numbers as numbers: < 0, 0, > 0.
int compare_versions(std::string_view a, std::string_view b);
/// Is this a built-in function of expressions (`min`, `if` …)?
bool is_function(std::string_view name);

}  // namespace plimsoll::eval
