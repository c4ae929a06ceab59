// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>

#include "lang/parse.hpp"
#include "lang/syntax.hpp"
#include "lang/units.hpp"

/// Syntax errors in words, and where to go on after them.
namespace plimsoll::syntax {

namespace {

constexpr std::size_t kMaxQuoted = 40;
/// How far back an opening bracket is looked for.
constexpr std::ptrdiff_t kMaxLookBack = 10'000;

bool is_opening(Kind kind) {
  return kind == Kind::left_paren || kind == Kind::left_bracket || kind == Kind::left_brace;
}
bool is_closing(Kind kind) {
  return kind == Kind::right_paren || kind == Kind::right_bracket || kind == Kind::right_brace;
}

/// After this token an expression or a list goes on, so that `NAME =` at the start of the next line
/// may be a named argument.
bool is_open_ended(Kind kind) {
  return is_opening(kind) || kind == Kind::comma || kind == Kind::colon || kind >= Kind::assign ||
         kind == Kind::kw_and || kind == Kind::kw_or || kind == Kind::kw_not || kind == Kind::kw_in;
}

bool begins_entry(const Token* token) {
  if (token->kind == Kind::end) return false;  // nothing stands behind it to be looked at
  const bool given = token[1].kind == Kind::assign || token[1].kind == Kind::kw_in;
  if (token->kind == Kind::word) {
    if (given) return true;
    const bool keyword = token->soft != Soft::none && token->soft < Soft::weight;
    return keyword && (token[1].kind == Kind::word || token[1].kind == Kind::left_brace);
  }
  return token->kind >= Kind::kw_param && token->kind <= Kind::kw_maximize &&
         token->kind != Kind::kw_as;
}

std::string quoted(const State& state, const Token& token) {
  if (token.kind == Kind::end) return "the end of the file";
  const std::string_view whole = state.spelling(token);
  const std::string_view text = cut_text(whole, kMaxQuoted);
  const std::string_view ellipsis = text.size() < whole.size() ? "…" : "";
  if (token.kind == Kind::string) return fmt::format("{}{}", text, ellipsis);
  return fmt::format("'{}{}'", text, ellipsis);
}

/// Right after a token: where something is missing.
Span after(const State& state, const Token& token) { return {state.file, token.end, token.end}; }

/// The innermost bracket that stands open before \a where.
const Token* open_bracket(const State& state, const Token* where) {
  int closed = 0;
  const Token* limit = where - std::min<std::ptrdiff_t>(where - state.begin, kMaxLookBack);
  for (const Token* token = where; token-- > limit;) {
    if (is_closing(token->kind)) ++closed;
    if (is_opening(token->kind) && closed-- == 0) return token;
  }
  return nullptr;
}

/// `80 Gib`: a word after a number, on its line, that was meant as its unit. Null if there is none.
const Token* mistaken_unit(const State& state, const Token* where, std::string_view expected) {
  const Token* word = where;
  if (expected == "'=' or 'in'") --word;
  if (word - state.begin < 1 || word->kind != Kind::word || word->starts_line) return nullptr;
  const Token& number = word[-1];
  if (number.kind != Kind::number || number.unit_begin != number.end) return nullptr;
  const Token& next = word[1];
  const bool ends = next.kind == Kind::end || next.starts_line || is_punctuation(next.kind) ||
                    begins_entry(&next);
  if (!ends || next.kind == Kind::left_paren || next.kind == Kind::assign) return nullptr;
  const std::string_view text = state.spelling(*word);
  if (text == "K" || !did_you_mean(text, unit_names()).empty()) return word;
  return nullptr;
}

void report_unit(const State& state, const Token& word) {
  const std::string_view text = state.spelling(word);
  const std::string_view number = state.spelling((&word)[-1]);
  Diagnostic& error = state.diagnostics.error(state.span(word),
                                              fmt::format("unknown unit {}", quoted(state, word)));
  if (text == "K") {
    error.with_help(fmt::format("write {0}Ki for {0} * 1024, or {0}k for {0} * 1000", number));
  } else {
    error.with_help(fmt::format("did you mean '{}'?", did_you_mean(text, unit_names())));
  }
}

/// After this token a value is due, whatever follows.
bool awaits_value(const Token& token) {
  return (is_open_ended(token.kind) && !is_opening(token.kind)) || token.soft == Soft::weight ||
         (token.kind >= Kind::kw_repeat && token.kind <= Kind::kw_maximize &&
          token.kind != Kind::kw_as && token.kind != Kind::kw_item);
}

/// `seq =` and a new line: the name of the next entry was read as the value. What the value was due
/// after, or null if that is not so.
const Token* value_left_out(const State& state, const Token* where) {
  if (where - state.begin < 3) return nullptr;
  const bool given = where->kind == Kind::assign || where->kind == Kind::kw_in;
  const bool word = where[-1].kind == Kind::word && where[-1].starts_line;
  return given && word && awaits_value(where[-2]) ? &where[-2] : nullptr;
}

/// The same, noticed at once: the next entry begins with a keyword, or the body ends.
bool ends_line_without_value(const Token* where) {
  return where->starts_line && (begins_entry(where) || where->kind == Kind::right_brace) &&
         awaits_value(where[-1]);
}

}  // namespace

bool begins_declaration(const Token* token) {
  return token->starts_line && token->soft == Soft::declaration && token[1].kind == Kind::word &&
         (token[2].kind == Kind::left_brace || token[2].kind == Kind::assign ||
          token[2].kind == Kind::left_paren);
}

void report(State& state, const Token* where, std::string_view expected) {
  // One mistake, one error.
  if (where == state.last_error || where->after_junk) return;
  if (state.diagnostics.error_count() >= kMaxErrors) throw GiveUp{};
  state.last_error = where;
  const bool item_left_out = where->kind == Kind::comma && is_opening(where[-1].kind);
  if (expected.starts_with("',' or") && (where[-1].kind == Kind::comma || item_left_out))
    expected = "an expression";
  if (const Token* unit = mistaken_unit(state, where, expected)) return report_unit(state, *unit);
  const Token* open = expected == "an entry" ? value_left_out(state, where) : nullptr;
  if (expected == "an expression" && ends_line_without_value(where)) open = where - 1;
  if (open != nullptr) {
    state.diagnostics.error(after(state, *open), "expected an expression, got the end of the line")
        .with_help(help_for(state, open + 1, "an expression"));
    return;
  }
  const bool missing =
      expected.front() == '\'' || where->kind == Kind::end || begins_declaration(where);
  const Token* before = where > state.begin ? where - 1 : where;
  std::string message = fmt::format("expected {}", expected);
  if (expected == "'=' or 'in'") message += fmt::format(" after {}", quoted(state, *before));
  message += fmt::format(", got {}", quoted(state, *where));
  Diagnostic& error =
      state.diagnostics.error(missing ? after(state, *before) : state.span(*where), message);
  const bool closing =
      expected.ends_with("')'") || expected.ends_with("']'") || expected.ends_with("'}'");
  const Token* bracket = closing ? open_bracket(state, where) : nullptr;
  if (bracket != nullptr && (where->kind == Kind::end || where->starts_line))
    error.label(state.span(*bracket), fmt::format("this {} stands open", quoted(state, *bracket)));
  if (std::string help = help_for(state, where, expected); !help.empty())
    error.with_help(std::move(help));
}

const Token* next_entry(const State& state, const Token* first, const Token* where) {
  // Back to the name that was read as a value. It is given one, so that this happens once.
  if (value_left_out(state, where) != nullptr) return where - 1;
  std::vector<Kind> open;
  for (const Token* token = first;; ++token) {
    if (token == state.end) return token;
    if (token > first && token >= where) {
      if (begins_declaration(token)) return token;
      const bool fresh_line = token->starts_line && !is_open_ended(token[-1].kind);
      if ((open.empty() || fresh_line) && begins_entry(token)) return token;
      if (open.empty() && fresh_line && token->kind == Kind::word) return token;
    }
    if (is_opening(token->kind)) open.push_back(token->kind);
    if (token->kind == Kind::right_brace) {
      // What is open inside the braces was never closed.
      while (!open.empty() && open.back() != Kind::left_brace) open.pop_back();
      if (open.empty() && token >= where) return token > first ? token : token + 1;
      if (!open.empty()) open.pop_back();
    } else if (is_closing(token->kind) && !open.empty() && open.back() != Kind::left_brace) {
      open.pop_back();
    }
  }
}

const Token* next_declaration(const State& state, const Token* first, const Token* where) {
  int open = 0;
  for (const Token* token = first;; ++token) {
    if (token == state.end) return token;
    if (token > first && token >= where && token->starts_line) {
      const bool headed =
          token->kind == Kind::kw_use || (token->kind == Kind::word && token[1].kind == Kind::word);
      if ((open <= 0 && headed) || begins_declaration(token)) return token;
    }
    if (token->kind == Kind::left_brace) ++open;
    if (token->kind == Kind::right_brace) --open;
  }
}

}  // namespace plimsoll::syntax
