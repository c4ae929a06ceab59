// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <array>

#include "lang/syntax.hpp"

/// The help lines of syntax errors: what to write instead.
namespace plimsoll::syntax {

namespace {

/// How far back the keyword of an entry is looked for.
constexpr int kMaxHeadTokens = 12;

struct Form {
  std::string_view keyword;
  std::string_view form;
};

constexpr std::array kForms = {
    Form{"param", "param NAME in {…} = DEFAULT, NAME, …"},
    Form{"repeat", "repeat COUNT as NAME { … }"},
    Form{"item", "item \"NAME\" each weight { bytes = … }"},
    Form{"require", "require \"NAME\": CONDITION"},
    Form{"prefer", "prefer \"NAME\": CONDITION weight N"},
    Form{"use", "use \"other.plan\""},
    Form{"state", "state NAME : DTYPE { … }"},
    Form{"on", "on OP { … } or on {OP, OP} { … }"},
    Form{"save", "save VALUE : DTYPE"},
    Form{"fuse", "fuse NAME = {WEIGHT, WEIGHT}"},
    Form{"default", "default VARIABLE = VALUE"},
    Form{"recompute", "recompute NAME { drop = {…} }"},
    Form{"pool", "pool NAME { … }"},
    Form{"observed", "observed { … }"},
    Form{"beside", "beside NAME { … }"},
};

constexpr std::string_view kDeclarationForm = "a declaration is: KIND NAME = BASE { … }";

bool is_comparison(Kind kind) { return kind >= Kind::equal && kind <= Kind::greater_equal; }

bool is_operator(Kind kind) {
  return (kind >= Kind::plus && kind <= Kind::implies) || kind == Kind::kw_and ||
         kind == Kind::kw_or || kind == Kind::kw_not || kind == Kind::kw_in;
}

/// The form of the entry whose head ends at \a where, if it has a keyword.
std::string form_of(const State& state, const Token* where) {
  const Token* token = where;
  for (int i = 0; i < kMaxHeadTokens && token > state.begin; ++i) {
    --token;
    if (token->kind == Kind::left_brace || token->kind == Kind::right_brace) break;
    for (const Form& form : kForms)
      if (state.spelling(*token) == form.keyword) return fmt::format("its form is: {}", form.form);
  }
  return std::string(kDeclarationForm);
}

std::string help_for_expression(const State& state, const Token* where) {
  const Token& before = where[-1];
  if (where->kind == Kind::comma) return "take one ',' out, or write what stands before it";
  if (is_operator(before.kind) || before.kind == Kind::assign)
    return fmt::format("'{}' stands before a value: a number, a name, a call, (…), {{…}} or […]",
                       state.spelling(before));
  if (is_operator(where->kind))
    return fmt::format("'{}' stands between two values", state.spelling(*where));
  return "a value is a number, a name, a call, (…), {…} or […]";
}

/// A name that is not given a value.
std::string help_for_given(const State& state, const Token* where) {
  const std::string_view name = state.spelling(where[-1]);
  if (is_comparison(where->kind)) return "to demand a condition, write 'require' before it";
  if (where->kind == Kind::colon)
    return fmt::format("a value is given with '=': {} = …", name.substr(0, 40));
  if (where[-1].soft == Soft::weight) return "'weight' stands after the condition of a 'prefer'";
  if (const std::string near = did_you_mean(name, entry_words()); !near.empty() && near != name)
    return fmt::format("did you mean '{}'?", near);
  if (where[-1].soft == Soft::declaration && where->kind == Kind::word)
    return "a declaration begins a line of its own, outside of others";
  return fmt::format("a value is given with '=': {} = …", name.substr(0, 40));
}

std::string help_for_entry(const State& state, const Token* where) {
  const Token& before = where[-1];
  switch (where->kind) {
    case Kind::kw_use:
      return "'use' stands outside of declarations";
    case Kind::right_paren:
      return "no '(' stands open here";
    case Kind::right_bracket:
      return "no '[' stands open here";
    case Kind::assign:
      return "'=' gives a value to one name; '==' compares";
    case Kind::left_paren:
    case Kind::left_bracket:
      if (where->starts_line)
        return "the bracket of a call or an index stands on the line of what is before it";
      return "only a name is called: f(x)";
    case Kind::left_brace:
      if (before.kind == Kind::right_paren)
        return "the body of experts has the form { t => mlp(t, ffn) }";
      return "this entry has no body";
    default:
      break;
  }
  if (before.kind == Kind::comma) return "several values stand in brackets: {1, 2, 4} or [1, 2, 4]";
  if (where->kind == Kind::number || where->kind == Kind::string)
    return "two values side by side are no operation: an operator is missing, or NAME =";
  if (is_operator(where->kind))
    return fmt::format("'{}' stands between two values", state.spelling(*where));
  return "an entry is NAME = VALUE, or begins with a keyword such as require or item";
}

std::string help_for_name(const State& state, const Token* where) {
  if (is_reserved(where->kind))
    return fmt::format("'{}' is a reserved word: take another name", state.spelling(*where));
  if (where > state.begin && where[-1].kind == Kind::assign) return std::string(kDeclarationForm);
  if (where > state.begin && where[-1].soft == Soft::declaration)
    return std::string(kDeclarationForm);
  return form_of(state, where);
}

}  // namespace

std::string help_for(const State& state, const Token* where, std::string_view expected) {
  if (where == state.begin || expected == "a declaration") {
    if (where->kind == Kind::right_brace) return "no '{' stands open here: this one is too many";
    if (where->kind == Kind::word || is_reserved(where->kind))
      return "entries stand inside a declaration: layout NAME { tp = 8 }";
    return std::string(kDeclarationForm);
  }
  if (expected == "an expression") return help_for_expression(state, where);
  if (expected == "'=' or 'in'") return help_for_given(state, where);
  if (expected == "an entry") return help_for_entry(state, where);
  if (expected == "a name") return help_for_name(state, where);
  if (expected == "'{' or '='") return std::string(kDeclarationForm);
  if (expected == "an entry or '}'") return "close it with '}'";
  if (expected == "'('") return "'if' is a call: if(condition, then, otherwise)";
  if (expected.starts_with("',' or"))
    return fmt::format("put ',' between two of them, or {} after the last",
                       expected.substr(expected.size() - 3));
  if (expected == "')'" || expected == "']'" || expected == "'}'")
    return fmt::format("close it with {}", expected);
  return form_of(state, where);
}

}  // namespace plimsoll::syntax
