// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lang/expr.hpp"
#include "lang/source.hpp"

/// The tensor program of a model: ops in execution order over values (activations) and weights, cut
/// in segments (layers and what stands beside them). Widths are numbers; tokens are symbolic.
namespace plimsoll {

// clang-format off
#define PLIMSOLL_OP_KINDS(X) \
  X(embedding) X(input) X(merge) X(learned_positions) X(relative_bias) X(rope) X(linear) \
  X(rmsnorm) X(layernorm) X(attention) X(gelu) X(relu) X(squared_relu) X(silu) X(tanh) \
  X(softcap) X(add) X(mul) X(glu) X(concat) X(dropout) X(experts) X(combine) X(mamba2) \
  X(cross_entropy)
// clang-format on

enum class OpKind : std::uint8_t {
#define X(name) name,
  PLIMSOLL_OP_KINDS(X)
#undef X
};
/// The op's word in the language (`add` and `mul` for + and *); `combine` ends an experts op and
/// has none.
std::string_view name(OpKind);

/// How a value's width or a weight lies on the ranks of a tensor-parallel group.
enum class Split : std::uint8_t {
  none,    ///< whole on every rank
  column,  ///< a weight: its outputs are divided; a value: its width is divided
  row,     ///< a weight: its inputs are divided; the value it makes is whole
};

/// What `role` means in frameworks and optimizers.
enum class Role : std::uint8_t { linear, expert, head, embedding, norm, bias, router, other };
std::string_view name(Role);

using ValueId = std::uint32_t;
using WeightId = std::uint32_t;
using OpId = std::uint32_t;
inline constexpr std::uint32_t kNone = ~0u;

/// An activation. Elements on a rank = tokens on the rank * width on the rank, see shape.hpp.
struct Value {
  Expr tokens;             ///< tokens a sequence, before any split (seq, target, a number)
  std::int64_t width = 0;  ///< elements a token, before any split
  Split split = Split::none;
  std::int64_t units = 0;        ///< split in whole units only; 0: any split that divides
  bool sequence_sharded = true;  ///< outside column..row regions: sp divides its tokens by tp
  OpId experts = kNone;          ///< inside this experts op: its tokens are the routed ones
  OpId producer = kNone;
};

/// A parameter tensor of `rows` x `cols` (rows: inputs, cols: outputs; a vector has rows 1, dims
/// 1), `copies` times over inside experts.
struct Weight {
  std::string name;  ///< "q", "gate", "head", "norm" …; "" where none was given
  Role role = Role::other;
  std::int64_t rows = 1;
  std::int64_t cols = 1;
  int dims = 2;
  Split split = Split::none;  ///< of a vector: column where it follows a divided width
  std::int64_t units = 0;
  std::int64_t copies = 1;  ///< experts
  OpId experts = kNone;     ///< divided by ep and etp instead of tp
  WeightId tied_to =
      kNone;  ///< shares the storage of this weight (counted once a stage, and once a model)
  bool vocabulary = false;  ///< its columns (head) or rows (embedding) are the padded vocabulary
  std::uint32_t block = 0;  ///< index in Program::blocks of the blocks that it was made in
  Span span;

  std::int64_t numel() const { return rows * cols * copies; }
};

/// One op. Attributes that a kind does not use stay at their defaults.
/// experts reads the layer's value and makes the routed rows that its body reads; its weights are
/// the router and, with router_bias, its vector. The body's ops follow, then one combine op: its
/// input is the body's result, whose Value::experts is the experts op, its output is back in the
/// layer. mamba2's weights: in_proj, conv, conv bias, dt_bias, A, D, norm, out_proj. concat with
/// groups appends the whole second value to each group of the first, or group to group where both
/// are divided alike.
struct Op {
  OpKind kind = OpKind::add;
  std::string name;  ///< of a linear, embedding …; "" where none was given
  std::vector<ValueId> inputs;
  ValueId output = kNone;         ///< kNone: cross_entropy
  std::vector<WeightId> weights;  ///< weight first, then bias; mamba2: see below
  std::uint32_t segment = 0;
  OpId experts = kNone;  ///< the experts op in whose body it stands
  Span span;

  Split split = Split::none;  ///< linear, embedding
  std::int64_t units = 0;
  std::int64_t heads = 0, kv_heads = 0;                ///< attention
  std::int64_t q_width = 0, k_width = 0, v_width = 0;  ///< attention: per head
  bool causal = false;
  std::int64_t window = 0;  ///< 0: none
  std::int64_t chunk = 0;
  bool softcap = false, sinks = false, alibi = false;
  std::vector<ValueId> cache;  ///< attention: what serving keeps in place of k and v
  std::int64_t groups = 1;     ///< norms: statistics a token; concat
  bool plus_one = false;
  double p = 0;                       ///< dropout; negative: the job's share
  OpKind activation = OpKind::silu;   ///< glu: silu or gelu of inputs[0], times inputs[1]
  std::int64_t last = 0;              ///< rope: elements of a head that turn; 0: all
  Rational cap = 0;                   ///< softcap and attention with softcap
  std::int64_t count = 0, top_k = 0;  ///< experts
  Rational capacity = 0;              ///< experts: 0 where dropless
  bool sigmoid = false, router_bias = false;
  std::int64_t head_dim = 0, state = 0, conv = 0;  ///< mamba2 (with heads and groups)
  std::int64_t vocab = 0;                          ///< cross_entropy, embedding
};

/// A layer (one turn of an innermost repeat) or the ops beside layers. A root segment in front of
/// the first layer lies on that layer's stage, any other on the stage of the layer before it.
struct Segment {
  bool is_layer = false;
  std::uint32_t layer_class = 0;  ///< equal for layers that are alike in everything
  std::uint32_t layer = 0;  ///< index over all layers; of a root segment: the layer it lies with
  OpId first_op = 0;
  OpId op_count = 0;
  std::vector<ValueId> inputs;   ///< values made before it and read in it
  std::vector<ValueId> carried;  ///< values that cross its end: what a stage cut here sends on
};

struct Program {
  std::string model;
  std::vector<Value> values;
  std::vector<Weight> weights;
  std::vector<Op> ops;
  std::vector<Segment> segments;
  std::uint32_t layer_count = 0;
  std::uint32_t class_count = 0;
  std::vector<std::uint32_t> class_first_segment;  ///< a segment that stands for each layer class
  std::map<std::string, Rational> params;          ///< the model's numeric parameters, by name
  std::vector<std::string> blocks;  ///< "" (the model), "moe", "moe.mlp" …: for `freeze`

  /// Parameters of the whole model, tied weights once, vocabulary unpadded.
  Int128 parameter_count() const;
};

}  // namespace plimsoll
