// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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
  std::string
      unit;  ///< "tokens", "sequences" or "" — counts keep what they count for `batch = 4Mi tokens`
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
struct Tensor {
  ValueId id;
};
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
  std::variant<None, Number, Boolean, Word, OpenWord, String, Tensor, List, Interval, Set> data;
  Span span;

  template <class T>
  const T* as() const {
    return std::get_if<T>(&data);
  }
  /// "a count", "bytes", "a word", "a list" … for "expected X, got Y".
  std::string kind() const;
};

/// Where names come from. Scopes nest; `find` looks here first and then in the parent.
class Scope {
 public:
  explicit Scope(const Scope* parent = nullptr) : parent_(parent) {}
  virtual ~Scope() = default;
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  void set(std::string name, Value value) { names_[std::move(name)] = std::move(value); }
  const Value* find(std::string_view name) const;
  /// Every name in sight, for "did you mean".
  std::vector<std::string> names() const;

 protected:
  /// A name that is made when asked for (lazily). nullptr: unknown here.
  virtual const Value* make(std::string_view) const { return nullptr; }

 private:
  const Scope* parent_;
  std::map<std::string, Value, std::less<>> names_;
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
};

class Evaluator {
 public:
  Evaluator(ExprPool& pool, Diagnostics& diags, Calls* calls = nullptr)
      : pool_(pool), diags_(diags), calls_(calls) {}

  /// The value, or nullopt after one error at the offending node. A bare name that is in no scope
  /// is an error unless \a words is given (a default, an argument of an enumerated parameter): then
  /// it is a word of it; with an Enumeration of no words any name may be a word.
  std::optional<Value> eval(const ast::Expr&, const Scope&, const Enumeration* words = nullptr);

  /// eval, then insist on a kind; the error names what was expected and what was found.
  std::optional<Expr> count(const ast::Expr&, const Scope&);
  std::optional<Expr> quantity(const ast::Expr&, const Scope&, Dimension);
  std::optional<Expr> condition(const ast::Expr&, const Scope&);
  std::optional<Rational> constant(const ast::Expr&, const Scope&, Dimension);

  ExprPool& pool() { return pool_; }
  Diagnostics& diags() { return diags_; }

 private:
  ExprPool& pool_;
  Diagnostics& diags_;
  Calls* calls_;
};

}  // namespace plimsoll::eval
