// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/elaborate_impl.hpp"

/// The ops of one input or of plain tables: embeddings, linears, norms, pointwise ops. Each checks
/// its operands, makes its weights and says how its result lies on the ranks.
namespace plimsoll::elab {

namespace {

/// A weight with more elements than this is a mistake, and products of sizes stay exact below it.
constexpr Int128 kMaxElements = Int128{1} << 52;

bool divided(const Value& value) { return value.split == Split::column; }

}  // namespace

Op Elaborator::op(OpKind kind, Span span) const {
  Op result;
  result.kind = kind;
  result.span = span;
  result.experts = experts_;
  return result;
}

Op Elaborator::op(const OpSpec& spec, const Args& args) const {
  return op(spec.kind, args.call.span);
}

std::optional<WeightId> Elaborator::weight(Weight w) {
  w.experts = experts_;
  w.copies = experts_ != kNone ? draft_.program.ops[experts_].count : 1;
  w.block = frames_.empty() ? 0 : frames_.back().path;
  if (Int128{w.rows} * w.cols > kMaxElements || Int128{w.rows} * w.cols * w.copies > kMaxElements)
    return fail(w.span, fmt::format("a weight of {} x {} elements is too large", grouped(w.rows),
                                    grouped(Int128{w.cols} * w.copies)));
  draft_.program.weights.push_back(std::move(w));
  return static_cast<WeightId>(draft_.program.weights.size() - 1);
}

std::optional<eval::Value> Elaborator::emit(Op op, Value output) {
  Program& program = draft_.program;
  if (program.ops.size() >= kMaxOps)
    return fail(op.span, fmt::format("this model has more than {} ops", grouped(kMaxOps)));
  const Span span = op.span;
  output.producer = static_cast<OpId>(program.ops.size());
  op.output = static_cast<ValueId>(program.values.size());
  program.values.push_back(output);
  program.ops.push_back(std::move(op));
  return eval::Value{eval::Tensor{program.ops.back().output}, span};
}

/// A value that lies as \a v does.
Value Elaborator::like(const Value& v) const {
  Value result = v;
  result.producer = kNone;
  return result;
}

bool Elaborator::check_whole(ValueId id, const ast::Expr& call, std::string_view what) {
  const Value& v = value(id);
  if (!divided(v)) return true;
  evaluator_
      .error(call.span, fmt::format("the input of {} is divided over the tensor-parallel ranks; it "
                                    "must be whole",
                                    what))
      .label(draft_.program.ops[v.producer].span, "divided since here")
      .with_help("a linear with split = row makes it whole");
  return false;
}

bool Elaborator::check_alike(ValueId a, ValueId b, const ast::Expr& node, std::string_view verb) {
  const Value& x = value(a);
  const Value& y = value(b);
  if (x.width != y.width)
    fail(node.span,
         fmt::format("cannot {} tensors of width {} and {}", verb, grouped(x.width),
                     grouped(y.width)),
         "give the linear before one of them the width of the other");
  else if (!(x.tokens == y.tokens))
    fail(node.span, fmt::format("cannot {} tensors of {} and {} tokens", verb, pool_.str(x.tokens),
                                pool_.str(y.tokens)));
  else if (x.experts != y.experts)
    fail(node.span, fmt::format("cannot {} a tensor of the layer and one of the experts", verb));
  else if (divided(x) != divided(y))
    fail(node.span,
         fmt::format("cannot {} a tensor that is divided over the tensor-parallel ranks "
                     "and one that is whole",
                     verb),
         "a linear with split = row makes a divided tensor whole");
  else
    return true;
  return false;
}

bool Elaborator::check_divides(std::int64_t n, std::int64_t parts, Span where,
                               std::string_view n_is, std::string_view parts_are) {
  if (n % parts == 0) return true;
  fail(where,
       fmt::format("{} {} does not divide into {} {}", n_is, grouped(n), grouped(parts), parts_are),
       fmt::format("{} must be a multiple of {}", grouped(n), grouped(parts)));
  return false;
}

void Elaborator::tie(WeightId weight, const Arg& arg) {
  if (arg.flag) draft_.ties.push_back({weight, std::string(arg.text), arg.span});
}

std::optional<eval::Value> Elaborator::combine(const ast::Expr& node, ast::Op op,
                                               const eval::Value& left, const eval::Value& right) {
  const eval::Tensor* a = left.as<eval::Tensor>();
  const eval::Tensor* b = right.as<eval::Tensor>();
  const std::string_view verb = op == ast::Op::add ? "add" : "multiply";
  if (a == nullptr || b == nullptr || (a->id == eval::kLoss) != (b->id == eval::kLoss) ||
      (a->id == eval::kLoss && op != ast::Op::add))
    return fail(node.span, fmt::format("cannot {} {} and {}", verb, left.kind(), right.kind()));
  if (a->id == eval::kLoss) return eval::Value{*a, node.span};
  for (const eval::Tensor* operand : {a, b})
    if (value(operand->id).experts != experts_)
      return fail(node.span,
                  "the body of experts works on the tokens that were routed to an "
                  "expert, not on the layer's own",
                  "use the name before '=>'");
  if (!check_alike(a->id, b->id, node, verb)) return std::nullopt;
  Op result = this->op(op == ast::Op::add ? OpKind::add : OpKind::mul, node.span);
  result.inputs = {a->id, b->id};
  Value output = like(value(a->id));
  if (output.units == 0) output.units = value(b->id).units;
  output.sequence_sharded = output.sequence_sharded || value(b->id).sequence_sharded;
  return emit(std::move(result), output);
}

Elaborator::Result Elaborator::width(const OpSpec&, const Args& args) {
  return eval::Value{eval::Number{pool_.constant(value(args[0].tensor).width), kCount},
                     args.call.span};
}

Elaborator::Result Elaborator::embedding(const OpSpec& spec, const Args& args) {
  enum { kVocab, kWidth, kName, kTied, kSeq };
  Weight table;
  table.name = args[kName].text;
  table.role = Role::embedding;
  table.rows = args[kVocab].size;
  table.cols = args[kWidth].size;
  table.split = Split::row;
  table.vocabulary = true;
  table.span = args.call.span;
  const std::optional<WeightId> id = weight(std::move(table));
  if (!id) return std::nullopt;
  tie(*id, args[kTied]);
  Op result = op(spec, args);
  result.name = args[kName].text;
  result.weights = {*id};
  result.split = Split::row;
  result.vocab = args[kVocab].size;
  Value output;
  output.tokens = pool_.variable(args[kSeq].size == 1 ? Var::target : Var::seq);
  output.width = args[kWidth].size;
  return emit(std::move(result), output);
}

Elaborator::Result Elaborator::input(const OpSpec& spec, const Args& args) {
  Op result = op(spec, args);
  result.name = args[2].text;
  Value output;
  output.tokens = pool_.constant(args[0].size);
  output.width = args[1].size;
  return emit(std::move(result), output);
}

/// The images' tokens take the places that the text keeps for them.
Elaborator::Result Elaborator::merge(const OpSpec& spec, const Args& args) {
  const Value& text = value(args[0].tensor);
  const Value& image = value(args[1].tensor);
  if (text.width != image.width)
    return fail(args.call.span, fmt::format("cannot merge tensors of width {} and {}",
                                            grouped(text.width), grouped(image.width)));
  if (!check_whole(args[0].tensor, args.call, "merge") ||
      !check_whole(args[1].tensor, args.call, "merge"))
    return std::nullopt;
  Op result = op(spec, args);
  result.inputs = {args[0].tensor, args[1].tensor};
  return emit(std::move(result), like(text));
}

/// Reads nothing of x but its shape, so x is no input.
Elaborator::Result Elaborator::learned_positions(const OpSpec& spec, const Args& args) {
  const Value& x = value(args[0].tensor);
  if (!check_whole(args[0].tensor, args.call, "learned_positions")) return std::nullopt;
  Weight table;
  table.name = args[2].given ? args[2].text : "positions";
  table.role = Role::embedding;
  table.rows = args[1].size;
  table.cols = x.width;
  table.span = args.call.span;
  const std::optional<WeightId> id = weight(std::move(table));
  if (!id) return std::nullopt;
  Op result = op(spec, args);
  result.name = args[2].text;
  result.weights = {*id};
  return emit(std::move(result), like(value(args[0].tensor)));
}

/// One number a head and bucket of distances; the attention spreads it over its scores.
Elaborator::Result Elaborator::relative_bias(const OpSpec& spec, const Args& args) {
  const std::int64_t heads = args[0].size;
  Weight table;
  table.name = args[2].given ? args[2].text : "relative_bias";
  table.role = Role::embedding;
  table.rows = args[1].size;
  table.cols = heads;
  table.split = Split::column;
  table.units = heads;
  table.span = args.call.span;
  const std::optional<WeightId> id = weight(std::move(table));
  if (!id) return std::nullopt;
  Op result = op(spec, args);
  result.name = args[2].text;
  result.weights = {*id};
  result.heads = heads;
  Value output;
  output.tokens = pool_.constant(args[1].size);
  output.width = heads;
  output.split = Split::column;
  output.units = heads;
  output.sequence_sharded = false;
  return emit(std::move(result), output);
}

Elaborator::Result Elaborator::rope(const OpSpec& spec, const Args& args) {
  const Value& x = value(args[0].tensor);
  if (args[1].size > x.width)
    return fail(args[1].span,
                fmt::format("cannot turn the last {} elements of a tensor of width {}",
                            grouped(args[1].size), grouped(x.width)));
  Op result = op(spec, args);
  result.inputs = {args[0].tensor};
  result.last = args[1].size;
  return emit(std::move(result), like(x));
}

Elaborator::Result Elaborator::linear(const OpSpec& spec, const Args& args) {
  enum { kX, kOut, kSplit, kUnits, kBias, kTied, kName };
  const Value x = value(args[kX].tensor);
  const std::int64_t out = args[kOut].size;
  const auto split = static_cast<Split>(args[kSplit].size);  // none, column, row
  if (split != Split::row &&
      !check_whole(args[kX].tensor, args.call, "a linear that is not split by row"))
    return std::nullopt;
  std::int64_t units = split == Split::row ? x.units : args[kUnits].size;
  if (args[kUnits].given && split == Split::none)
    return fail(args[kUnits].span, "units say how a linear is split; this one is not",
                "add split = column");
  if (split == Split::row && units == 0) units = args[kUnits].size;
  if (units > 0 &&
      !check_divides(split == Split::row ? x.width : out, units, args.call.span, "width", "units"))
    return std::nullopt;

  Weight w;
  w.name = args[kName].text;
  w.role = w.name == "head" ? Role::head : experts_ != kNone ? Role::expert : Role::linear;
  w.rows = x.width;
  w.cols = out;
  w.split = split;
  w.units = units;
  w.span = args.call.span;
  Op result = op(spec, args);
  result.name = w.name;
  result.inputs = {args[kX].tensor};
  result.split = split;
  result.units = units;
  const std::optional<WeightId> matrix = weight(w);
  if (!matrix) return std::nullopt;
  tie(*matrix, args[kTied]);
  result.weights = {*matrix};
  if (args[kBias].flag) {
    w.role = Role::bias;
    w.rows = 1;
    w.dims = 1;
    w.split = split == Split::column ? Split::column : Split::none;
    w.units = split == Split::column ? units : 0;
    const std::optional<WeightId> vector = weight(std::move(w));
    if (!vector) return std::nullopt;
    result.weights.push_back(*vector);
  }
  Value output = like(x);
  output.width = out;
  output.split = split == Split::column ? Split::column : Split::none;
  output.units = split == Split::column ? units : 0;
  if (split != Split::none) output.sequence_sharded = split == Split::row && experts_ == kNone;
  return emit(std::move(result), output);
}

/// One vector of width / groups, shared by the groups; a bias more for layernorm.
Elaborator::Result Elaborator::norm(const OpSpec& spec, const Args& args) {
  enum { kX, kGroups, kPlusOne, kWeight, kName };
  const Value x = value(args[kX].tensor);
  const std::int64_t groups = args[kGroups].given ? args[kGroups].size : 1;
  if (!check_divides(x.width, groups, args.call.span, "width", "groups")) return std::nullopt;
  if (groups > 1 && x.units > 0 && groups % x.units != 0)
    return fail(args.call.span,
                fmt::format("{} groups do not lie within the {} units that the input is split in",
                            groups, x.units));
  Op result = op(spec, args);
  result.name = args[kName].text;
  result.inputs = {args[kX].tensor};
  result.groups = groups;
  result.plus_one = args[kPlusOne].flag;
  if (!args[kWeight].given || args[kWeight].flag) {
    Weight w;
    w.name = args[kName].given ? args[kName].text : "norm";
    w.role = Role::norm;
    w.cols = x.width / groups;
    w.dims = 1;
    w.split = groups == 1 && divided(x) ? Split::column : Split::none;
    w.units = w.split == Split::column ? x.units : 0;
    w.span = args.call.span;
    const std::optional<WeightId> scale = weight(w);
    if (!scale) return std::nullopt;
    result.weights = {*scale};
    if (spec.kind == OpKind::layernorm) {
      w.role = Role::bias;
      const std::optional<WeightId> bias = weight(std::move(w));
      if (!bias) return std::nullopt;
      result.weights.push_back(*bias);
    }
  }
  return emit(std::move(result), like(x));
}

Elaborator::Result Elaborator::pointwise(const OpSpec& spec, const Args& args) {
  Op result = op(spec, args);
  result.inputs = {args[0].tensor};
  return emit(std::move(result), like(value(args[0].tensor)));
}

Elaborator::Result Elaborator::softcap(const OpSpec& spec, const Args& args) {
  Op result = op(spec, args);
  result.inputs = {args[0].tensor};
  result.softcap = true;
  result.cap = args[1].number;
  if (result.cap.is_zero()) return fail(args[1].span, "softcap needs a bound, got none");
  return emit(std::move(result), like(value(args[0].tensor)));
}

/// Without p the share is the job's; with p = 0 there is nothing to do.
Elaborator::Result Elaborator::dropout(const OpSpec& spec, const Args& args) {
  if (args[1].given && args[1].number.is_zero())
    return eval::Value{eval::Tensor{args[0].tensor}, args.call.span};
  Op result = op(spec, args);
  result.inputs = {args[0].tensor};
  result.p = args[1].given ? args[1].number.to_double() : -1;
  return emit(std::move(result), like(value(args[0].tensor)));
}

}  // namespace plimsoll::elab
