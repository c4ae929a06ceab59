// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>

#include "lang/eval.hpp"
#include "lang/grouped.hpp"
#include "lang/versions.hpp"

/// Operators of the one evaluator: arithmetic with dimensions, comparisons, membership, logic.
namespace plimsoll::eval {

namespace {

/// Powers with an open base are products, so the exponent is kept small.
constexpr std::int64_t kMaxOpenExponent = 64;

bool is_arithmetic(const ast::Expr& e) {
  return e.kind == ast::ExprKind::binary && e.op >= ast::Op::add && e.op <= ast::Op::floor_divide;
}

bool is_bare(const ast::Expr& e) { return e.kind == ast::ExprKind::name; }

std::string mismatch(ast::Op op, const Value& left, const Value& right) {
  const std::string a = left.kind();
  const std::string b = right.kind();
  switch (op) {
    case ast::Op::add:
      return fmt::format("cannot add {} and {}", a, b);
    case ast::Op::subtract:
      return fmt::format("cannot subtract {} from {}", b, a);
    case ast::Op::multiply:
      return fmt::format("cannot multiply {} and {}", a, b);
    default:
      return fmt::format("cannot divide {} by {}", a, b);
  }
}

/// The number that a part of a version begins with; -1 where it begins with none.
std::int64_t leading_number(std::string_view part, std::size_t& digits) {
  std::int64_t value = 0;
  digits = 0;
  while (digits < part.size() && digits < 18 && part[digits] >= '0' && part[digits] <= '9')
    value = value * 10 + (part[digits++] - '0');
  return digits == 0 ? -1 : value;
}

std::string_view next_part(std::string_view& rest) {
  const std::size_t dot = rest.find('.');
  const std::string_view part = rest.substr(0, dot);
  rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
  return part;
}

int three_way(auto a, auto b) { return a < b ? -1 : a > b; }

int compare_parts(std::string_view a, std::string_view b) {
  std::size_t digits_a = 0;
  std::size_t digits_b = 0;
  const std::int64_t number_a = leading_number(a, digits_a);
  const std::int64_t number_b = leading_number(b, digits_b);
  if (number_a != number_b) return three_way(number_a, number_b);
  return three_way(a.substr(digits_a), b.substr(digits_b));
}

std::int64_t index_of(const Enumeration& of, std::string_view word) {
  const auto at = std::ranges::find(of.words, word);
  return at == of.words.end() ? -1 : at - of.words.begin();
}

}  // namespace

bool is_version(std::string_view text) {
  if (text.empty() || text.back() == '.') return false;
  while (!text.empty()) {
    std::size_t digits = 0;
    if (leading_number(next_part(text), digits) < 0) return false;
  }
  return true;
}

int compare_versions(std::string_view a, std::string_view b) {
  while (!a.empty() || !b.empty()) {
    std::string_view part_a = next_part(a);
    std::string_view part_b = next_part(b);
    if (part_a.empty()) part_a = "0";
    if (part_b.empty()) part_b = "0";
    if (const int order = compare_parts(part_a, part_b); order != 0) return order;
  }
  return 0;
}

Evaluator::Result Evaluator::unary(const ast::Expr& e, const Scope& scope) {
  const Result value = eval(e.arg(0), scope);
  if (!value) return std::nullopt;
  if (e.op == ast::Op::logical_not) {
    const std::optional<Expr> condition = as_condition(*value, e.arg(0).span);
    if (!condition) return std::nullopt;
    return truth(pool_.logical_not(*condition), e.span);
  }
  const Number* n = number(*value, e.arg(0).span);
  if (n == nullptr) return std::nullopt;
  const Expr negative = pool_.is_constant(n->expr) ? pool_.constant(-pool_.value(n->expr))
                                                   : pool_.mul(pool_.constant(-1), n->expr);
  return make(negative, n->dimension, e.span, n->unit);
}

Evaluator::Result Evaluator::binary(const ast::Expr& e, const Scope& scope) {
  switch (e.op) {
    case ast::Op::implies:
    case ast::Op::logical_or:
    case ast::Op::logical_and:
      return logical(e, scope);
    case ast::Op::equal:
    case ast::Op::not_equal:
    case ast::Op::less:
    case ast::Op::less_equal:
    case ast::Op::greater:
    case ast::Op::greater_equal:
      return comparison(e, scope);
    case ast::Op::in:
      return membership(e, scope);
    case ast::Op::range:
    case ast::Op::power: {
      const Result left = eval(e.arg(0), scope);
      const Result right = eval(e.arg(1), scope);
      if (!left || !right) return std::nullopt;
      return e.op == ast::Op::power ? power(e, *left, *right) : range(e, *left, *right);
    }
    default:
      return chain(e, scope);
  }
}

/// Arithmetic nests to the left: a chain of any length is walked, not descended into.
Evaluator::Result Evaluator::chain(const ast::Expr& e, const Scope& scope) {
  std::vector<const ast::Expr*> spine;
  const ast::Expr* node = &e;
  for (; is_arithmetic(node->arg(0)); node = &node->arg(0)) spine.push_back(node);
  Result left = eval(node->arg(0), scope);
  for (;;) {
    Result right = eval(node->arg(1), scope);
    if (!left || !right) return std::nullopt;
    try {
      left = arithmetic(*node, std::move(*left), std::move(*right));
    } catch (const ArithmeticError& failure) {
      error(node->span, failure);
      return std::nullopt;
    }
    if (!left || spine.empty()) return left;
    node = spine.back();
    spine.pop_back();
  }
}

Evaluator::Result Evaluator::arithmetic(const ast::Expr& node, Value left, Value right) {
  const ast::Op op = node.op;
  if (left.as<Tensor>() != nullptr || right.as<Tensor>() != nullptr) {
    if (calls_ != nullptr && (op == ast::Op::add || op == ast::Op::multiply))
      return calls_->combine(node, op, left, right);
    error(node.span, mismatch(op, left, right)).with_help(kAlike);
    return std::nullopt;
  }
  const Number* a = left.as<Number>();
  const Number* b = right.as<Number>();
  if (a == nullptr || b == nullptr) {
    const Value& wrong = a == nullptr ? left : right;
    const Word* word = wrong.as<Word>();
    if (word != nullptr && word->of == &any_words()) {
      number(wrong, node.arg(a == nullptr ? 0 : 1).span);
      return std::nullopt;
    }
    error(node.span, mismatch(op, left, right)).with_help(kAlike);
    return std::nullopt;
  }
  const bool constant = pool_.is_constant(a->expr) && pool_.is_constant(b->expr);
  const Rational x = constant ? pool_.value(a->expr) : Rational();
  const Rational y = constant ? pool_.value(b->expr) : Rational();
  std::string_view unit = a->unit == b->unit ? a->unit : std::string_view();
  switch (op) {
    case ast::Op::add:
    case ast::Op::subtract:
      if (a->dimension != b->dimension) break;
      if (op == ast::Op::add)
        return make(constant ? pool_.constant(x + y) : pool_.add(a->expr, b->expr), a->dimension,
                    node.span, unit);
      return make(constant ? pool_.constant(x - y) : pool_.sub(a->expr, b->expr), a->dimension,
                  node.span, unit);
    case ast::Op::multiply:
      unit = a->unit.empty() ? b->unit : b->unit.empty() ? a->unit : std::string_view();
      return make(constant ? pool_.constant(x * y) : pool_.mul(a->expr, b->expr),
                  a->dimension * b->dimension, node.span, unit);
    case ast::Op::divide:
      unit = b->unit.empty() ? a->unit : std::string_view();
      return make(constant ? pool_.constant(x / y) : pool_.div(a->expr, b->expr),
                  a->dimension / b->dimension, node.span, unit);
    default:
      unit = b->unit.empty() ? a->unit : std::string_view();
      return make(pool_.floor_div(a->expr, b->expr), a->dimension / b->dimension, node.span, unit);
  }
  error(node.span, mismatch(op, left, right))
      .label(node.arg(0).span, left.kind())
      .label(node.arg(1).span, right.kind())
      .with_help(kAlike);
  return std::nullopt;
}

Evaluator::Result Evaluator::power(const ast::Expr& node, const Value& left, const Value& right) {
  const Number* base = number(left, node.arg(0).span);
  if (base == nullptr) return std::nullopt;
  const std::optional<Expr> exponent = as_quantity(right, kCount, node.arg(1).span);
  if (!exponent) return std::nullopt;
  if (!pool_.is_constant(*exponent)) {
    error(node.arg(1).span, "an exponent holds for every layout, got one that depends on it")
        .with_help("layout variables such as tp and pp are known only once a layout is chosen");
    return std::nullopt;
  }
  const Rational n = pool_.value(*exponent);
  Dimension dimension;
  const std::int64_t times = n.is_integer() ? n.abs().to_int64() : 0;
  if (base->dimension != kCount || !pool_.is_constant(base->expr)) {
    if (!n.is_integer() || times > kMaxOpenExponent) {
      error(node.arg(1).span,
            fmt::format("expected a whole exponent up to {}, got {}", kMaxOpenExponent, grouped(n)))
          .with_help("write out the product instead");
      return std::nullopt;
    }
    for (std::int64_t i = 0; i < times; ++i)
      dimension = n.sign() < 0 ? dimension / base->dimension : dimension * base->dimension;
  }
  if (pool_.is_constant(base->expr))
    return make(pool_.constant(pool_.value(base->expr).pow(n)), dimension, node.span);
  Expr product = pool_.constant(1);
  for (std::int64_t i = 0; i < times; ++i) product = pool_.mul(product, base->expr);
  if (n.sign() < 0) product = pool_.div(pool_.constant(1), product);
  return make(product, dimension, node.span);
}

Evaluator::Result Evaluator::range(const ast::Expr& node, const Value& left, const Value& right) {
  const Number* from = number(left, node.arg(0).span);
  const Number* to = number(right, node.arg(1).span);
  if (from == nullptr || to == nullptr) return std::nullopt;
  if (from->dimension != to->dimension) {
    error(node.span,
          fmt::format("the ends of a range are alike; got {} and {}", left.kind(), right.kind()))
        .with_help(kAlike);
    return std::nullopt;
  }
  if (pool_.is_constant(from->expr) && pool_.is_constant(to->expr) &&
      pool_.value(to->expr) < pool_.value(from->expr)) {
    error(node.span, fmt::format("the range {}..{} is empty", grouped(pool_.value(from->expr)),
                                 grouped(pool_.value(to->expr))))
        .with_help("the smaller end comes first");
    return std::nullopt;
  }
  return Value{Interval{*from, *to}, node.span};
}

/// The right side is not looked at where the left one decides.
Evaluator::Result Evaluator::logical(const ast::Expr& e, const Scope& scope) {
  const std::optional<Expr> left = condition(e.arg(0), scope);
  if (!left) return std::nullopt;
  const bool known = pool_.is_constant(*left);
  const bool yes = known && !pool_.value(*left).is_zero();
  if (known && yes == (e.op == ast::Op::logical_or))
    return truth(pool_.constant(e.op == ast::Op::logical_and ? 0 : 1), e.span);
  const std::optional<Expr> right = condition(e.arg(1), scope);
  if (!right) return std::nullopt;
  if (known) return truth(*right, e.span);
  switch (e.op) {
    case ast::Op::logical_and:
      return truth(pool_.logical_and(*left, *right), e.span);
    case ast::Op::logical_or:
      return truth(pool_.logical_or(*left, *right), e.span);
    default:
      return truth(pool_.logical_or(pool_.logical_not(*left), *right), e.span);
  }
}

/// The side that knows an enumeration is evaluated first and gives the other its words.
Evaluator::Result Evaluator::comparison(const ast::Expr& e, const Scope& scope) {
  const ast::Expr& l = e.arg(0);
  const ast::Expr& r = e.arg(1);
  bool left_leads = true;
  if (is_bare(l)) {
    const Value* known = scope.find(l.text);
    const bool has_words = known != nullptr && enumeration_of(*known) != nullptr;
    if (!is_bare(r)) {
      left_leads = has_words;
    } else if (!has_words) {
      const Value* other = scope.find(r.text);
      left_leads = other == nullptr || enumeration_of(*other) == nullptr;
    }
  }
  const Result lead = eval(left_leads ? l : r, scope);
  if (!lead) return std::nullopt;
  const Result follow = eval(left_leads ? r : l, scope, enumeration_of(*lead));
  if (!follow) return std::nullopt;
  const Value& left = left_leads ? *lead : *follow;
  const Value& right = left_leads ? *follow : *lead;
  if (e.op != ast::Op::equal && e.op != ast::Op::not_equal) return order(e, left, right);
  const std::optional<Expr> same = equal(left, right, e.span);
  if (!same) return std::nullopt;
  return truth(e.op == ast::Op::equal ? *same : pool_.logical_not(*same), e.span);
}

Evaluator::Result Evaluator::order(const ast::Expr& e, const Value& left, const Value& right) {
  const bool swapped = e.op == ast::Op::greater || e.op == ast::Op::greater_equal;
  const bool strict = e.op == ast::Op::less || e.op == ast::Op::greater;
  const Value& low = swapped ? right : left;
  const Value& high = swapped ? left : right;
  const String* a = low.as<String>();
  const String* b = high.as<String>();
  if (a != nullptr && b != nullptr) {
    const int sign = compare_versions(a->text, b->text);
    return truth(pool_.constant((strict ? sign < 0 : sign <= 0) ? 1 : 0), e.span);
  }
  const Number* x = low.as<Number>();
  const Number* y = high.as<Number>();
  if (x == nullptr || y == nullptr || x->dimension != y->dimension) {
    const bool unknown_left = left.as<Word>() != nullptr && left.as<Word>()->of == &any_words();
    const bool unknown_right = right.as<Word>() != nullptr && right.as<Word>()->of == &any_words();
    if (unknown_left || unknown_right)
      number(unknown_left ? left : right, e.arg(unknown_left ? 0 : 1).span);
    else
      error(e.span, fmt::format("cannot compare {} and {}", left.kind(), right.kind()))
          .with_help(kAlike);
    return std::nullopt;
  }
  if (strict) return truth(pool_.logical_not(pool_.less_equal(y->expr, x->expr)), e.span);
  return truth(pool_.less_equal(x->expr, y->expr), e.span);
}

namespace {

/// The text of a word or string, else nullptr.
const std::string* text_of(const Value& value) {
  if (const Word* word = value.as<Word>()) return &word->text;
  if (const String* string = value.as<String>()) return &string->text;
  return nullptr;
}

}  // namespace

std::optional<Expr> Evaluator::equal(const Value& a, const Value& b, Span where) {
  const auto known = [&](bool yes) { return pool_.constant(yes ? 1 : 0); };
  if (const OpenWord* open = b.as<OpenWord>(); open != nullptr && a.as<OpenWord>() == nullptr)
    return equal(b, a, where);
  if (const OpenWord* open = a.as<OpenWord>()) {
    if (const OpenWord* other = b.as<OpenWord>(); other != nullptr && other->of == open->of)
      return pool_.equal(open->expr, other->expr);
    const std::string* text = text_of(b);
    const std::string word = text != nullptr ? *text : b.is_none() ? "none" : "";
    const std::int64_t index = index_of(*open->of, word);
    if (index >= 0) return pool_.equal(open->expr, pool_.constant(index));
    if (b.is_none()) return known(false);
    error(where, fmt::format("cannot compare {} and {}", a.kind(), b.kind())).with_help(kAlike);
    return std::nullopt;
  }
  if (a.is_none() || b.is_none()) return known(a.is_none() && b.is_none());
  const Number* x = a.as<Number>();
  const Number* y = b.as<Number>();
  if (x != nullptr && y != nullptr && x->dimension == y->dimension)
    return pool_.equal(x->expr, y->expr);
  const Boolean* p = a.as<Boolean>();
  const Boolean* q = b.as<Boolean>();
  if (p != nullptr && q != nullptr) return pool_.equal(p->expr, q->expr);
  const std::string* s = text_of(a);
  const std::string* t = text_of(b);
  if (s != nullptr && t != nullptr) {
    const bool versions =
        a.as<String>() != nullptr && b.as<String>() != nullptr && is_version(*s) && is_version(*t);
    return known(versions ? compare_versions(*s, *t) == 0 : *s == *t);
  }
  const List* list = a.as<List>();
  const List* other = b.as<List>();
  if (list != nullptr && other != nullptr) {
    if (list->items.size() != other->items.size()) return known(false);
    Expr all = known(true);
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      const std::optional<Expr> same = equal(list->items[i], other->items[i], where);
      if (!same) return std::nullopt;
      all = pool_.logical_and(all, *same);
    }
    return all;
  }
  error(where, fmt::format("cannot compare {} and {}", a.kind(), b.kind())).with_help(kAlike);
  return std::nullopt;
}

Evaluator::Result Evaluator::membership(const ast::Expr& e, const Scope& scope) {
  const Result value = eval(e.arg(0), scope);
  if (!value) return std::nullopt;
  const Result of = eval(e.arg(1), scope, enumeration_of(*value));
  if (!of) return std::nullopt;
  const std::optional<Expr> in = contains(*value, *of, e.span);
  if (!in) return std::nullopt;
  return truth(*in, e.span);
}

std::optional<Expr> Evaluator::contains(const Value& value, const Value& of, Span where) {
  if (const Interval* range = of.as<Interval>()) {
    const Number* n = value.as<Number>();
    if (n == nullptr || n->dimension != range->from.dimension) {
      error(where,
            fmt::format("cannot compare {} and {}", value.kind(), range->from.dimension.str()))
          .with_help(kAlike);
      return std::nullopt;
    }
    return pool_.logical_and(pool_.less_equal(range->from.expr, n->expr),
                             pool_.less_equal(n->expr, range->to.expr));
  }
  const Set* set = of.as<Set>();
  const List* list = of.as<List>();
  if (set == nullptr && list == nullptr) {
    error(where, fmt::format("'in' takes a set, a list or a range, got {}", of.kind()))
        .with_help("a set is {1, 2, 4}, a range 1..8");
    return std::nullopt;
  }
  Expr any = pool_.constant(0);
  for (const Value& item : set != nullptr ? set->items : list->items) {
    const std::optional<Expr> one =
        item.as<Interval>() != nullptr ? contains(value, item, where) : equal(value, item, where);
    if (!one) return std::nullopt;
    any = pool_.logical_or(any, *one);
  }
  return any;
}

}  // namespace plimsoll::eval
