// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string_view>
#include <vector>

#include "lang/ast.hpp"
#include "lang/diagnostics.hpp"
#include "lang/lexer.hpp"
#include "lang/source.hpp"

/// What the grammar's actions do: nodes from tokens, operators by their binding, errors in words
/// and where to go on after them. No parser library in here. Private to the parser.
namespace plimsoll::syntax {

/// What a parse knows besides where it is. `begin` and `end` bound the tokens; *end is Kind::end.
struct State {
  const Sources& sources;
  std::uint32_t file;
  std::string_view text;
  const Token* begin;
  const Token* end;
  Diagnostics& diagnostics;
  ast::File& result;
  int nesting = 0;
  const Token* last_error = nullptr;

  Span span(const Token& token) const { return {file, token.begin, token.end}; }
  /// From one token up to, but not including, another.
  Span span(const Token* first, const Token* last) const {
    return {file, first->begin, last[-1].end};
  }
  std::string_view spelling(const Token& token) const {
    return text.substr(token.begin, token.end - token.begin);
  }
};

/// An expression with the parentheses around it, which leave no trace in the tree.
struct Operand {
  ast::ExprPtr expr;
  Span outer;
};

/// The operands and operators of one expression, read from left to right; no recursion, whatever
/// the operators. Binding as in LANGUAGE.md §3.
class Operators {
 public:
  void operand(Operand);
  void prefix(State&, ast::Op, const Token&);
  void infix(State&, ast::Op, const Token&);
  Operand finish(State&);

 private:
  struct Pending {
    ast::Op op;
    const Token* token;
  };
  void push(State&, Pending);
  void reduce(State&);

  std::vector<Operand> operands_;
  std::vector<Pending> pending_;
};

/// Thrown past kMaxNesting, kMaxDepth or kMaxErrors, reported already; caught by parse().
struct GiveUp {};

ast::Name make_name(const State&, const Token&);
std::string make_string(const State&, const Token&);
ast::ExprPtr make_number(State&, const Token&);
/// A string, a truth value or a name.
ast::ExprPtr make_word(const State&, const Token&);
ast::ExprPtr make_node(const State&, ast::ExprKind, const Token&);
/// Adds an operand below \a parent. Reports and throws GiveUp past kMaxDepth.
void adopt(State&, ast::Expr& parent, ast::Argument child);
/// Reports and throws GiveUp.
[[noreturn]] void too_deep(State&, const Token&);
[[noreturn]] void too_long(State&, const Token&);
/// The `##` lines before a declaration that begins at \a first.
std::string documentation(const State&, const Token* first);

/// Reports that \a expected was due where \a where stands. \a expected is a noun phrase, or quoted
/// punctuation ("',' or ')'"), which is missed right after the token before.
void report(State&, const Token* where, std::string_view expected);

/// What to do about it, in one line; "" where there is nothing to say.
std::string help_for(const State&, const Token* where, std::string_view expected);

/// The grammar (grammar_file.cpp): all tokens of \a state into its result. Throws GiveUp.
void parse_tokens(State&);

/// Where to go on after an error at \a where in an entry that began at \a first: at the next entry,
/// the end of the body or of the file. Always past \a first.
const Token* next_entry(const State&, const Token* first, const Token* where);
/// The same for a declaration.
const Token* next_declaration(const State&, const Token* first, const Token* where);
/// A declaration begins here, whatever stands open: its kind first on a line, its name, and '{',
/// '=' or '('.
bool begins_declaration(const Token*);

}  // namespace plimsoll::syntax
