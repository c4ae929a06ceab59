// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/list_terms.hpp"

#include <algorithm>

#include "lang/diagnostics.hpp"

namespace plimsoll {

namespace {

/// It has no value, whatever the lists are.
struct NoValue {};

struct ListOf;
/// A number over another one that is above 0.
struct Quotient {
  Linear over, under;
};
struct RangeOf {
  Linear from, to;
};
/// What an expression is. `eval::Value`: of no use here but to be compared as a whole (words).
using Meaning =
    std::variant<Linear, Truth, Quotient, RangeOf, std::shared_ptr<ListOf>, eval::Value>;
/// A list, or the members of a set.
struct ListOf {
  bool set = false;
  std::vector<Meaning> items;
};

}  // namespace

struct ListTerms::Impl : LinearTerms {
  Impl(const Problem& p, const LayoutValues& v, smt::Solver& s, std::vector<Linear> layers,
       std::vector<Linear> recomputed)
      : LinearTerms(s),
        problem(p),
        values(v),
        stage_layers(std::move(layers)),
        recompute_layers(std::move(recomputed)) {}

  const Problem& problem;
  const LayoutValues& values;
  std::vector<Linear> stage_layers, recompute_layers;

  Meaning mean(const ast::Expr&);
  Meaning concrete(const ast::Expr&);
  Meaning from_value(const eval::Value&);
  Meaning binary(const ast::Expr&);
  Meaning call(const ast::Expr&);
  Meaning choose(const ast::Expr&);
  Linear index(const ast::Expr&);
  Meaning arithmetic(const ast::Expr&);
  Linear product(const Linear&, const Linear&);
  Truth less_equal(const Meaning& low, const Meaning& high);
  Truth logical(const ast::Expr&);
  /// Of what is joined: one without a value does not hold.
  Truth part(const ast::Expr&);
  Truth same(const Meaning&, const Meaning&);
  Truth contains(const Meaning&, const Meaning&);
  Linear linear(const Meaning&);
  Linear linear(const ast::Expr& e) { return linear(mean(e)); }
  Truth truth(const Meaning&);
  Truth truth(const ast::Expr& e) { return truth(mean(e)); }
  Rational constant(const Meaning&);
};

Linear ListTerms::Impl::linear(const Meaning& m) {
  if (const auto* x = std::get_if<Linear>(&m)) return *x;
  if (std::holds_alternative<Quotient>(m)) throw NotLinear{};
  throw NoValue{};  // compile() has seen to kinds
}

Truth ListTerms::Impl::truth(const Meaning& m) {
  if (const auto* t = std::get_if<Truth>(&m)) return *t;
  throw NoValue{};
}

Rational ListTerms::Impl::constant(const Meaning& m) {
  const Linear x = linear(m);
  if (!x.is_constant()) throw NotLinear{};
  return x.constant;
}

Meaning ListTerms::Impl::from_value(const eval::Value& value) {
  const ExprPool& pool = problem.module->pool();
  const auto fixed = [&](Expr e) {
    if (!pool.is_constant(e)) throw NotLinear{};
    return pool.value(e);
  };
  if (const auto* n = value.as<eval::Number>()) return number(fixed(n->expr));
  if (const auto* b = value.as<eval::Boolean>()) return Truth{!fixed(b->expr).is_zero(), {}};
  if (const auto* range = value.as<eval::Interval>())
    return RangeOf{number(fixed(range->from.expr)), number(fixed(range->to.expr))};
  const auto* list = value.as<eval::List>();
  const auto* set = value.as<eval::Set>();
  if (list == nullptr && set == nullptr) return value;
  auto out = std::make_shared<ListOf>();
  out->set = set != nullptr;
  for (const eval::Value& item : list != nullptr ? list->items : set->items)
    out->items.push_back(from_value(item));
  return out;
}

/// Of what names no list: its value.
Meaning ListTerms::Impl::concrete(const ast::Expr& e) {
  if (reads_derived(problem, e)) throw NotLinear{};
  Diagnostics ignored;  // no value, which is an answer
  const Module& module = *problem.module;
  eval::Evaluator evaluator(module.pool(), ignored);
  const ConditionScope names(module, *problem.job, &values);
  std::optional<eval::Value> value;
  if (const Behaviour* framework = module.framework(problem.job->framework))
    value = evaluator.eval(e, BehaviourScope(*framework, problem.job, names, evaluator));
  else
    value = evaluator.eval(e, names);
  if (!value || value->as<eval::Unknown>() != nullptr) throw NoValue{};
  return from_value(*value);
}

namespace {

/// Is it made of other conditions?
bool joins(const ast::Expr& e) {
  if (e.kind == ast::ExprKind::unary) return e.op == ast::Op::logical_not;
  return e.kind == ast::ExprKind::binary &&
         (e.op == ast::Op::logical_and || e.op == ast::Op::logical_or || e.op == ast::Op::implies);
}

}  // namespace

Meaning ListTerms::Impl::mean(const ast::Expr& e) {
  if (!joins(e) && !names_list(e, "stage_layers") && !names_list(e, "recompute_layers"))
    return concrete(e);
  switch (e.kind) {
    case ast::ExprKind::name: {
      auto list = std::make_shared<ListOf>();
      for (const Linear& x : e.text == "stage_layers" ? stage_layers : recompute_layers)
        list->items.emplace_back(x);
      return list;
    }
    case ast::ExprKind::list:
    case ast::ExprKind::set: {
      auto list = std::make_shared<ListOf>();
      list->set = e.kind == ast::ExprKind::set;
      for (const ast::Argument& argument : e.args) list->items.push_back(mean(*argument.value));
      return list;
    }
    case ast::ExprKind::unary:
      if (e.op == ast::Op::logical_not) return not_(part(e.arg(0)));
      return scaled(linear(e.arg(0)), -1);
    case ast::ExprKind::binary:
      return binary(e);
    case ast::ExprKind::call:
      return call(e);
    case ast::ExprKind::index:
      return index(e);
    default:
      throw NotLinear{};
  }
}

Meaning ListTerms::Impl::binary(const ast::Expr& e) {
  const auto compare = [&](const ast::Expr& low, const ast::Expr& high) {
    return less_equal(mean(low), mean(high));
  };
  switch (e.op) {
    case ast::Op::logical_and:
    case ast::Op::logical_or:
    case ast::Op::implies:
      return logical(e);
    case ast::Op::equal:
      return same(mean(e.arg(0)), mean(e.arg(1)));
    case ast::Op::not_equal:
      return not_(same(mean(e.arg(0)), mean(e.arg(1))));
    case ast::Op::less_equal:
      return compare(e.arg(0), e.arg(1));
    case ast::Op::greater_equal:
      return compare(e.arg(1), e.arg(0));
    case ast::Op::less:
      return not_(compare(e.arg(1), e.arg(0)));
    case ast::Op::greater:
      return not_(compare(e.arg(0), e.arg(1)));
    case ast::Op::in:
      return contains(mean(e.arg(0)), mean(e.arg(1)));
    case ast::Op::range: {
      RangeOf range{linear(e.arg(0)), linear(e.arg(1))};
      // A range that is empty for some lists has no value for them.
      if (minus(range.to, range.from).low.sign() < 0) throw NotLinear{};
      return range;
    }
    case ast::Op::power:
      throw NotLinear{};
    default:
      return arithmetic(e);
  }
}

/// A quotient is compared by what is over it times what is under the other.
Truth ListTerms::Impl::less_equal(const Meaning& low, const Meaning& high) {
  const auto split = [&](const Meaning& m) {
    if (const auto* q = std::get_if<Quotient>(&m)) return *q;
    return Quotient{linear(m), number(1)};
  };
  const Quotient a = split(low), b = split(high);
  return at_least_zero(minus(product(b.over, a.under), product(a.over, b.under)));
}

/// Of numbers neither of which is below 0 and which take few values, or one of which is known.
Linear ListTerms::Impl::product(const Linear& a, const Linear& b) {
  constexpr std::int64_t kMostPairs = 4096;
  if (a.is_constant()) return scaled(b, a.constant);
  if (b.is_constant()) return scaled(a, b.constant);
  if (a.low.sign() < 0 || b.low.sign() < 0 || denominator(a) != 1 || denominator(b) != 1)
    throw NotLinear{};
  const std::int64_t a0 = a.low.ceil().to_int64(), a1 = a.high.floor().to_int64();
  const std::int64_t b0 = b.low.ceil().to_int64(), b1 = b.high.floor().to_int64();
  if (a1 - a0 >= kMostPairs || b1 - b0 >= kMostPairs || (a1 - a0 + 1) * (b1 - b0 + 1) > kMostPairs)
    throw NotLinear{};
  const Linear out = fresh(a.low * b.low, a.high * b.high);
  const auto at_most = [&](const Linear& x, std::int64_t v) {
    return at_least_zero(minus(number(v), x));
  };
  const auto at_least = [&](const Linear& x, std::int64_t v) {
    return at_least_zero(minus(x, number(v)));
  };
  for (std::int64_t u = a0; u <= a1; ++u)
    for (std::int64_t v = b0; v <= b1; ++v) {
      require(join({at_most(a, u - 1), at_most(b, v - 1), at_least(out, u * v)}, false));
      require(join({at_least(a, u + 1), at_least(b, v + 1), at_most(out, u * v)}, false));
    }
  return out;
}

Meaning ListTerms::Impl::arithmetic(const ast::Expr& e) {
  const Linear a = linear(mean(e.arg(0))), b = linear(mean(e.arg(1)));
  switch (e.op) {
    case ast::Op::add:
      return plus(a, b);
    case ast::Op::subtract:
      return minus(a, b);
    case ast::Op::multiply:
      return product(a, b);
    case ast::Op::divide:
    case ast::Op::floor_divide: {
      if (!b.is_constant()) {
        if (e.op == ast::Op::divide && b.low.sign() > 0) return Quotient{a, b};
        throw NotLinear{};
      }
      if (b.constant.is_zero()) throw NoValue{};
      const Linear quotient = scaled(a, Rational(1) / b.constant);
      return e.op == ast::Op::divide ? quotient : floor(quotient);
    }
    default:
      throw NotLinear{};
  }
}

Truth ListTerms::Impl::part(const ast::Expr& e) {
  try {
    return truth(e);
  } catch (const NoValue&) {
    return {false, {}};
  }
}

Truth ListTerms::Impl::logical(const ast::Expr& e) {
  Truth left = part(e.arg(0));
  if (e.op == ast::Op::implies) left = not_(left);
  const bool all = e.op == ast::Op::logical_and;
  if (left.known && *left.known != all) return left;
  return join({left, part(e.arg(1))}, all);
}

Truth ListTerms::Impl::same(const Meaning& a, const Meaning& b) {
  const auto is_number = [](const Meaning& m) {
    return std::holds_alternative<Linear>(m) || std::holds_alternative<Quotient>(m);
  };
  if (is_number(a) && is_number(b)) return join({less_equal(a, b), less_equal(b, a)}, true);
  if (std::holds_alternative<Truth>(a) && std::holds_alternative<Truth>(b)) {
    const Truth &p = std::get<Truth>(a), &q = std::get<Truth>(b);
    return join({join({not_(p), q}, false), join({p, not_(q)}, false)}, true);
  }
  const auto* x = std::get_if<std::shared_ptr<ListOf>>(&a);
  const auto* y = std::get_if<std::shared_ptr<ListOf>>(&b);
  if (x == nullptr || y == nullptr || (*x)->set || (*y)->set) throw NotLinear{};
  if ((*x)->items.size() != (*y)->items.size()) return {false, {}};
  std::vector<Truth> each;
  for (std::size_t i = 0; i < (*x)->items.size(); ++i)
    each.push_back(same((*x)->items[i], (*y)->items[i]));
  return join(each, true);
}

Truth ListTerms::Impl::contains(const Meaning& value, const Meaning& of) {
  if (const auto* range = std::get_if<RangeOf>(&of)) {
    return join({less_equal(range->from, value), less_equal(value, range->to)}, true);
  }
  const auto* list = std::get_if<std::shared_ptr<ListOf>>(&of);
  if (list == nullptr) throw NotLinear{};
  std::vector<Truth> any;
  for (const Meaning& item : (*list)->items)
    any.push_back(std::holds_alternative<RangeOf>(item) ? contains(value, item)
                                                        : same(value, item));
  return join(any, false);
}

Linear ListTerms::Impl::index(const ast::Expr& e) {
  const Meaning of = mean(e.arg(0));
  const auto* list = std::get_if<std::shared_ptr<ListOf>>(&of);
  if (list == nullptr) throw NotLinear{};
  const Rational at = constant(mean(e.arg(1)));
  const auto size = static_cast<std::int64_t>((*list)->items.size());
  if (!at.is_integer() || at.sign() < 0 || !(at < Rational(size))) throw NoValue{};
  return linear((*list)->items[static_cast<std::size_t>(at.num())]);
}

Meaning ListTerms::Impl::choose(const ast::Expr& e) {
  const Truth condition = truth(e.arg(0));
  if (condition.known) return mean(e.arg(*condition.known ? 1 : 2));
  try {
    const Meaning then = mean(e.arg(1)), otherwise = mean(e.arg(2));
    if (std::holds_alternative<Truth>(then)) {
      const Truth a = truth(then), b = truth(otherwise);
      return join({join({not_(condition), a}, false), join({condition, b}, false)}, true);
    }
    return select(condition, linear(then), linear(otherwise));
  } catch (const NoValue&) {
    throw NotLinear{};
  }
}

Meaning ListTerms::Impl::call(const ast::Expr& e) {
  const std::string& f = e.text;
  if (f == "if" && e.args.size() == 3) return choose(e);
  std::vector<Meaning> args;
  for (const ast::Argument& argument : e.args) args.push_back(mean(*argument.value));
  if (args.empty()) throw NotLinear{};
  const auto* list = std::get_if<std::shared_ptr<ListOf>>(&args.front());
  if (f == "len" && list != nullptr)
    return number(static_cast<std::int64_t>((*list)->items.size()));
  if (f == "min" || f == "max" || f == "sum") {
    const std::vector<Meaning>& items = args.size() == 1 && list != nullptr ? (*list)->items : args;
    if (items.empty() && f != "sum") throw NoValue{};
    std::vector<Linear> numbers;
    for (const Meaning& item : items) numbers.push_back(scaled(linear(item), f == "min" ? -1 : 1));
    if (f != "sum") return scaled(most(numbers), f == "min" ? -1 : 1);
    Linear total = number(0);
    for (const Linear& x : numbers) total = plus(total, x);
    return total;
  }
  const Linear x = linear(args.front());
  if (f == "abs") return most({x, scaled(x, -1)});
  if (f == "floor") return floor(x);
  if (f == "ceil") return scaled(floor(scaled(x, -1)), -1);
  if (f == "round") return floor(plus(x, number(Rational::fraction(1, 2))));
  if (f == "mod" && args.size() == 2) {
    const Rational by = constant(args[1]);
    if (by.is_zero()) throw NoValue{};
    return minus(x, scaled(floor(scaled(x, Rational(1) / by)), by));
  }
  throw NotLinear{};
}

ListTerms::ListTerms(const Problem& problem, const LayoutValues& values, smt::Solver& solver,
                     std::vector<Linear> stage_layers, std::vector<Linear> recompute_layers)
    : impl_(std::make_unique<Impl>(problem, values, solver, std::move(stage_layers),
                                   std::move(recompute_layers))) {}
ListTerms::~ListTerms() = default;

std::optional<smt::Term> ListTerms::lower(const ast::Expr& condition) {
  try {
    const Truth holds = impl_->truth(condition);
    return holds.known ? impl_->solver.truth(*holds.known) : holds.term;
  } catch (const NotLinear&) {
    return std::nullopt;
  } catch (const ArithmeticError&) {
    return std::nullopt;
  } catch (const NoValue&) {
    return impl_->solver.truth(false);  // a condition without a value is not met
  }
}

}  // namespace plimsoll
