// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lang/ast.hpp"
#include "lang/diagnostics.hpp"
#include "lang/source.hpp"

/// The tokens of a .plan file: the lexical rules of LANGUAGE.md §2. Private to the parser.
namespace plimsoll::syntax {

/// Tokens with one spelling, written once: the name in the code and the text.
// clang-format off
#define PLIMSOLL_TOKENS(X) \
  X(kw_param, "param") X(kw_repeat, "repeat") X(kw_as, "as") X(kw_return, "return") \
  X(kw_item, "item") X(kw_require, "require") X(kw_prefer, "prefer") \
  X(kw_minimize, "minimize") X(kw_maximize, "maximize") X(kw_use, "use") X(kw_and, "and") \
  X(kw_or, "or") X(kw_not, "not") X(kw_in, "in") X(kw_if, "if") X(kw_true, "true") \
  X(kw_false, "false") X(left_paren, "(") X(right_paren, ")") \
  X(left_bracket, "[") X(right_bracket, "]") X(left_brace, "{") X(right_brace, "}") \
  X(comma, ",") X(semicolon, ";") X(colon, ":") X(assign, "=") X(plus, "+") X(minus, "-") \
  X(star, "*") X(slash, "/") X(double_slash, "//") X(caret, "^") X(dots, "..") \
  X(equal, "==") X(not_equal, "!=") X(less, "<") X(less_equal, "<=") X(greater, ">") \
  X(greater_equal, ">=") X(implies, "=>")
// clang-format on

enum class Kind : std::uint8_t {
  end,  ///< of the file
  word,
  number,
  string,
#define X(name, text) name,
  PLIMSOLL_TOKENS(X)
#undef X
};

constexpr bool is_reserved(Kind kind) { return kind >= Kind::kw_param && kind <= Kind::kw_false; }
constexpr bool is_punctuation(Kind kind) { return kind >= Kind::left_paren; }

/// Words that are keywords only where an entry may begin (or, `weight` and `each`, within one).
enum class Soft : std::uint8_t {
  none,
  state,
  on,
  save,
  fuse,
  default_,
  recompute,
  pool,
  observed,
  beside,
  weight,
  each,
  declaration,  ///< a kind of declaration: `model`, `train` …
};

struct Token {
  Kind kind = Kind::end;
  Soft soft = Soft::none;
  bool starts_line = false;  ///< the first token of its line
  bool after_junk = false;   ///< what stood before it was no token, and reported
  std::uint32_t begin = 0;
  std::uint32_t end = 0;         ///< with its unit
  std::uint32_t number_end = 0;  ///< of a number: where its digits and multiplier end
  std::uint32_t unit_begin = 0;  ///< of a number: where its unit begins; `end` where it has none
};

/// All tokens of a part of a file, closed by Kind::end, and its comments. Never fails: what is no
/// token is reported and left out.
std::vector<Token> lex(const Sources&, Span part, std::vector<ast::Comment>&, Diagnostics&);

/// May a name hold it?
bool is_word_character(char c);

/// At most \a bytes bytes of \a text, cut between characters.
std::string_view cut_text(std::string_view text, std::size_t bytes);
/// How errors name a kind of token: "'{'", "a name", "the end of the file".
std::string_view name_of(Kind);
/// Reserved words, words that begin an entry, and kinds of declarations, for "did you mean".
const std::vector<std::string>& entry_words();
const std::vector<std::string>& declaration_kinds();

}  // namespace plimsoll::syntax
