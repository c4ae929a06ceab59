// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/syntax.hpp"

#include <algorithm>

#include "lang/binding.hpp"
#include "lang/parse.hpp"

namespace plimsoll::syntax {

namespace {

using ast::binding;
using ast::Binding;
using ast::Op;
using ast::Side;

Rational number_value(std::string_view text) {
  Rational factor = 1;
  const std::size_t suffix = text.ends_with('i') ? 2 : 1;
  if (text.size() > suffix) {
    if (const auto multiplier = find_multiplier(text.substr(text.size() - suffix))) {
      factor = *multiplier;
      text.remove_suffix(suffix);
    }
  }
  const std::optional<Rational> digits = Rational::parse(text);
  return digits ? *digits * factor : Rational(0);  // the lexer has reported what is no number
}

}  // namespace

void Operators::operand(Operand operand) { operands_.push_back(std::move(operand)); }

void Operators::prefix(State& state, Op op, const Token& token) {
  if (op == Op::logical_not && !pending_.empty() &&
      binding(pending_.back().op).strength > binding(op).strength) {
    state.diagnostics.error(state.span(token), "expected an expression, got 'not'")
        .with_help("put what 'not' denies in parentheses: (not …)");
  }
  push(state, {op, &token});
}

void Operators::infix(State& state, Op op, const Token& token) {
  const Binding incoming = binding(op);
  while (!pending_.empty()) {
    const Binding top = binding(pending_.back().op);
    if (top.strength < incoming.strength) break;
    if (top.strength == incoming.strength) {
      if (incoming.side == Side::right) break;
      if (incoming.side == Side::none) {
        const bool range = op == Op::range;
        state.diagnostics
            .error(state.span(token), range ? "ranges do not chain" : "comparisons do not chain")
            .label(state.span(*pending_.back().token), "after this one")
            .with_help(range ? "a range has two ends: a..b"
                             : "write two comparisons with 'and' between");
      }
    }
    reduce(state);
  }
  push(state, {op, &token});
}

void Operators::push(State& state, Pending pending) {
  if (pending_.size() >= kMaxDepth) too_long(state, *pending.token);
  pending_.push_back(pending);
}

void Operators::reduce(State& state) {
  const Pending pending = pending_.back();
  pending_.pop_back();
  const bool unary = binding(pending.op).side == Side::prefix;
  Operand right = std::move(operands_.back());
  operands_.pop_back();
  ast::ExprPtr node =
      make_node(state, unary ? ast::ExprKind::unary : ast::ExprKind::binary, *pending.token);
  node->op = pending.op;
  node->op_span = node->span;
  node->args.reserve(unary ? 1 : 2);
  if (unary) {
    node->span = node->op_span.to(right.outer);
  } else {
    Operand left = std::move(operands_.back());
    operands_.pop_back();
    node->span = left.outer.to(right.outer);
    adopt(state, *node, {{}, std::move(left.expr)});
  }
  adopt(state, *node, {{}, std::move(right.expr)});
  const Span outer = node->span;
  operands_.push_back({std::move(node), outer});
}

Operand Operators::finish(State& state) {
  while (!pending_.empty()) reduce(state);
  return std::move(operands_.back());
}

ast::Name make_name(const State& state, const Token& token) {
  return {std::string(state.spelling(token)), state.span(token)};
}

std::string make_string(const State& state, const Token& token) {
  std::string_view text = state.spelling(token).substr(1);
  if (text.ends_with('"')) text.remove_suffix(1);
  return std::string(text);
}

ast::ExprPtr make_node(const State& state, ast::ExprKind kind, const Token& token) {
  auto node = std::make_unique<ast::Expr>();
  node->kind = kind;
  node->span = state.span(token);
  return node;
}

ast::ExprPtr make_number(State& state, const Token& token) {
  ast::ExprPtr node = make_node(state, ast::ExprKind::number, token);
  node->text = state.text.substr(token.begin, token.number_end - token.begin);
  node->unit_text = state.text.substr(token.unit_begin, token.end - token.unit_begin);
  try {
    node->quantity.value = number_value(node->text);
    if (const auto unit = find_unit(node->unit_text)) {
      node->quantity.value *= unit->scale;
      node->quantity.dimension = unit->dimension;
    }
  } catch (const ArithmeticError&) {
    state.diagnostics.error(node->span, "the number does not fit in 128 bits")
        .with_help(
            "numbers are exact: whole ones go up to 1.7e38, fractions have such whole numbers in "
            "them");
  }
  return node;
}

ast::ExprPtr make_word(const State& state, const Token& token) {
  const bool truth = token.kind == Kind::kw_true || token.kind == Kind::kw_false;
  const bool string = token.kind == Kind::string;
  ast::ExprPtr node = make_node(state,
                                truth    ? ast::ExprKind::boolean
                                : string ? ast::ExprKind::string
                                         : ast::ExprKind::name,
                                token);
  node->op_span = node->span;
  if (truth) {
    node->flag = token.kind == Kind::kw_true;
  } else {
    node->text = string ? make_string(state, token) : std::string(state.spelling(token));
  }
  return node;
}

void adopt(State& state, ast::Expr& parent, ast::Argument child) {
  const int depth = child.value->depth + 1;
  parent.depth = std::max(parent.depth, static_cast<std::uint16_t>(depth));
  if (depth > kMaxDepth) {
    state.diagnostics
        .error(parent.op_span ? parent.op_span : parent.span,
               fmt::format("more than {} operations inside one another", kMaxDepth))
        .with_help("give parts of the expression a name");
    throw GiveUp{};
  }
  parent.args.push_back(std::move(child));
}

void too_deep(State& state, const Token& token) {
  state.diagnostics
      .error(state.span(token), fmt::format("nested more than {} levels deep", kMaxNesting))
      .with_help("give inner parts a name of their own");
  throw GiveUp{};
}

void too_long(State& state, const Token& token) {
  state.diagnostics
      .error(state.span(token), fmt::format("more than {} operators in a row", kMaxDepth))
      .with_help("give parts of the expression a name");
  throw GiveUp{};
}

std::string documentation(const State& state, const Token* first) {
  const std::uint32_t after = first == state.begin ? 0 : first[-1].end;
  const auto& comments = state.result.comments;
  const auto starts_before = [](const ast::Comment& comment, std::uint32_t at) {
    return comment.span.begin < at;
  };
  auto at = std::lower_bound(comments.begin(), comments.end(), after, starts_before);
  std::string doc;
  for (; at != comments.end() && at->span.begin < first->begin; ++at) {
    std::string_view text = state.text.substr(at->span.begin, at->span.end - at->span.begin);
    if (!at->own_line || !text.starts_with("##")) continue;
    text.remove_prefix(2);
    if (text.starts_with(' ')) text.remove_prefix(1);
    if (!doc.empty()) doc += '\n';
    doc += text;
  }
  return doc;
}

}  // namespace plimsoll::syntax
