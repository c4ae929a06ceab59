// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>

#include "lang/elaborate_impl.hpp"
#include "lang/grouped.hpp"

/// The ops' signatures, and how a call's arguments become checked numbers, words and tensors.
namespace plimsoll::elab {

namespace {

const eval::Enumeration kSplits{"split", {"none", "column", "row"}};
const eval::Enumeration kScores{"score", {"softmax", "sigmoid"}};
const eval::Enumeration kSequences{"sequence", {"seq", "target"}};
const eval::Enumeration kBiases{"bias", {"none", "alibi"}};

constexpr bool kRequired = true;
/// Widths, counts and table sizes stay far from where products of two of them overflow.
constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;

std::vector<OpSpec> make_specs() {
  using K = ArgKind;
  const ArgSpec x{"x", K::tensor, kRequired};
  const ArgSpec name{"name", K::name};
  std::vector<OpSpec> specs = {
      {"width", OpKind::add, {x}, &Elaborator::width},
      {"embedding",
       OpKind::embedding,
       {{"vocab", K::size, kRequired},
        {"width", K::size, kRequired},
        name,
        {"tied", K::tie},
        {"seq", K::word, false, &kSequences}},
       &Elaborator::embedding,
       false,
       false},
      {"input",
       OpKind::input,
       {{"tokens", K::size, kRequired}, {"width", K::size, kRequired}, name},
       &Elaborator::input,
       false,
       false},
      {"merge",
       OpKind::merge,
       {{"text", K::tensor, kRequired}, {"image", K::tensor, kRequired}},
       &Elaborator::merge,
       false,
       false},
      {"learned_positions",
       OpKind::learned_positions,
       {x, {"n", K::size, kRequired}, name},
       &Elaborator::learned_positions,
       false,
       false},
      {"relative_bias",
       OpKind::relative_bias,
       {{"heads", K::size, kRequired}, {"buckets", K::size, kRequired}, name},
       &Elaborator::relative_bias,
       false,
       false},
      {"rope", OpKind::rope, {x, {"last", K::option}}, &Elaborator::rope},
      {"linear",
       OpKind::linear,
       {x,
        {"out", K::size, kRequired},
        {"split", K::word, false, &kSplits},
        {"units", K::option},
        {"bias", K::flag},
        {"tied", K::tie},
        name},
       &Elaborator::linear},
      {"attention",
       OpKind::attention,
       {{"q", K::tensor, kRequired},
        {"k", K::tensor, kRequired},
        {"v", K::tensor, kRequired},
        {"heads", K::size, kRequired},
        {"kv_heads", K::size},
        {"causal", K::flag},
        {"window", K::option},
        {"chunk", K::option},
        {"softcap", K::number},
        {"sinks", K::flag},
        {"bias", K::bias, false, &kBiases},
        {"alibi", K::flag},
        {"cache", K::tensors}},
       &Elaborator::attention,
       false,
       false},
      {"softcap", OpKind::softcap, {x, {"c", K::number, kRequired}}, &Elaborator::softcap},
      {"dropout", OpKind::dropout, {x, {"p", K::share}}, &Elaborator::dropout},
      {"concat",
       OpKind::concat,
       {{"a", K::tensor, kRequired}, {"b", K::tensor, kRequired}, {"groups", K::size}},
       &Elaborator::concat},
      {"experts",
       OpKind::experts,
       {x,
        {"count", K::size, kRequired},
        {"top_k", K::size, kRequired},
        {"capacity", K::number},
        {"score", K::word, false, &kScores},
        {"router_bias", K::flag},
        name},
       &Elaborator::experts,
       true,
       false},
      {"mamba2",
       OpKind::mamba2,
       {x,
        {"heads", K::size, kRequired},
        {"head_dim", K::size, kRequired},
        {"state", K::size, kRequired},
        {"groups", K::size},
        {"conv", K::size}},
       &Elaborator::mamba2,
       false,
       false},
      {"cross_entropy",
       OpKind::cross_entropy,
       {{"logits", K::tensor, kRequired}},
       &Elaborator::cross_entropy,
       false,
       false},
  };
  for (const OpKind norm : {OpKind::rmsnorm, OpKind::layernorm})
    specs.push_back({plimsoll::name(norm),
                     norm,
                     {x, {"groups", K::size}, {"plus_one", K::flag}, {"weight", K::flag}, name},
                     &Elaborator::norm});
  for (const OpKind act :
       {OpKind::gelu, OpKind::relu, OpKind::squared_relu, OpKind::silu, OpKind::tanh})
    specs.push_back({plimsoll::name(act), act, {x}, &Elaborator::pointwise});
  return specs;
}

const std::vector<OpSpec>& specs() {
  static const std::vector<OpSpec> all = make_specs();
  return all;
}

std::string signature(const OpSpec& spec) {
  std::string text = std::string(spec.name) + "(";
  for (const ArgSpec& arg : spec.args) {
    if (&arg != &spec.args.front()) text += ", ";
    text += arg.name;
    if (!arg.required) text += " = …";
  }
  return text + (spec.body ? ") { t => … }" : ")");
}

}  // namespace

const OpSpec* find_op(std::string_view name) {
  static const std::unordered_map<std::string_view, const OpSpec*> by_name = [] {
    std::unordered_map<std::string_view, const OpSpec*> result;
    for (const OpSpec& spec : specs()) result[spec.name] = &spec;
    return result;
  }();
  const auto at = by_name.find(name);
  return at == by_name.end() ? nullptr : at->second;
}

std::vector<std::string> op_names() {
  std::vector<std::string> result;
  for (const OpSpec& spec : specs()) result.emplace_back(spec.name);
  return result;
}

std::optional<eval::Value> Elaborator::call_op(const OpSpec& spec, const ast::Expr& call,
                                               const eval::Scope& scope) {
  if (experts_ != kNone && !spec.in_experts)
    return fail(call.op_span, fmt::format("{} cannot stand in the body of experts", spec.name));
  if ((call.closure != nullptr) != spec.body)
    return fail(spec.body ? call.span : call.closure->span,
                fmt::format("{} takes {}", spec.name, spec.body ? "a body" : "no body"),
                signature(spec));
  Args args{call, scope, {}, {}};
  if (!bind(spec, args)) return std::nullopt;
  return (this->*spec.make)(spec, args);
}

bool Elaborator::bind(const OpSpec& spec, Args& args) {
  const ast::Expr& call = args.call;
  bool good = true;
  bool named = false;
  for (std::size_t i = 0; i < call.args.size(); ++i) {
    const ast::Argument& arg = call.args[i];
    std::size_t index = i;
    if (!arg.name.text.empty()) {
      named = true;
      index = 0;
      while (index < spec.args.size() && spec.args[index].name != arg.name.text) ++index;
    } else if (named) {
      fail(arg.value->span, "arguments by place come before those by name");
      return false;
    }
    if (index >= spec.args.size()) {
      std::vector<std::string> names;
      for (const ArgSpec& known : spec.args) names.emplace_back(known.name);
      const std::string meant = did_you_mean(arg.name.text, names);
      const bool by_name = !arg.name.text.empty();
      fail(by_name ? arg.name.span : arg.value->span,
           by_name ? fmt::format("{} has no argument '{}'", spec.name, arg.name.text)
                   : fmt::format("{} takes {} arguments at most", spec.name, spec.args.size()),
           meant.empty() ? signature(spec) : fmt::format("did you mean '{}'?", meant));
      return false;
    }
    if (args.at[index].given) {
      fail(arg.name.span, fmt::format("'{}' is given twice", spec.args[index].name));
      return false;
    }
    args.at[index].given = true;
    args.at[index].span = arg.value->span;
    good = bind(spec, spec.args[index], *arg.value, args, args.at[index]) && good;
  }
  for (std::size_t i = 0; i < spec.args.size() && good; ++i)
    if (spec.args[i].required && !args[i].given) {
      fail(call.span, fmt::format("{} needs '{}'", spec.name, spec.args[i].name), signature(spec));
      return false;
    }
  return good;
}

bool Elaborator::bind(const OpSpec& spec, const ArgSpec& arg, const ast::Expr& e, Args& args,
                      Arg& to) {
  const bool bare = e.kind == ast::ExprKind::name;
  if (arg.kind == ArgKind::name) {
    if (bare || e.kind == ast::ExprKind::string) {
      to.text = e.text;
      return true;
    }
    fail(e.span, fmt::format("expected a name for the weight of this {}", spec.name), "name = q");
    return false;
  }
  if (arg.kind == ArgKind::tie && bare) {
    // A parameter may say true or false; any other name is a weight's.
    const eval::Value* known = args.scope.find(e.text);
    if (known == nullptr || known->as<eval::Boolean>() == nullptr) {
      if (known != nullptr && known->as<eval::Unknown>() != nullptr) return false;
      const eval::Word* word = known != nullptr ? known->as<eval::Word>() : nullptr;
      to.flag = true;
      to.text = word != nullptr ? std::string_view(word->text) : std::string_view(e.text);
      return true;
    }
  }
  const std::optional<eval::Value> value = evaluator_.eval(e, args.scope, arg.words);
  if (!value) return false;
  switch (arg.kind) {
    case ArgKind::tensor:
      return bind_tensor(arg, *value, e.span, to.tensor);
    case ArgKind::tensors: {
      const eval::List* list = value->as<eval::List>();
      if (list == nullptr) {
        fail(e.span, fmt::format("'{}' is a list of tensors, got {}", arg.name, value->kind()));
        return false;
      }
      args.tensors.resize(list->items.size());
      for (std::size_t i = 0; i < list->items.size(); ++i)
        if (!bind_tensor(arg, list->items[i], e.span, args.tensors[i])) return false;
      return true;
    }
    case ArgKind::bias:
      if (value->as<eval::Tensor>() != nullptr) return bind_tensor(arg, *value, e.span, to.tensor);
      if (const eval::Word* word = value->as<eval::Word>(); word && word->text == "alibi")
        return to.flag = true;
      if (const eval::Number* n = value->as<eval::Number>();
          value->is_none() || (n != nullptr && n->expr == pool_.constant(0)))
        return true;
      fail(e.span, fmt::format("expected none, alibi or a tensor, got {}", value->kind()));
      return false;
    case ArgKind::flag:
    case ArgKind::tie: {
      const std::optional<Expr> condition = evaluator_.as_condition(*value, e.span);
      if (!condition) return false;
      to.flag = !pool_.value(*condition).is_zero();
      return true;
    }
    case ArgKind::word: {
      const eval::Word* word = value->as<eval::Word>();
      const std::string_view text = word != nullptr ? std::string_view(word->text) : "none";
      const auto at = std::ranges::find(arg.words->words, text);
      if ((word == nullptr && !value->is_none()) || at == arg.words->words.end()) {
        fail(e.span, fmt::format("'{}' is one of {}; got {}", arg.name,
                                 fmt::join(arg.words->words, ", "), value->kind()));
        return false;
      }
      to.size = at - arg.words->words.begin();
      return true;
    }
    default:
      return bind_number(spec, arg, *value, e.span, to);
  }
}

bool Elaborator::bind_tensor(const ArgSpec& arg, const eval::Value& value, Span where,
                             ValueId& to) {
  const eval::Tensor* tensor = value.as<eval::Tensor>();
  if (tensor == nullptr || tensor->id == eval::kLoss) {
    fail(where, fmt::format("'{}' is a tensor, got {}", arg.name, value.kind()));
    return false;
  }
  to = tensor->id;
  if (this->value(to).experts == experts_) return true;
  fail(where,
       "the body of experts works on the tokens that were routed to an expert, not on the "
       "layer's own",
       "use the name before '=>'");
  return false;
}

bool Elaborator::bind_number(const OpSpec& spec, const ArgSpec& arg, const eval::Value& value,
                             Span where, Arg& to) {
  const bool may_be_none = arg.kind == ArgKind::option || arg.kind == ArgKind::number;
  const eval::Boolean* flag = value.as<eval::Boolean>();
  const bool is_false = flag != nullptr && flag->expr == pool_.constant(0);
  if (may_be_none && (value.is_none() || is_false)) {
    to.given = arg.required;
    return true;
  }
  const std::optional<Expr> expr = evaluator_.as_quantity(value, kCount, where);
  if (!expr) return false;
  if (!pool_.is_constant(*expr)) {
    fail(where, fmt::format("'{}' holds for every layout, got {}", arg.name, pool_.str(*expr)));
    return false;
  }
  const Rational n = pool_.value(*expr);
  if (arg.kind == ArgKind::option && n.is_zero()) {
    to.given = false;
    return true;
  }
  const bool share = arg.kind == ArgKind::share;
  const bool whole = arg.kind == ArgKind::size || arg.kind == ArgKind::option;
  if ((whole && !n.is_integer()) || (share ? n.sign() < 0 || !(n < 1) : n.sign() <= 0)) {
    const std::string_view what = whole   ? "a whole number above 0"
                                  : share ? "a share from 0 to below 1"
                                          : "a number above 0";
    fail(where, fmt::format("'{}' of {} is {}, got {}", arg.name, spec.name, what, grouped(n)));
    return false;
  }
  if (Rational(kMaxSize) < n) {
    fail(where, fmt::format("'{}' of {} is too large: {}", arg.name, spec.name, grouped(n)));
    return false;
  }
  to.number = n;
  if (whole) to.size = n.to_int64();
  return true;
}

}  // namespace plimsoll::elab
