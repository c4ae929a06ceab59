// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/elaborate_impl.hpp"

/// The ops that mix tokens, heads or experts, and the loss.
namespace plimsoll::elab {

namespace {

bool divided(const Value& value) { return value.split == Split::column; }

}  // namespace

/// The second value goes whole to each group of the first (a rotary key that all heads share), or
/// group to group where both are divided in these groups.
Elaborator::Result Elaborator::concat(const OpSpec& spec, const Args& args) {
  const Value a = value(args[0].tensor);
  const Value b = value(args[1].tensor);
  const std::int64_t groups = args[2].given ? args[2].size : 1;
  if (!(a.tokens == b.tokens))
    return fail(args.call.span, fmt::format("cannot join tensors of {} and {} tokens",
                                            pool_.str(a.tokens), pool_.str(b.tokens)));
  if (!check_divides(a.width, groups, args.call.span, "width", "groups")) return std::nullopt;
  if (divided(a) && groups == 1)
    return fail(args.call.span,
                "the first tensor is divided over the tensor-parallel ranks: say in "
                "which groups the second one joins it",
                "concat(a, b, groups = heads)");
  if (!divided(a) && divided(b)) {
    check_whole(args[1].tensor, args.call, "concat");
    return std::nullopt;
  }
  if (divided(b) && !check_divides(b.width, groups, args.call.span, "width", "groups"))
    return std::nullopt;
  if (divided(a) && a.units > 0 && groups % a.units != 0)
    return fail(args.call.span,
                fmt::format("{} groups do not lie within the {} units that the input is split in",
                            groups, a.units));
  Op result = op(spec, args);
  result.inputs = {args[0].tensor, args[1].tensor};
  result.groups = groups;
  Value output = like(a);
  output.width = a.width + (divided(b) ? b.width : groups * b.width);
  output.units = divided(a) ? (a.units > 0 ? a.units : groups) : 0;
  output.sequence_sharded = a.sequence_sharded && b.sequence_sharded;
  return emit(std::move(result), output);
}

/// Heads are not cut: a value that is divided freely so far, and what it was made of, is divided in
/// whole heads from here on.
bool Elaborator::split_in_heads(ValueId id, std::int64_t heads, const ast::Expr& call,
                                std::string_view what) {
  Program& program = draft_.program;
  Value* v = &program.values[id];
  if (!divided(*v)) return true;
  if (v->units > 0) {
    if (heads % v->units == 0) return true;
    fail(call.span, fmt::format("{} is split in {} units, but attention has {} heads for it", what,
                                v->units, heads));
    return false;
  }
  for (;;) {
    v->units = heads;
    Op& made_by = program.ops[v->producer];
    for (const WeightId w : made_by.weights)
      if (program.weights[w].split == Split::column) program.weights[w].units = heads;
    if (made_by.kind == OpKind::linear) {
      made_by.units = heads;
      return true;
    }
    if (made_by.inputs.empty()) return true;
    v = &program.values[made_by.inputs.front()];
    if (!divided(*v) || v->units > 0) return true;
  }
}

bool Elaborator::check_heads(const Args& args, std::int64_t heads, std::int64_t kv_heads) {
  const Value& q = value(args[0].tensor);
  const Value& k = value(args[1].tensor);
  const Value& v = value(args[2].tensor);
  const Span where = args.call.span;
  if (!check_divides(q.width, heads, where, "the width of q,", "heads") ||
      !check_divides(k.width, kv_heads, where, "the width of k,", "kv_heads") ||
      !check_divides(v.width, kv_heads, where, "the width of v,", "kv_heads"))
    return false;
  if (heads % kv_heads != 0)
    fail(where, fmt::format("{} heads do not share {} kv_heads evenly", heads, kv_heads),
         "heads must be a multiple of kv_heads");
  else if (q.width / heads != k.width / kv_heads)
    fail(where,
         fmt::format("q has {} elements a head, k has {}", q.width / heads, k.width / kv_heads));
  else if (!(k.tokens == v.tokens))
    fail(where, fmt::format("k has {} tokens, v has {}", pool_.str(k.tokens), pool_.str(v.tokens)));
  else if (divided(k) != divided(v) || (divided(k) && !divided(q)))
    fail(where, "q, k and v must all be divided over the tensor-parallel ranks or all be whole",
         "give the linears of q, k and v split = column");
  else
    return true;
  return false;
}

Elaborator::Result Elaborator::attention(const OpSpec& spec, const Args& args) {
  enum { kQ, kK, kV, kHeads, kKvHeads, kCausal, kWindow, kChunk, kSoftcap, kSinks, kBias, kAlibi };
  const std::int64_t heads = args[kHeads].size;
  const std::int64_t kv_heads = args[kKvHeads].given ? args[kKvHeads].size : heads;
  if (!check_heads(args, heads, kv_heads)) return std::nullopt;
  if (!split_in_heads(args[kQ].tensor, heads, args.call, "q") ||
      !split_in_heads(args[kK].tensor, kv_heads, args.call, "k") ||
      !split_in_heads(args[kV].tensor, kv_heads, args.call, "v"))
    return std::nullopt;
  const Value& q = value(args[kQ].tensor);
  if (args[kCausal].flag && !(q.tokens == value(args[kK].tensor).tokens))
    return fail(args[kCausal].span,
                "causal attention is of a sequence to itself; q and k have "
                "unlike tokens",
                "causal = false");
  Op result = op(spec, args);
  result.inputs = {args[kQ].tensor, args[kK].tensor, args[kV].tensor};
  result.heads = heads;
  result.kv_heads = kv_heads;
  result.q_width = q.width / heads;
  result.k_width = value(args[kK].tensor).width / kv_heads;
  result.v_width = value(args[kV].tensor).width / kv_heads;
  result.causal = args[kCausal].flag;
  result.window = args[kWindow].size;
  result.chunk = args[kChunk].size;
  result.softcap = args[kSoftcap].given;
  result.cap = args[kSoftcap].number;
  result.sinks = args[kSinks].flag;
  result.alibi = args[kAlibi].flag || args[kBias].flag;
  result.cache = args.tensors;
  if (args[kBias].tensor != kNone) {
    if (value(args[kBias].tensor).width != heads)
      return fail(args[kBias].span, fmt::format("the bias is of {} heads, attention has {}",
                                                value(args[kBias].tensor).width, heads));
    result.inputs.push_back(args[kBias].tensor);
  }
  if (result.sinks) {  // one number a head that takes part in the softmax
    Weight w;
    w.name = "sinks";
    w.cols = heads;
    w.dims = 1;
    w.split = divided(q) ? Split::column : Split::none;
    w.units = divided(q) ? heads : 0;
    w.span = args.call.span;
    const std::optional<WeightId> sinks = weight(std::move(w));
    if (!sinks) return std::nullopt;
    result.weights = {*sinks};
  }
  Value output = like(q);
  output.width = heads * result.v_width;
  output.units = divided(q) ? heads : 0;
  output.sequence_sharded = false;
  return emit(std::move(result), output);
}

Elaborator::Result Elaborator::experts(const OpSpec& spec, const Args& args) {
  enum { kX, kCount, kTopK, kCapacity, kScore, kRouterBias, kName };
  if (!check_whole(args[kX].tensor, args.call, "experts")) return std::nullopt;
  const Value x = value(args[kX].tensor);
  const std::int64_t count = args[kCount].size;
  if (args[kTopK].size > count)
    return fail(args[kTopK].span,
                fmt::format("top_k is {}, but there are {} experts", args[kTopK].size, count));
  Op result = op(spec, args);
  result.inputs = {args[kX].tensor};
  result.name = args[kName].text;
  result.count = count;
  result.top_k = args[kTopK].size;
  result.capacity = args[kCapacity].number;
  result.sigmoid = args[kScore].size == 1;
  result.router_bias = args[kRouterBias].flag;
  Weight router;
  router.name = args[kName].given ? args[kName].text : "router";
  router.role = Role::router;
  router.rows = x.width;
  router.cols = count;
  router.span = args.call.span;
  std::optional<WeightId> id = weight(router);
  if (!id) return std::nullopt;
  result.weights = {*id};
  if (result.router_bias) {
    router.rows = 1;
    router.dims = 1;
    id = weight(std::move(router));
    if (!id) return std::nullopt;
    result.weights.push_back(*id);
  }
  const auto experts = static_cast<OpId>(draft_.program.ops.size());
  Value routed = like(x);
  routed.experts = experts;
  routed.sequence_sharded = false;
  const std::optional<eval::Value> t = emit(std::move(result), routed);
  if (!t) return std::nullopt;

  experts_ = experts;
  eval::Scope body(&args.scope);
  body.set(args.call.closure->parameter.text, *t);
  const ast::Expr& expr = *args.call.closure->body;
  const std::optional<eval::Value> y = evaluator_.eval(expr, body);
  experts_ = kNone;
  if (!y) return std::nullopt;
  const eval::Tensor* tensor = y->as<eval::Tensor>();
  if (tensor == nullptr || tensor->id == eval::kLoss)
    return fail(expr.span, fmt::format("the body of experts is a tensor, got {}", y->kind()));
  if (value(tensor->id).experts != experts)
    return fail(expr.span, "the body of experts does not use the tokens that are routed to it",
                fmt::format("it sees them as '{}'", args.call.closure->parameter.text));
  if (!check_whole(tensor->id, expr, "what experts return")) return std::nullopt;
  Op combine = op(OpKind::combine, args.call.span);
  combine.inputs = {tensor->id};
  Value output = like(x);
  output.width = value(tensor->id).width;
  return emit(std::move(combine), output);
}

/// Mamba-2 as Nemotron-H and Mamba-2 itself store it: in_proj makes z, x, B, C and dt at once, a
/// convolution over x, B and C, one A, D and dt_bias a head, a gated norm, out_proj.
Elaborator::Result Elaborator::mamba2(const OpSpec& spec, const Args& args) {
  enum { kX, kHeads, kHeadDim, kState, kGroups, kConv };
  constexpr std::int64_t kDefaultConv = 4;
  if (!check_whole(args[kX].tensor, args.call, "mamba2")) return std::nullopt;
  const Value x = value(args[kX].tensor);
  Op result = op(spec, args);
  result.inputs = {args[kX].tensor};
  result.heads = args[kHeads].size;
  result.head_dim = args[kHeadDim].size;
  result.state = args[kState].size;
  result.groups = args[kGroups].given ? args[kGroups].size : 1;
  result.conv = args[kConv].given ? args[kConv].size : kDefaultConv;
  if (!check_divides(result.heads, result.groups, args.call.span, "heads", "groups"))
    return std::nullopt;
  const Int128 inner = Int128{result.heads} * result.head_dim;
  const Int128 both = 2 * Int128{result.groups} * result.state;
  if (inner + both > (Int128{1} << 40))
    return fail(args.call.span, "the state of this mamba2 is too large");
  const auto d = static_cast<std::int64_t>(inner);
  const auto bc = static_cast<std::int64_t>(both);
  struct Part {
    std::string_view name;
    Role role;
    std::int64_t rows, cols;
    int dims;
    Split split;
  };
  const Part parts[] = {
      {"in_proj", Role::linear, x.width, 2 * d + bc + result.heads, 2, Split::column},
      {"conv", Role::other, result.conv, d + bc, 2, Split::column},
      {"conv", Role::bias, 1, d + bc, 1, Split::column},
      {"dt_bias", Role::bias, 1, result.heads, 1, Split::column},
      {"A", Role::other, 1, result.heads, 1, Split::column},
      {"D", Role::other, 1, result.heads, 1, Split::column},
      {"norm", Role::norm, 1, d, 1, Split::column},
      {"out_proj", Role::linear, d, x.width, 2, Split::row},
  };
  for (const Part& part : parts) {
    Weight w;
    w.name = part.name;
    w.role = part.role;
    w.rows = part.rows;
    w.cols = part.cols;
    w.dims = part.dims;
    w.split = part.split;
    w.units = result.groups;
    w.span = args.call.span;
    const std::optional<WeightId> id = weight(std::move(w));
    if (!id) return std::nullopt;
    result.weights.push_back(*id);
  }
  Value output = like(x);
  output.sequence_sharded = true;
  return emit(std::move(result), output);
}

Elaborator::Result Elaborator::cross_entropy(const OpSpec& spec, const Args& args) {
  Op result = op(spec, args);
  result.inputs = {args[0].tensor};
  result.vocab = value(args[0].tensor).width;
  if (draft_.program.ops.size() >= kMaxOps)
    return fail(result.span, fmt::format("this model has more than {} ops", grouped(kMaxOps)));
  draft_.program.ops.push_back(std::move(result));
  return eval::Value{eval::Tensor{eval::kLoss}, args.call.span};
}

}  // namespace plimsoll::elab
