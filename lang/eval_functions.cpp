// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <array>

#include "lang/eval.hpp"
#include "lang/grouped.hpp"

/// The built-in functions of expressions, and `if`.
namespace plimsoll::eval {

namespace {

struct Function {
  std::string_view name;
  std::size_t fewest, most;  ///< arguments
};

constexpr std::size_t kAny = 1000;
constexpr std::array kFunctions = {
    Function{"if", 3, 3},     Function{"min", 1, kAny}, Function{"max", 1, kAny},
    Function{"ceil", 1, 1},   Function{"floor", 1, 1},  Function{"round", 1, 1},
    Function{"log2", 1, 1},   Function{"abs", 1, 1},    Function{"mod", 2, 2},
    Function{"sum", 1, kAny}, Function{"len", 1, 1},
};
/// log2 of a variable is a sum over the powers of two that 64-bit integers reach.
constexpr std::int64_t kLogBits = 62;

const Function* find_function(std::string_view name) {
  if (name.empty()) return nullptr;
  for (const Function& function : kFunctions)
    if (function.name.front() == name.front() && function.name == name) return &function;
  return nullptr;
}

/// The enumeration of whatever names the arms of an `if` are known to hold.
const Enumeration* words_of_arm(const ast::Expr& arm, const Scope& scope) {
  if (arm.kind == ast::ExprKind::name) {
    const Value* value = scope.find(arm.text);
    return value != nullptr ? enumeration_of(*value) : nullptr;
  }
  if (arm.kind != ast::ExprKind::call || arm.text != "if" || arm.args.size() != 3) return nullptr;
  const Enumeration* words = words_of_arm(arm.arg(1), scope);
  return words != nullptr ? words : words_of_arm(arm.arg(2), scope);
}

std::string times(std::size_t n) { return n == 1 ? "1 argument" : fmt::format("{} arguments", n); }

}  // namespace

bool is_function(std::string_view name) { return find_function(name) != nullptr; }

Evaluator::Result Evaluator::call(const ast::Expr& e, const Scope& scope,
                                  const Enumeration* words) {
  const Function* function = find_function(e.text);
  if (function == nullptr) {
    if (calls_ != nullptr && calls_->knows(e.text)) return calls_->call(e, scope);
    Diagnostic& d = error(e.op_span, fmt::format("unknown function '{}'", e.text));
    std::vector<std::string> names;
    if (calls_ != nullptr) names = calls_->names();
    for (const Function& known : kFunctions) names.emplace_back(known.name);
    if (const std::string meant = did_you_mean(e.text, names); !meant.empty())
      d.with_help(fmt::format("did you mean '{}'?", meant));
    else if (scope.find(e.text) != nullptr)
      d.with_help(fmt::format("'{}' is a value; '*' multiplies", e.text));
    else if (calls_ != nullptr)
      d.with_help(fmt::format("declare it: block {}(x) {{ return … }}", e.text));
    else
      d.with_help(fmt::format("functions are {}", fmt::join(names, ", ")));
    return std::nullopt;
  }
  if (e.args.size() < function->fewest || e.args.size() > function->most) {
    const std::string expected =
        function->most == kAny ? "at least 1 argument" : times(function->fewest);
    Diagnostic& d =
        error(e.span, fmt::format("{} takes {}, got {}", e.text, expected, e.args.size()));
    d.with_help(e.text == "if" ? "if(condition, value, otherwise)"
                               : fmt::format("put them between the parentheses: {}(…)", e.text));
    return std::nullopt;
  }
  for (const ast::Argument& arg : e.args)
    if (!arg.name.text.empty()) {
      error(arg.name.span, fmt::format("{} takes no named arguments", e.text))
          .with_help(fmt::format("leave '{} =' out", arg.name.text));
      return std::nullopt;
    }
  if (e.closure) {
    error(e.closure->span, fmt::format("{} takes no body", e.text))
        .with_help("only experts takes one: experts(x, count, top_k) { t => mlp(t, ffn) }");
    return std::nullopt;
  }
  if (e.text == "if") return choose(e, scope, words);
  std::vector<Value> args;
  args.reserve(e.args.size());
  for (const ast::Argument& arg : e.args) {
    Result value = eval(*arg.value, scope);
    if (!value) return std::nullopt;
    args.push_back(std::move(*value));
  }
  return this->function(e, std::move(args));
}

Evaluator::Result Evaluator::choose(const ast::Expr& e, const Scope& scope,
                                    const Enumeration* words) {
  const std::optional<Expr> condition = this->condition(e.arg(0), scope);
  if (!condition) return std::nullopt;
  const auto hint = [&](std::size_t arm) {
    return words != nullptr ? words : words_of_arm(e.arg(3 - arm), scope);
  };
  if (pool_.is_constant(*condition)) {
    const std::size_t chosen = pool_.value(*condition).is_zero() ? 2 : 1;
    return eval(e.arg(chosen), scope, hint(chosen));
  }
  const Result then = eval(e.arg(1), scope, hint(1));
  if (!then) return std::nullopt;
  const Result otherwise = eval(e.arg(2), scope, hint(2));
  if (!otherwise) return std::nullopt;
  return select(e, *condition, *then, *otherwise);
}

namespace {

/// The word's index as an expression, where \a value is a word of \a of.
std::optional<Expr> word_index(ExprPool& pool, const Value& value, const Enumeration& of) {
  if (const OpenWord* open = value.as<OpenWord>()) return open->expr;
  const Word* word = value.as<Word>();
  const std::string_view text = word != nullptr ? std::string_view(word->text) : "none";
  for (std::size_t i = 0; i < of.words.size(); ++i)
    if (of.words[i] == text) return pool.constant(i);
  return std::nullopt;
}

bool is_word(const Value& value) {
  return value.as<Word>() != nullptr || value.as<OpenWord>() != nullptr || value.is_none();
}

}  // namespace

Evaluator::Result Evaluator::select(const ast::Expr& node, Expr condition, const Value& then,
                                    const Value& otherwise) {
  const Number* a = then.as<Number>();
  const Number* b = otherwise.as<Number>();
  if (a != nullptr && b != nullptr && a->dimension == b->dimension)
    return make(pool_.select(condition, a->expr, b->expr), a->dimension, node.span,
                a->unit == b->unit ? a->unit : std::string_view());
  const Boolean* p = then.as<Boolean>();
  const Boolean* q = otherwise.as<Boolean>();
  if (p != nullptr && q != nullptr)
    return truth(pool_.select(condition, p->expr, q->expr), node.span);
  if (is_word(then) && is_word(otherwise)) {
    const Enumeration* of = enumeration_of(then);
    if (of == nullptr || of->words.empty()) of = enumeration_of(otherwise);
    if (of != nullptr && !of->words.empty()) {
      const std::optional<Expr> x = word_index(pool_, then, *of);
      const std::optional<Expr> y = word_index(pool_, otherwise, *of);
      if (x && y) return Value{OpenWord{pool_.select(condition, *x, *y), of}, node.span};
    }
  }
  if (then.kind() == otherwise.kind())
    error(node.span, fmt::format("a layout decides this, so both choices must be numbers; got {}",
                                 then.kind()))
        .with_help("let the condition name only what is known before a layout is chosen");
  else
    error(node.span,
          fmt::format("a layout decides this, so both choices must be alike; got {} and {}",
                      then.kind(), otherwise.kind()))
        .with_help("give both choices the same unit");
  return std::nullopt;
}

Evaluator::Result Evaluator::function(const ast::Expr& e, std::vector<Value> args) {
  const std::string& name = e.text;
  if (name == "min" || name == "max" || name == "sum") return fold(e, args);
  if (name == "len") return length(e, args[0]);
  if (name == "log2") return log2(e, args[0]);
  if (name == "mod") return mod(e, args[0], args[1]);
  return rounding(e, args[0]);
}

/// min, max, sum: of numbers, or of one list or set of them.
Evaluator::Result Evaluator::fold(const ast::Expr& e, std::vector<Value>& args) {
  std::vector<Value>* items = &args;
  if (args.size() == 1) {
    if (List* list = std::get_if<List>(&args[0].data)) items = &list->items;
    if (Set* set = std::get_if<Set>(&args[0].data)) items = &set->items;
  }
  if (items->empty()) {
    if (e.text == "sum") return make(pool_.constant(0), kCount, e.span);
    error(e.span, fmt::format("{} of an empty list", e.text))
        .with_help("put at least one number in it");
    return std::nullopt;
  }
  const auto place = [&](std::size_t i) { return items == &args ? e.arg(i).span : e.span; };
  const Number* first = number((*items)[0], place(0));
  if (first == nullptr) return std::nullopt;
  Expr result = first->expr;
  for (std::size_t i = 1; i < items->size(); ++i) {
    const Number* next = number((*items)[i], place(i));
    if (next == nullptr) return std::nullopt;
    if (next->dimension != first->dimension) {
      error(place(i), fmt::format("{} takes numbers that are alike; got {} and {}", e.text,
                                  first->dimension.str(), next->dimension.str()))
          .with_help(kAlike);
      return std::nullopt;
    }
    result = e.text == "min"   ? pool_.min(result, next->expr)
             : e.text == "max" ? pool_.max(result, next->expr)
                               : pool_.add(result, next->expr);
  }
  return make(result, first->dimension, e.span, first->unit);
}

Evaluator::Result Evaluator::length(const ast::Expr& e, const Value& arg) {
  if (const List* list = arg.as<List>())
    return make(pool_.constant(list->items.size()), kCount, e.span);
  if (const Set* set = arg.as<Set>(); set != nullptr)
    return make(pool_.constant(set->items.size()), kCount, e.span);
  if (const Interval* range = arg.as<Interval>())
    return make(pool_.add(pool_.sub(range->to.expr, range->from.expr), pool_.constant(1)), kCount,
                e.span);
  error(e.arg(0).span, fmt::format("expected a list, got {}", arg.kind()))
      .with_help("a list stands in brackets: [19, 21, 21, 19]");
  return std::nullopt;
}

/// ceil, floor, round (halves go up), abs.
Evaluator::Result Evaluator::rounding(const ast::Expr& e, const Value& arg) {
  const Number* n = number(arg, e.arg(0).span);
  if (n == nullptr) return std::nullopt;
  const Expr one = pool_.constant(1);
  Expr result;
  if (e.text == "ceil")
    result = pool_.ceil(n->expr);
  else if (e.text == "floor")
    result = pool_.floor_div(n->expr, one);
  else if (e.text == "round")
    result = pool_.floor_div(pool_.add(n->expr, pool_.constant(Rational::fraction(1, 2))), one);
  else
    result = pool_.max(n->expr, pool_.sub(pool_.constant(0), n->expr));
  return make(result, n->dimension, e.span, n->unit);
}

Evaluator::Result Evaluator::log2(const ast::Expr& e, const Value& arg) {
  const std::optional<Expr> n = as_quantity(arg, kCount, e.arg(0).span);
  if (!n) return std::nullopt;
  if (!pool_.is_constant(*n)) {  // a power of two by its place: how many of 2, 4, 8 … it reaches
    Expr bits = pool_.constant(0);
    for (std::int64_t i = 1; i <= kLogBits; ++i)
      bits = pool_.add(bits, pool_.less_equal(pool_.constant(std::int64_t{1} << i), *n));
    return make(bits, kCount, e.span);
  }
  const Rational value = pool_.value(*n);
  const Int128 power = value.num();
  if (!value.is_integer() || power <= 0 || (power & (power - 1)) != 0) {
    error(e.arg(0).span, fmt::format("log2 is of powers of two, got {}", grouped(value)))
        .with_help("powers of two are 1, 2, 4, 8, …");
    return std::nullopt;
  }
  std::int64_t bits = 0;
  while ((power >> bits) > 1) ++bits;
  return make(pool_.constant(bits), kCount, e.span);
}

Evaluator::Result Evaluator::mod(const ast::Expr& e, const Value& a, const Value& b) {
  const Number* x = number(a, e.arg(0).span);
  const Number* y = number(b, e.arg(1).span);
  if (x == nullptr || y == nullptr) return std::nullopt;
  if (x->dimension != y->dimension) {
    error(e.span,
          fmt::format("mod takes numbers that are alike; got {} and {}", a.kind(), b.kind()))
        .with_help(kAlike);
    return std::nullopt;
  }
  if (pool_.is_constant(x->expr) && pool_.is_constant(y->expr))
    return make(pool_.constant(plimsoll::mod(pool_.value(x->expr), pool_.value(y->expr))),
                x->dimension, e.span, x->unit);
  const Expr whole = pool_.mul(y->expr, pool_.floor_div(x->expr, y->expr));
  return make(pool_.sub(x->expr, whole), x->dimension, e.span, x->unit);
}

}  // namespace plimsoll::eval
