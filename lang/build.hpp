// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

/// Plan files written in C++: values, entries and declarations that print as the language does, so
/// that compile() reads the same tree as from a file. Types keep a value from standing where a
/// declaration belongs; names, dimensions and fields are checked by compile(), as in a file.
///
///     using namespace plimsoll::build;
///     File file;
///     file.add(cluster("pod").set("gpu", word("h100_sxm")).set("nodes", 8).set("gpus_per_node",
///     8)); file.add(train("tune").set("model", word("llama3_8b")).set("cluster", word("pod"))
///                  .set("seq", 8_Ki).set("batch", 64)
///                  .require("inside a node", word("tp") <= word("gpus_per_node"))
///                  .minimize(word("step_time")));
///     Module module = compile("built.plan", file.text(), diagnostics);
namespace plimsoll::build {

/// An expression: its text and how loosely its outermost operator binds.
class Formula {
 public:
  template <std::integral T>
  Formula(T number)  // NOLINT(google-explicit-constructor): `set("nodes", 8)` is what people write
      : Formula(spelled(number), number < T{} ? kUnary : kOperand) {}
  /// A text is a word("…") or a string("…"): which, only the caller knows.
  Formula(const char*) = delete;

  const std::string& text() const { return text_; }

  // Loosest first, as in docs/language.md.
  static constexpr int kImplies = 0, kOr = 1, kAnd = 2, kNot = 3, kCompare = 4, kRange = 5,
                       kSum = 6, kProduct = 7, kUnary = 8, kPower = 9, kOperand = 10;

  /// \a text is an expression whose outermost operator binds as \a binding says.
  Formula(std::string text, int binding) : text_(std::move(text)), binding_(binding) {}
  /// The text, in parentheses where it binds looser than \a binding.
  std::string at_least(int binding) const;

 private:
  static std::string spelled(bool flag) { return flag ? "true" : "false"; }
  static std::string spelled(std::integral auto number) { return std::to_string(number); }

  std::string text_;
  int binding_;
};

/// A name or a word: `llama3_8b`, `full`, `tp`. InternalError where it is no name of the language.
Formula word(std::string_view name);
/// A string such as a version. InternalError where a quote, a backslash or a line's end is in it.
Formula string(std::string_view text);
/// A decimal number with a unit: quantity("79.6", "GiB"), quantity("5", "%").
Formula quantity(std::string_view number, std::string_view unit);
Formula set(std::initializer_list<Formula>);
Formula list(std::initializer_list<Formula>);
Formula range(const Formula& first, const Formula& last);
Formula call(std::string_view function, std::initializer_list<Formula> arguments);
/// A named argument of a call: call("lora", {named("rank", 16)}).
Formula named(std::string_view name, const Formula&);
Formula in(const Formula&, const Formula& choices);
Formula implies(const Formula&, const Formula&);

Formula operator+(const Formula&, const Formula&);
Formula operator-(const Formula&, const Formula&);
Formula operator*(const Formula&, const Formula&);
Formula operator/(const Formula&, const Formula&);
Formula operator==(const Formula&, const Formula&);
Formula operator!=(const Formula&, const Formula&);
Formula operator<(const Formula&, const Formula&);
Formula operator<=(const Formula&, const Formula&);
Formula operator>(const Formula&, const Formula&);
Formula operator>=(const Formula&, const Formula&);
Formula operator&&(const Formula&, const Formula&);
Formula operator||(const Formula&, const Formula&);
Formula operator!(const Formula&);
Formula operator-(const Formula&);

inline namespace literals {
Formula operator""_Ki(unsigned long long);
Formula operator""_Mi(unsigned long long);
Formula operator""_GiB(unsigned long long);
Formula operator""_percent(unsigned long long);
}  // namespace literals

/// The entries of a body, in the order in which they are added.
class Body {
 public:
  Body& set(std::string_view name, const Formula&);     ///< `name = value`
  Body& narrow(std::string_view name, const Formula&);  ///< `name in value`
  Body& param(std::string_view name);
  Body& param(std::string_view name, const Formula& value);
  Body& require(const Formula& condition);
  Body& require(std::string_view label, const Formula& condition);
  Body& prefer(const Formula& condition);
  Body& prefer(std::string_view label, const Formula& condition);
  Body& minimize(const Formula&);
  Body& maximize(const Formula&);
  Body& give(const Formula&);                                                ///< `return value`
  Body& repeat(const Formula& times, const Body&);                           ///< of a model
  Body& item(std::string_view label, const Body&);                           ///< a line of the bill
  Body& part(std::string_view keyword, std::string_view name, const Body&);  ///< `pool name { … }`

  std::string text(int indent) const;

 private:
  Body& add(std::string entry);

  struct Entry {
    std::string head;
    std::vector<Body> body;  ///< none or one
  };
  std::vector<Entry> entries_;
};

/// `kind name = base { … }`. Its entries are set as a Body's are.
class Declaration {
 public:
  Declaration(std::string_view kind, std::string_view name, std::string_view base = "");

  Declaration& set(std::string_view name, const Formula& value) {
    return with(body_.set(name, value));
  }
  Declaration& narrow(std::string_view name, const Formula& choices) {
    return with(body_.narrow(name, choices));
  }
  Declaration& require(const Formula& condition) { return with(body_.require(condition)); }
  Declaration& require(std::string_view label, const Formula& condition) {
    return with(body_.require(label, condition));
  }
  Declaration& prefer(const Formula& condition) { return with(body_.prefer(condition)); }
  Declaration& minimize(const Formula& value) { return with(body_.minimize(value)); }
  Declaration& maximize(const Formula& value) { return with(body_.maximize(value)); }

  /// For what the short forms do not cover.
  Body& body() { return body_; }
  std::string text() const;

 private:
  Declaration& with(Body&) { return *this; }

  std::string head_;
  Body body_;
};

Declaration gpu(std::string_view name, std::string_view base = "");
Declaration cluster(std::string_view name, std::string_view base = "");
Declaration model(std::string_view name, std::string_view base = "");
Declaration train(std::string_view name, std::string_view base = "");
Declaration serve(std::string_view name, std::string_view base = "");
Declaration layout(std::string_view name, std::string_view base = "");

/// Declarations, one after the other.
class File {
 public:
  File& add(Declaration declaration);
  /// The file in the form that `plimsoll fmt` prints.
  std::string text() const;

 private:
  std::vector<Declaration> declarations_;
};

}  // namespace plimsoll::build

namespace plimsoll {

inline namespace literals {
/// A plan file as text in a program: R"( … )"_plan. Blank lines at both ends and the indent that
/// all its lines share are dropped, so that diagnostics quote lines as they look.
std::string operator""_plan(const char* text, std::size_t size);
}  // namespace literals

}  // namespace plimsoll
