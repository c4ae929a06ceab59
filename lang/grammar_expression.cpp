// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <optional>
#include <utility>

#include "lang/grammar.hpp"

/// The grammar of expressions (LANGUAGE.md §3). Operators are not nested rules: one rule reads
/// operands and operators in a row and `Operators` binds them, so that depth grows with brackets
/// only.
namespace plimsoll::syntax {

namespace {

using ast::ExprKind;
using ast::Op;

std::optional<Op> infix_op(Kind kind) {
  switch (kind) {
    case Kind::implies:
      return Op::implies;
    case Kind::kw_or:
      return Op::logical_or;
    case Kind::kw_and:
      return Op::logical_and;
    case Kind::equal:
      return Op::equal;
    case Kind::not_equal:
      return Op::not_equal;
    case Kind::less:
      return Op::less;
    case Kind::less_equal:
      return Op::less_equal;
    case Kind::greater:
      return Op::greater;
    case Kind::greater_equal:
      return Op::greater_equal;
    case Kind::kw_in:
      return Op::in;
    case Kind::dots:
      return Op::range;
    case Kind::plus:
      return Op::add;
    case Kind::minus:
      return Op::subtract;
    case Kind::star:
      return Op::multiply;
    case Kind::slash:
      return Op::divide;
    case Kind::double_slash:
      return Op::floor_divide;
    case Kind::caret:
      return Op::power;
    default:
      return std::nullopt;
  }
}

constexpr auto is_infix = [](Iterator at) { return infix_op(at->kind).has_value(); };
constexpr auto is_prefix = [](Iterator at) {
  return at->kind == Kind::minus || at->kind == Kind::kw_not;
};
constexpr auto is_literal = [](Iterator at) {
  return at->kind == Kind::string || at->kind == Kind::kw_true || at->kind == Kind::kw_false;
};
constexpr auto begins_named_argument = [](Iterator at) {
  return at->kind == Kind::word && at[1].kind == Kind::assign;
};
constexpr auto begins_closure = [](Iterator at) {
  return at->kind == Kind::left_brace && at[1].kind == Kind::word && at[2].kind == Kind::implies;
};

// Actions. `node` is the operand that the rule makes.
template <typename Ctx>
ast::Expr& node(Ctx& context) {
  return *x3::_val(context).expr;
}

template <typename Ctx>
void set_node(Ctx& context, ast::ExprPtr made) {
  x3::_val(context).outer = made->span;
  x3::_val(context).expr = std::move(made);
}

/// The node ends with the token that was just read.
constexpr auto close = [](auto& context) {
  ast::Expr& closed = node(context);
  closed.span.end = x3::_attr(context)->end;
  x3::_val(context).outer = closed.span;
};

constexpr auto make_a_number = [](auto& context) {
  set_node(context, make_number(state_of(context), *x3::_attr(context)));
};
constexpr auto make_a_word = [](auto& context) {
  set_node(context, make_word(state_of(context), *x3::_attr(context)));
};
constexpr auto begin_set = [](auto& context) {
  set_node(context, make_node(state_of(context), ExprKind::set, *x3::_attr(context)));
};
constexpr auto begin_list = [](auto& context) {
  set_node(context, make_node(state_of(context), ExprKind::list, *x3::_attr(context)));
};
constexpr auto begin_call = [](auto& context) { node(context).kind = ExprKind::call; };
constexpr auto begin_index = [](auto& context) {
  Operand& indexed = x3::_val(context);
  ast::ExprPtr made = make_node(state_of(context), ExprKind::index, *x3::_attr(context));
  made->op_span = made->span;
  made->span.begin = indexed.outer.begin;
  adopt(state_of(context), *made, {{}, std::move(indexed.expr)});
  indexed.expr = std::move(made);
};
constexpr auto add_item = [](auto& context) {
  adopt(state_of(context), node(context), {{}, std::move(x3::_attr(context))});
};
constexpr auto add_argument = [](auto& context) {
  ast::Argument& argument = x3::_attr(context);
  ast::Expr& call = node(context);
  if (argument.name.text.empty() && !call.args.empty() && !call.args.back().name.text.empty()) {
    state_of(context)
        .diagnostics.error(argument.value->span, "a positional argument after a named one")
        .label(call.args.back().name.span, "named here")
        .with_help("positional arguments come first");
  }
  adopt(state_of(context), call, std::move(argument));
};
constexpr auto set_closure = [](auto& context) {
  ast::Expr& call = node(context);
  call.closure = std::make_unique<ast::Closure>(std::move(x3::_attr(context)));
  call.depth = std::max(call.depth, static_cast<std::uint16_t>(call.closure->body->depth + 1));
  call.span.end = call.closure->span.end;
  x3::_val(context).outer = call.span;
};

constexpr auto open_paren = [](auto& context) {
  x3::_val(context).outer = state_of(context).span(*x3::_attr(context));
};
constexpr auto set_inside = [](auto& context) {
  x3::_val(context).expr = std::move(x3::_attr(context));
};
constexpr auto close_paren = [](auto& context) {
  x3::_val(context).outer.end = x3::_attr(context)->end;
};

constexpr auto set_argument_name = [](auto& context) {
  x3::_val(context).name = make_name(state_of(context), *x3::_attr(context));
};
constexpr auto set_argument_value = [](auto& context) {
  x3::_val(context).value = std::move(x3::_attr(context));
};
constexpr auto set_closure_parameter = [](auto& context) {
  x3::_val(context).parameter = make_name(state_of(context), *x3::_attr(context));
};
constexpr auto set_closure_body = [](auto& context) {
  x3::_val(context).body = std::move(x3::_attr(context));
};

constexpr auto push_operand = [](auto& context) {
  x3::_val(context).operand(std::move(x3::_attr(context)));
};
constexpr auto push_prefix = [](auto& context) {
  const Token& read = *x3::_attr(context);
  const Op op = read.kind == Kind::minus ? Op::negate : Op::logical_not;
  x3::_val(context).prefix(state_of(context), op, read);
};
constexpr auto push_infix = [](auto& context) {
  const Token& read = *x3::_attr(context);
  x3::_val(context).infix(state_of(context), *infix_op(read.kind), read);
};
constexpr auto finish = [](auto& context) {
  x3::_val(context) = x3::_attr(context).finish(state_of(context)).expr;
};

// clang-format off
const x3::rule<struct ChainClass, Operators> chain = "an expression";
const x3::rule<struct OperandClass, Operand> operand = "an expression";
const x3::rule<struct ArgumentClass, ast::Argument> argument = "an argument";
const x3::rule<struct ClosureClass, ast::Closure> closure = "a closure";

const auto prefix = token_if(is_prefix, "an operator")[push_prefix];
const auto infix = token_if(is_infix, "an operator")[push_infix];

const auto chain_def =
    ((+prefix > operand[push_operand]) | operand[push_operand])
    >> *(infix > *prefix > operand[push_operand]);

const auto argument_def =
      ((when(begins_named_argument) >> token(Kind::word)[set_argument_name] >> token(Kind::assign))
         > expression[set_argument_value])
    | expression[set_argument_value];

const auto closure_def = spanned[
    (when(begins_closure) >> token(Kind::left_brace) >> token(Kind::word)[set_closure_parameter] >> token(Kind::implies))
      > nested[expression[set_closure_body]] > token(Kind::right_brace)];

const auto arguments =
    nested[listed(argument[add_argument])] > token(Kind::right_paren, "',' or ')'")[close];
const auto call =
    attached(Kind::left_paren)[begin_call] >> arguments >> -closure[set_closure];
const auto forced_call =
    token(Kind::left_paren)[begin_call] >> arguments;
const auto index =
    attached(Kind::left_bracket)[begin_index] > nested[expression[add_item]] > token(Kind::right_bracket)[close];
const auto set =
    token(Kind::left_brace)[begin_set] > nested[listed(expression[add_item])] > token(Kind::right_brace, "',' or '}'")[close];
const auto list =
    token(Kind::left_bracket)[begin_list] > nested[listed(expression[add_item])] > token(Kind::right_bracket, "',' or ']'")[close];
const auto parenthesised =
    token(Kind::left_paren)[open_paren] > nested[expression[set_inside]] > token(Kind::right_paren)[close_paren];

const auto operand_def =
    (   token(Kind::number)[make_a_number]
      | (token(Kind::word)[make_a_word] >> -call)
      | (token(Kind::kw_if)[make_a_word] >> (forced_call | due("'('")))
      | token_if(is_literal, "a literal")[make_a_word]
      | parenthesised | set | list )
    >> *index;

const auto expression_def = chain[finish];
// clang-format on

BOOST_SPIRIT_DEFINE(chain, operand, argument, closure)

}  // namespace

BOOST_SPIRIT_DEFINE(expression)
BOOST_SPIRIT_INSTANTIATE(ExpressionRule, Iterator, Context)

}  // namespace plimsoll::syntax
