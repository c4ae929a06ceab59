// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <boost/spirit/home/x3.hpp>
#include <functional>
#include <string>

#include "lang/parse.hpp"
#include "lang/syntax.hpp"

/// The grammar's common ground: X3 over tokens. Included by the two grammar_*.cpp only. The lexer
/// has dealt with blanks and comments, so there is no skipper, and every choice is made on at most
/// three tokens.
namespace plimsoll::syntax {

namespace x3 = boost::spirit::x3;

using Iterator = const Token*;

struct StateTag;
using Context = x3::context<StateTag, const std::reference_wrapper<State>, x3::unused_type>;

template <typename Ctx>
State& state_of(const Ctx& context) {
  return x3::get<StateTag>(context).get();
}

/// One token that \a Test accepts; its attribute is the token. What it is called in errors is
/// `name`.
template <typename Test>
struct TokenParser : x3::parser<TokenParser<Test>> {
  using attribute_type = Iterator;
  static constexpr bool has_attribute = true;

  TokenParser(Test t, std::string_view n) : test(t), name(n) {}

  template <typename Ctx, typename RuleCtx, typename Attribute>
  bool parse(Iterator& first, const Iterator& last, const Ctx&, RuleCtx&,
             Attribute& attribute) const {
    if (first == last || !test(first)) return false;
    x3::traits::move_to(first, attribute);
    ++first;
    return true;
  }

  Test test;
  std::string_view name;
};

template <typename Test>
auto token_if(Test test, std::string_view name) {
  return TokenParser<Test>(test, name);
}

inline auto token(Kind kind, std::string_view name) {
  const auto test = [kind](Iterator at) { return at->kind == kind; };
  return TokenParser<decltype(test)>(test, name);
}
inline auto token(Kind kind) { return token(kind, name_of(kind)); }

/// A bracket on the line of the operand before it: a call or an index.
inline auto attached(Kind kind) {
  const auto test = [kind](Iterator at) { return at->kind == kind && !at->starts_line; };
  return TokenParser<decltype(test)>(test, name_of(kind));
}

/// A word that is a keyword by its place: not where it is given a value.
inline auto soft(Soft word) {
  const auto test = [word](Iterator at) {
    return at->soft == word && at[1].kind != Kind::assign && at[1].kind != Kind::kw_in;
  };
  return TokenParser<decltype(test)>(test, "a keyword");
}

/// Looks ahead without taking anything.
template <typename Test>
auto when(Test test) {
  return &TokenParser<Test>(test, "");
}

/// A bracketed part, counted: past kMaxNesting the parse is given up, before the stack is.
template <typename Subject>
struct NestedDirective : x3::unary_parser<Subject, NestedDirective<Subject>> {
  using Base = x3::unary_parser<Subject, NestedDirective<Subject>>;
  static constexpr bool is_pass_through_unary = true;
  static constexpr bool handles_container = Subject::handles_container;

  explicit NestedDirective(const Subject& wrapped) : Base(wrapped) {}

  template <typename Ctx, typename RuleCtx, typename Attribute>
  bool parse(Iterator& first, const Iterator& last, const Ctx& context, RuleCtx& rule,
             Attribute& attribute) const {
    struct Level {
      explicit Level(State& s) : state(s) { ++state.nesting; }
      ~Level() { --state.nesting; }
      State& state;
    };
    const Level level(state_of(context));
    if (level.state.nesting > kMaxNesting) too_deep(level.state, first[-1]);
    return this->subject.parse(first, last, context, rule, attribute);
  }
};

/// Sets the rule's span to what \a Subject took. (X3 runs on_success without the attribute of a
/// rule that has actions.)
template <typename Subject>
struct SpannedDirective : x3::unary_parser<Subject, SpannedDirective<Subject>> {
  using Base = x3::unary_parser<Subject, SpannedDirective<Subject>>;
  static constexpr bool is_pass_through_unary = true;
  static constexpr bool handles_container = Subject::handles_container;

  explicit SpannedDirective(const Subject& wrapped) : Base(wrapped) {}

  template <typename Ctx, typename RuleAttribute, typename Attribute>
  bool parse(Iterator& first, const Iterator& last, const Ctx& context, RuleAttribute& rule,
             Attribute& attribute) const {
    const Iterator begin = first;
    if (!this->subject.parse(first, last, context, rule, attribute)) return false;
    rule.span = state_of(context).span(begin, first);
    return true;
  }
};

template <template <typename> typename Directive>
struct DirectiveOf {
  template <typename Subject>
  auto operator[](const Subject& subject) const {
    using Parser = typename x3::extension::as_parser<Subject>::value_type;
    return Directive<Parser>(x3::as_parser(subject));
  }
};
inline constexpr DirectiveOf<NestedDirective> nested;
inline constexpr DirectiveOf<SpannedDirective> spanned;

/// Always an error: here \a name was due.
struct DueParser : x3::parser<DueParser> {
  using attribute_type = x3::unused_type;
  static constexpr bool has_attribute = false;

  explicit DueParser(const char* n) : name(n) {}

  template <typename Ctx, typename RuleCtx, typename Attribute>
  bool parse(Iterator& first, const Iterator&, const Ctx&, RuleCtx&, Attribute&) const {
    boost::throw_exception(x3::expectation_failure<Iterator>(first, name));
  }

  const char* name;
};
inline DueParser due(const char* name) { return DueParser(name); }

/// `p, p, … [,]` or nothing: what stands between brackets. A comma may also stand last.
template <typename Parser>
auto listed(const Parser& parser) {
  return -(parser >> *(token(Kind::comma) >> parser) >> -token(Kind::comma));
}

using ExpressionRule = x3::rule<struct ExpressionClass, ast::ExprPtr>;
BOOST_SPIRIT_DECLARE(ExpressionRule)

/// An expression; its rule's name is what errors call it.
inline const ExpressionRule expression = "an expression";

}  // namespace plimsoll::syntax

namespace boost::spirit::x3 {

template <typename Test>
struct get_info<plimsoll::syntax::TokenParser<Test>> {
  using result_type = std::string;
  std::string operator()(const plimsoll::syntax::TokenParser<Test>& parser) const {
    return std::string(parser.name);
  }
};

template <typename Subject, typename Action>
struct get_info<action<Subject, Action>> {
  using result_type = std::string;
  std::string operator()(const action<Subject, Action>& parser) const {
    return what(parser.subject);
  }
};

template <typename Subject>
struct get_info<plimsoll::syntax::NestedDirective<Subject>> {
  using result_type = std::string;
  std::string operator()(const plimsoll::syntax::NestedDirective<Subject>& parser) const {
    return what(parser.subject);
  }
};

}  // namespace boost::spirit::x3
