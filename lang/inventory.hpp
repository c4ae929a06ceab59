// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lang/expr.hpp"
#include "lang/ops/rule.hpp"
#include "lang/program.hpp"
#include "lang/source.hpp"

/// The inventory of a job: one row an allocation class, and the order in which a micro-batch makes
/// and frees them. Everything that prices memory reads this; nothing else decides what is live
/// when.
namespace plimsoll {

#define PLIMSOLL_CATEGORIES(X) \
  X(weights)                   \
  X(gradients)                 \
  X(master)                    \
  X(moments) X(activations) X(kv_cache) X(buffers) X(workspace) X(overhead) X(fragmentation)

enum class Category : std::uint8_t {
#define X(name) name,
  PLIMSOLL_CATEGORIES(X)
#undef X
};
inline constexpr std::size_t kCategoryCount = 10;
std::string_view name(Category);

/// The phases of a step, in order; kept between steps: update..forward. Then moments beside the
/// steps, each alone: the model is built, a checkpoint is loaded, one is saved, evaluation.
enum class Phase : std::uint8_t { forward, backward, update, start, load, save, evaluate };
inline bool is_beside_steps(Phase p) { return p > Phase::update; }

enum class LifetimeKind : std::uint8_t {
  always,           ///< from start-up on
  from_first_step,  ///< made lazily by the first optimizer step (Adam's moments)
  step,             ///< during a step
  microbatch,       ///< a micro-batch's forward to its backward: times the micro-batches in flight
  op,               ///< while one op (or layer) runs, forward and backward
  span,  ///< the phases `from`..`to`; one phase where they are equal; update..forward wraps
};

struct Lifetime {
  LifetimeKind kind = LifetimeKind::always;
  Phase from = Phase::forward, to = Phase::forward;
  bool early = false, late = false;  ///< also through the neighbouring layer, in execution order
  std::string str() const;           ///< "always", "micro-batch", "backward..update" …
};

/// Where an item lies: on every stage, or with a segment (times the segments of its class on the
/// stage).
struct Place {
  enum Kind : std::uint8_t { stage, layer_class, root_segment } kind = stage;
  std::uint32_t index = 0;
};

/// How equal items of one stage come together.
enum class Combine : std::uint8_t {
  add,   ///< each instance counts
  once,  ///< instances with one `key` count once (each shape)
  max,   ///< the largest instance counts
};

/// One line of the bill.
struct Item {
  std::string name;
  Category category = Category::activations;
  std::string dtype;        ///< "bf16"; "" for plain bytes
  std::vector<Expr> shape;  ///< of one instance on a rank: (tokens, width), (rows, cols)
  Expr bytes;               ///< one instance on one rank, not yet rounded; states: before `shard`
  Expr shard;  ///< states: ranks that divide the sum of this item on a stage; constant 1 otherwise
  Lifetime lifetime;
  Place place;
  Combine combine = Combine::add;
  std::string key;     ///< of Combine::once
  std::string source;  ///< a paper's equation, or the stack and the place in it
  std::string stream;  ///< the allocator's pool; "" is the default one
  Span origin;
  std::uint32_t absent_with = kNone;  ///< a segment (root) whose presence on the stage removes this
                                      ///< row: a tied weight is held once a stage
  bool traced = false;   ///< its tensors are in the traces; otherwise it is priced by its lifetime
  bool outside = false;  ///< not in the framework's allocator (context, communicators)
};

/// What a tensor of a trace holds.
enum class TensorRole : std::uint8_t {
  value,      ///< `value`, as the program's ops make it
  gradient,   ///< the gradient of `value`; a residual + hands it on to both its inputs
  partial,    ///< a further gradient of `value`, to be added to the first (or to the stage's)
  successor,  ///< a further gradient of `value`: the first, which is still another value's too, is
              ///< added to it, and it is the gradient from then on
  saved,      ///< what `op` keeps under the name `part`: its own, or a copy of `value` in `dtype`
  temporary,  ///< `part` of `op`, while it runs
  item,       ///< a framework's line item, of `op` or (kNone) of the segment
};

/// A tensor of a segment's trace. Ops and values are those of the segment that the trace was built
/// from: the first of its layer class.
struct TraceTensor {
  std::string name;
  Expr bytes;                  ///< integer on every valid layout
  std::uint32_t item = kNone;  ///< the inventory's row that it is an instance of
  TensorRole role = TensorRole::item;
  ValueId value = kNone;
  OpId op = kNone;
  std::string part, dtype;  ///< dtype: "" where it is the activations' own
};

struct TraceEvent {
  enum Kind : std::uint8_t { alloc, free, run } kind;
  std::uint32_t index;  ///< tensor, or op (run: a moment at which the live bytes count)
  bool recomputing = false;
  bool host = false;  ///< free: its content goes to host memory; alloc: it comes back from there
};

/// What one segment allocates and frees for one micro-batch. Tensors that forward leaves live are
/// saved; backward ends with none of them. The value handed over from the neighbouring segment is
/// allocated at the start and the one handed on is freed at the end, with no moment in between.
struct SegmentTrace {
  std::vector<TraceTensor> tensors;
  std::vector<TraceEvent> forward, backward;
};

/// How a layer is recomputed: 0 none, 1 full, 2… the framework's modes in order.
using RecomputeMode = std::uint32_t;

/// A value that several segments read (an encoder's output): held once a stage and micro-batch.
struct SharedValue {
  ValueId value;
  std::uint32_t first_segment, last_segment;  ///< made in or before, read last in
  Expr bytes;
  Expr gradient_bytes;
};

/// Bytes of a layer's item that stay (late) or come (early) while its neighbour in execution order
/// runs.
struct Spill {
  Place place;
  bool backward = false;
  bool late = false;
  std::uint32_t item = kNone;
  Expr bytes;
};

/// What the lowering was told of the job; the time model reads the same.
struct Facts {
  ops::Variant variant;
  Rational imbalance = 1;
  Expr vocab_multiple;
  Rational activation_bytes = 2;  ///< an element of an activation or its gradient
  Rational weight_bytes = 2;      ///< an element of a weight as matrix products read it
  std::vector<bool> trained;      ///< by weight
};

/// What a serving job and its framework say of the server.
struct Serving {
  Rational utilization;            ///< share of the GPU's memory that the server may take
  std::int64_t batch_tokens = 0;   ///< that a step holds at most
  std::int64_t max_sequences = 0;  ///< that it runs at once; 0: no limit
  bool activations_inside = true;  ///< of that share (vLLM); else they live beside it (SGLang)
  Rational weight_bits = 16;       ///< of the weights that `weights_on` names (all, unless given)
  Rational cache_bits = 16;
  std::vector<bool> in_weight_bits;  ///< by weight; the others are bf16
};

/// How values lie in memory and where gradients flow.
struct Flow {
  std::vector<ValueId> storage;      ///< by value: whose storage it is (dropout off)
  std::vector<bool> needs_gradient;  ///< by value
  std::vector<bool> is_shared;       ///< by value: held by the stage, see SharedValue
  std::vector<int> fuse_group;       ///< by op: linears stored as one weight; -1: none
};

struct Inventory {
  const Program* program = nullptr;
  Flow flow;
  Facts facts;
  Serving serving;  ///< of a serve job
  std::vector<Item> items;
  /// traces[mode][k], k = trace_of(segment): the layer classes first, then the root segments in
  /// order.
  std::vector<std::vector<SegmentTrace>> traces;
  std::vector<std::string> recompute_modes;  ///< "none", "full", "selective" …
  std::vector<SharedValue> shared;
  std::vector<Expr> weight_elements;         ///< parameters on a rank, indexed like traces[mode]
  std::vector<std::uint32_t> root_segments;  ///< segment indices, in order
  std::vector<Expr> boundary_bytes;          ///< per segment: what a stage cut after it sends
  std::vector<Spill> spills;
  std::vector<std::pair<Var, Expr>> defaults;  ///< of the framework, for layout variables left open
  Rational margin = 0;                         ///< "edge" within this share of the memory
  /// Reserved over allocated: an estimate where the allocator is replayed, else what counts.
  Rational reserved_factor = 1;
  std::string reserved_source;
  /// Does reserved come from a replay of the allocator? Unless said, where no factor is stated.
  std::optional<bool> replay;
  bool offloads_activations = false;  ///< what layers keep for backward waits in host memory
  bool counts_blocks = true;          ///< false: allocated is the live bytes (plain, textbook)
  bool is_replayed() const { return counts_blocks && replay.value_or(reserved_source.empty()); }

  std::uint32_t trace_of(std::uint32_t segment) const;
};

}  // namespace plimsoll
