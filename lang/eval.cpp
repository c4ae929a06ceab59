// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/eval.hpp"

#include <algorithm>

#include "lang/grouped.hpp"

namespace plimsoll::eval {

namespace {

/// Expressions nest this deep at most, blocks' bodies included. Sums of any length do not nest.
constexpr int kMaxDepth = 1000;

std::uint32_t hash_of(std::string_view text) {
  std::uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

struct DepthGuard {
  int& depth;
  explicit DepthGuard(int& d) : depth(d) { ++depth; }
  ~DepthGuard() { --depth; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
};

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ", ";
    text += word;
  }
  return text;
}

}  // namespace

std::string Value::kind() const {
  struct Visitor {
    std::string operator()(const None&) const { return "none"; }
    std::string operator()(const Number& n) const { return n.dimension.str(); }
    std::string operator()(const Boolean&) const { return "a condition"; }
    std::string operator()(const Word& w) const { return fmt::format("the word '{}'", w.text); }
    std::string operator()(const OpenWord& w) const {
      return w.of != nullptr && !w.of->name.empty() ? fmt::format("a word of {}", w.of->name)
                                                    : "a word";
    }
    std::string operator()(const String&) const { return "a string"; }
    std::string operator()(const Tensor& t) const { return t.id == kLoss ? "a loss" : "a tensor"; }
    std::string operator()(const List&) const { return "a list"; }
    std::string operator()(const Interval&) const { return "a range"; }
    std::string operator()(const Set&) const { return "a set"; }
    std::string operator()(const Unknown&) const { return "an unknown value"; }
  };
  return std::visit(Visitor{}, data);
}

bool Value::is_none() const {
  const Word* word = as<Word>();
  return as<None>() != nullptr || (word != nullptr && word->text == "none");
}

void Scope::set(std::string_view name, Value value) {
  if (Value* known = own(name)) {
    *known = std::move(value);
    return;
  }
  hashes_.push_back(hash_of(name));
  values_.emplace_back(std::string(name), std::move(value));
}

const Value* Scope::find(std::string_view name) const { return find_hashed(name, hash_of(name)); }

const Value* Scope::find_hashed(std::string_view name, std::uint32_t hash) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_) {
    for (std::size_t i = 0; i < scope->hashes_.size(); ++i)
      if (scope->hashes_[i] == hash && scope->values_[i].first == name)
        return &scope->values_[i].second;
    if (const Value* made = scope->make(name)) return made;
  }
  return nullptr;
}

Value* Scope::own(std::string_view name) {
  const std::uint32_t hash = hash_of(name);
  for (std::size_t i = 0; i < hashes_.size(); ++i)
    if (hashes_[i] == hash && values_[i].first == name) return &values_[i].second;
  return nullptr;
}

std::vector<std::string> Scope::names() const {
  std::vector<std::string> result;
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_) {
    for (const auto& [name, value] : scope->values_) result.push_back(name);
    for (std::string& name : scope->made_names()) result.push_back(std::move(name));
  }
  return result;
}

std::optional<Value> Calls::combine(const ast::Expr&, ast::Op, const Value&, const Value&) {
  throw InternalError("a tensor in an expression that builds no model");
}

const Enumeration& any_words() {
  static const Enumeration any;
  return any;
}

const Enumeration* enumeration_of(const Value& value) {
  if (const Word* word = value.as<Word>()) return word->of != nullptr ? word->of : &any_words();
  if (const OpenWord* word = value.as<OpenWord>()) return word->of;
  if (value.as<None>() != nullptr) return &any_words();
  const List* list = value.as<List>();
  const Set* set = value.as<Set>();
  const std::vector<Value>* items = list != nullptr ? &list->items : set ? &set->items : nullptr;
  return items != nullptr && !items->empty() ? enumeration_of(items->front()) : nullptr;
}

Diagnostic& Evaluator::error(Span where, std::string message) {
  Diagnostic& diagnostic = diags_.error(where, std::move(message));
  if (calls_ != nullptr) calls_->explain(diagnostic);
  return diagnostic;
}

void Evaluator::error(Span where, const ArithmeticError& failure) {
  const std::string what = failure.what();
  error(where, what)
      .with_help(
          what == "division by zero"
              ? "make sure that what stands below the '/' cannot be 0"
              : "sizes of real jobs are far below this: look for a power or a unit too many");
}

std::optional<Value> Evaluator::eval(const ast::Expr& e, const Scope& scope,
                                     const Enumeration* words) {
  const DepthGuard guard(depth_);
  if (depth_ > kMaxDepth) {
    error(e.span, fmt::format("expressions nest more than {} deep here", kMaxDepth))
        .with_help("give a part of it a name, and use the name");
    return std::nullopt;
  }
  try {
    return dispatch(e, scope, words);
  } catch (const ArithmeticError& failure) {
    error(e.span, failure);
    return std::nullopt;
  }
}

Evaluator::Result Evaluator::dispatch(const ast::Expr& e, const Scope& scope,
                                      const Enumeration* words) {
  switch (e.kind) {
    case ast::ExprKind::number: {
      const bool counted = e.unit_text == "tokens" || e.unit_text == "sequences";
      return make(pool_.constant(e.quantity.value), e.quantity.dimension, e.span,
                  counted ? std::string_view(e.unit_text) : std::string_view());
    }
    case ast::ExprKind::string:
      return Value{String{e.text}, e.span};
    case ast::ExprKind::boolean:
      return truth(pool_.constant(e.flag ? 1 : 0), e.span);
    case ast::ExprKind::name:
      return name(e, scope, words);
    case ast::ExprKind::unary:
      return unary(e, scope);
    case ast::ExprKind::binary:
      return binary(e, scope);
    case ast::ExprKind::call:
      return call(e, scope, words);
    case ast::ExprKind::index:
      return index(e, scope);
    case ast::ExprKind::set:
    case ast::ExprKind::list:
      return collection(e, scope, words);
  }
  throw InternalError("an expression of no kind");
}

Evaluator::Result Evaluator::name(const ast::Expr& e, const Scope& scope,
                                  const Enumeration* words) {
  if (words != nullptr && std::ranges::find(words->words, e.text) != words->words.end())
    return Value{Word{e.text, words}, e.span};
  if (e.text == "none") return Value{None{}, e.span};
  if (const Value* value = scope.find(e.text)) {
    if (value->as<Unknown>() != nullptr) return std::nullopt;
    return *value;
  }
  if (words != nullptr && words->words.empty()) return Value{Word{e.text, words}, e.span};
  if (words == nullptr) return unknown_name(e, scope);
  std::vector<std::string> near = words->words;
  std::ranges::copy(scope.names(), std::back_inserter(near));
  Diagnostic& d =
      error(e.span, fmt::format("expected one of {}, got '{}'", joined(words->words), e.text));
  const std::string meant = did_you_mean(e.text, near);
  d.with_help(meant.empty() ? "write one of these words, without quotes"
                            : fmt::format("did you mean '{}'?", meant));
  return std::nullopt;
}

std::nullopt_t Evaluator::unknown_name(const ast::Expr& e, const Scope& scope) {
  const std::string meant = did_you_mean(e.text, scope.names());
  error(e.span, fmt::format("unknown name '{}'", e.text))
      .with_help(meant.empty() ? "nothing of this name is known here: give a value, or declare it"
                               : fmt::format("did you mean '{}'?", meant));
  return std::nullopt;
}

Evaluator::Result Evaluator::collection(const ast::Expr& e, const Scope& scope,
                                        const Enumeration* words) {
  std::vector<Value> items;
  items.reserve(e.args.size());
  for (const ast::Argument& arg : e.args) {
    Result item = eval(*arg.value, scope, words);
    if (!item) return std::nullopt;
    items.push_back(std::move(*item));
  }
  if (e.kind == ast::ExprKind::list) return Value{List{std::move(items)}, e.span};
  return Value{Set{std::move(items)}, e.span};
}

Evaluator::Result Evaluator::index(const ast::Expr& e, const Scope& scope) {
  const Result of = eval(e.arg(0), scope);
  if (!of) return std::nullopt;
  const List* list = of->as<List>();
  if (list == nullptr) {
    error(e.arg(0).span, fmt::format("only lists have an index, got {}", of->kind()))
        .with_help("a list stands in brackets: [19, 21, 21, 19]");
    return std::nullopt;
  }
  const std::optional<Expr> at = count(e.arg(1), scope);
  if (!at) return std::nullopt;
  if (!pool_.is_constant(*at)) {
    if (list->items.empty()) {
      error(e.arg(0).span, "the list is empty").with_help("put at least one entry in it");
      return std::nullopt;
    }
    Value result = list->items.back();  // the index is open: one choice an entry
    for (std::size_t i = list->items.size() - 1; i-- > 0;) {
      Result next = select(e, pool_.equal(*at, pool_.constant(i)), list->items[i], result);
      if (!next) return std::nullopt;
      result = std::move(*next);
    }
    return result;
  }
  const Rational i = pool_.value(*at);
  if (!i.is_integer() || i.sign() < 0 || !(i < Rational(list->items.size()))) {
    error(e.arg(1).span, fmt::format("index {} is outside the list of {} (they count from 0)",
                                     grouped(i), list->items.size()))
        .with_help("the last entry of a list x is x[len(x) - 1]");
    return std::nullopt;
  }
  return list->items[static_cast<std::size_t>(i.num())];
}

std::optional<Expr> Evaluator::count(const ast::Expr& e, const Scope& scope) {
  return quantity(e, scope, kCount);
}

std::optional<Expr> Evaluator::quantity(const ast::Expr& e, const Scope& scope,
                                        Dimension dimension) {
  const Result value = eval(e, scope);
  if (!value) return std::nullopt;
  return as_quantity(*value, dimension, e.span);
}

std::optional<Expr> Evaluator::as_quantity(const Value& value, Dimension dimension, Span where) {
  const Number* n = value.as<Number>();
  if (n != nullptr && n->dimension == dimension) return n->expr;
  if (const Word* word = value.as<Word>(); word != nullptr && word->of == &any_words()) {
    error(value.span, fmt::format("unknown name '{}'", word->text))
        .label(where, fmt::format("{} is expected here", dimension.str()))
        .with_help(dimension == kBytes ? "give a size, such as 4 GiB, or a name that has one"
                                       : "give a number, or a name that has one");
    return std::nullopt;
  }
  Diagnostic& d = error(where, fmt::format("expected {}, got {}", dimension.str(), value.kind()));
  if (n != nullptr && n->dimension.is_count() && dimension == kBytes)
    d.with_help("write the unit, as in '4 GiB' or '2 B'");
  else
    d.with_help(fmt::format("give {} here", dimension.str()));
  return std::nullopt;
}

std::optional<Expr> Evaluator::condition(const ast::Expr& e, const Scope& scope) {
  const Result value = eval(e, scope);
  if (!value) return std::nullopt;
  return as_condition(*value, e.span);
}

std::optional<Expr> Evaluator::as_condition(const Value& value, Span where) {
  if (const Boolean* b = value.as<Boolean>()) return b->expr;
  error(where, fmt::format("expected a condition (true or false), got {}", value.kind()))
      .with_help("a condition compares: tp <= 8, zero == 3, mbs in {1, 2}");
  return std::nullopt;
}

std::optional<Rational> Evaluator::constant(const ast::Expr& e, const Scope& scope,
                                            Dimension dimension) {
  const std::optional<Expr> value = quantity(e, scope, dimension);
  if (!value) return std::nullopt;
  if (pool_.is_constant(*value)) return pool_.value(*value);
  error(e.span, "expected a number that holds for every layout, got one that depends on it")
      .with_help("layout variables such as tp and pp are known only once a layout is chosen");
  return std::nullopt;
}

const Number* Evaluator::number(const Value& value, Span where) {
  if (const Number* n = value.as<Number>()) return n;
  if (const Word* word = value.as<Word>(); word != nullptr && word->of == &any_words())
    error(value.span, fmt::format("unknown name '{}'", word->text))
        .label(where, "a number is expected here")
        .with_help("give a number, or a name that has one");
  else
    error(where, fmt::format("expected a number, got {}", value.kind()))
        .with_help("give a number, or a name that has one");
  return nullptr;
}

}  // namespace plimsoll::eval
