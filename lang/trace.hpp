// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "lang/inventory.hpp"
#include "lang/ops/rule.hpp"
#include "lang/program.hpp"

/// From the ops of a segment to the order in which it allocates and frees: who is live when.
///
/// Forward: an op's output is made, then its temporaries, then the op runs (a moment), then
/// temporaries go and so does every value that was read for the last time and is not saved.
/// Backward, from the last op to the first: gradients of the op's inputs are made (a residual +
/// hands its gradient on; a second gradient of one value exists until it is added to the first),
/// the op runs, then its temporaries, the gradient of its output and what only it had saved go.
/// Weight gradients go straight into the gradients' own storage.
namespace plimsoll {

/// A tensor that an op keeps for its backward.
struct SavedTensor {
  std::string name;       ///< as `save` calls it
  ValueId value = kNone;  ///< the program's value that it is; kNone: the op's own
  std::string dtype;      ///< "" where it is the value's own storage
  Expr bytes;             ///< 0 on layouts where it is not saved
  Expr condition;         ///< 1 where it is saved
};

/// An explicit line item of a framework at an op.
struct OpItem {
  std::uint32_t item = kNone;
  Expr bytes;
  bool forward = false, backward = false;  ///< live while the op runs there
  bool kept = false;                       ///< from its forward to its backward
};

/// An op with what the job's framework makes of it.
struct LoweredOp {
  OpId op = 0;
  std::vector<SavedTensor> saved;
  std::vector<OpItem> items;
  std::vector<ops::Temporary> forward_temporaries, backward_temporaries;
  /// cross_entropy, experts: its items and saves are all that is live while it runs.
  bool accounts_for_all = false;
};

/// What of a layer is kept in forward under a recomputation mode.
struct RecomputePolicy {
  enum Kind { none, full, drop, keep } kind = none;
  std::vector<std::string> words;  ///< op kinds and names
  /// Ops whose outputs go though others save them, and are made again when one of those needs them
  /// (beside `none` and `drop`).
  std::vector<std::string> discards;
  /// Ops whose kept tensors wait in host memory from the end of the layer's forward to its
  /// backward.
  std::vector<std::string> offloads;
};

/// Words for ops that share no kind and no name, in `drop`, `discard` and `offload`: norms of the
/// residual stream; activations inside experts, and the linears before them; the feed-forward
/// beside experts in their layer, and that of layers without experts.
inline constexpr std::string_view kResidualNorms = "residual_norms",
                                  kExpertActivations = "expert_activations",
                                  kExpertFirstLinears = "expert_first_linears",
                                  kSharedExperts = "shared_experts", kDenseMlp = "dense_mlp";

/// Rows of the inventory by place and name: a tensor that several recomputation modes make is one
/// row.
class ItemTable {
 public:
  explicit ItemTable(std::vector<Item>& items) : items_(items) {}
  std::uint32_t row(Place place, const std::string& name, Category category, LifetimeKind lifetime,
                    Expr bytes, std::vector<Expr> shape, std::string source, Span origin);

 private:
  std::vector<Item>& items_;
  std::map<std::tuple<int, std::uint32_t, std::string>, std::uint32_t> index_;
};

struct TraceInput {
  const Program* program = nullptr;
  const ops::Shapes* shapes = nullptr;
  Rational activation_bytes = 2;
  const std::vector<LoweredOp>* lowered = nullptr;    ///< by op
  const std::vector<bool>* needs_gradient = nullptr;  ///< by value
  const std::vector<bool>* is_shared = nullptr;   ///< by value: held by the stage, not the segment
  const std::vector<ValueId>* storage = nullptr;  ///< by value: whose storage it is (dropout off)
  const std::vector<int>* fuse_group = nullptr;   ///< by op; -1: none
  std::vector<OpItem> segment_items;              ///< of `on layer` and `on root`
  bool derive = true;                             ///< false: only items count (textbook)
  bool offload = false;        ///< what forward keeps goes to the host when it ends
  ItemTable* items = nullptr;  ///< rows are added for what is derived
  Place place;
};

SegmentTrace build_trace(const TraceInput&, std::uint32_t segment, const RecomputePolicy&);

}  // namespace plimsoll
