// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "lang/diagnostics.hpp"
#include "lang/trace.hpp"

/// Builds one trace; private to lang/trace*.cpp.
namespace plimsoll {

inline constexpr int kNoTensor = -1;

/// A tensor that some op of the segment needs again in its backward.
struct Kept {
  std::string name;
  ValueId value = kNone;   ///< natural: the value's own storage
  ValueId copied = kNone;  ///< a copy in another dtype of this value
  std::string part, dtype;
  Expr bytes, condition;
  unsigned first_saver = 0;    ///< position; its backward is the last to read it
  unsigned made_at = 0;        ///< position whose forward makes it (own tensors and copies)
  std::uint32_t item = kNone;  ///< explicit line items bring their row
  bool of_segment = false;     ///< of `on layer`: belongs to no op
  bool retained = true;        ///< forward leaves it live under the policy
  bool discarded = false;      ///< made again where backward first needs it
  int tensor = kNoTensor;      ///< while it is live
};

class TraceBuilder {
 public:
  TraceBuilder(const TraceInput& in, std::uint32_t segment, const RecomputePolicy& policy)
      : in_(in),
        program_(*in.program),
        pool_(in.shapes->pool()),
        segment_(program_.segments[segment]),
        policy_(policy),
        count_(segment_.op_count) {}

  SegmentTrace build() {
    find_labels();
    find_uses();
    find_kept();
    apply_policy();
    apply_discards();
    emit_forward_pass();
    emit_backward_pass();
    return std::move(trace_);
  }

 private:
  const Op& op(unsigned position) const { return program_.ops[segment_.first_op + position]; }
  const LoweredOp& lowered(unsigned position) const {
    return (*in_.lowered)[segment_.first_op + position];
  }
  ValueId storage(ValueId v) const { return (*in_.storage)[v]; }
  bool shared(ValueId v) const { return (*in_.is_shared)[v]; }
  bool needs_gradient(ValueId v) const { return (*in_.needs_gradient)[v]; }
  bool is_alias(const Op& o) const {
    return o.output != kNone && !o.inputs.empty() && storage(o.output) == storage(o.inputs[0]);
  }
  /// Inside an experts op whose line items account for everything.
  bool accounted_elsewhere(ValueId v) const {
    const OpId experts = program_.values[v].experts;
    return experts != kNone && (*in_.lowered)[experts].accounts_for_all;
  }
  Expr natural_bytes(ValueId v) const {
    return pool_.ceil(pool_.mul(in_.shapes->elements(v), pool_.constant(in_.activation_bytes)));
  }
  std::vector<Expr> shape(ValueId v) const {
    const Value& value = program_.values[v];
    return {in_.shapes->tokens(value), in_.shapes->width(value)};
  }
  bool is_zero(Expr e) const { return pool_.is_constant(e) && pool_.value(e).is_zero(); }
  bool is_one(Expr e) const { return pool_.is_constant(e) && pool_.value(e) == Rational(1); }
  bool matches(const Op& o) const { return matches(o, policy_.words); }
  bool matches(const Op& o, const std::vector<std::string>& words) const {
    const auto has = [&](std::string_view word) {
      return !word.empty() && std::find(words.begin(), words.end(), word) != words.end();
    };
    return has(name(o.kind)) || has(o.name) || (has(kResidualNorms) && is_residual_norm(o)) ||
           (has(kExpertActivations) && o.experts != kNone && is_activation(o)) ||
           (has(kExpertFirstLinears) && o.experts != kNone && o.kind == OpKind::linear &&
            o.name != "down") ||
           (has(has_experts_ ? kSharedExperts : kDenseMlp) && is_of_feed_forward(o));
  }
  static bool is_activation(const Op& o) {
    return o.kind == OpKind::glu || o.kind == OpKind::gelu || o.kind == OpKind::relu ||
           o.kind == OpKind::squared_relu || o.kind == OpKind::silu || o.kind == OpKind::tanh;
  }
  /// Of the layer's input, or of a sum.
  bool is_residual_norm(const Op& o) const {
    if (o.kind != OpKind::rmsnorm && o.kind != OpKind::layernorm) return false;
    const auto made = producer_.find(storage(o.inputs[0]));
    return made == producer_.end() || op(made->second).kind == OpKind::add;
  }
  /// Of a feed-forward that stands outside experts.
  static bool is_of_feed_forward(const Op& o) {
    return o.experts == kNone &&
           (is_activation(o) ||
            (o.kind == OpKind::linear && (o.name == "gate" || o.name == "up" || o.name == "down")));
  }

  // --- preparation -------------------------------------------------------------------------------

  void find_labels() {
    std::unordered_map<std::string, int> seen;
    for (unsigned i = 0; i < count_; ++i) {
      std::string label = op(i).name.empty() ? std::string(name(op(i).kind)) : op(i).name;
      const int nth = ++seen[label];
      if (nth > 1) label += fmt::format(" {}", nth);
      labels_.push_back(std::move(label));
    }
  }

  void find_uses() {
    for (unsigned i = 0; i < count_; ++i)
      has_experts_ = has_experts_ || op(i).kind == OpKind::experts;
    for (ValueId v : segment_.inputs)
      if (!shared(storage(v))) handed_in_.push_back(storage(v));
    for (unsigned i = 0; i < count_; ++i) {
      for (ValueId v : op(i).inputs) last_use_[storage(v)] = i;
      if (op(i).output != kNone && !is_alias(op(i))) {
        producer_[storage(op(i).output)] = i;
        last_use_.try_emplace(storage(op(i).output), i);
      }
    }
    for (ValueId v : segment_.carried)
      if (!shared(storage(v)) && producer_.count(storage(v))) handed_on_.push_back(storage(v));
    const auto unique = [](std::vector<ValueId>& list) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    };
    unique(handed_in_);
    unique(handed_on_);
    for (ValueId v : handed_on_) last_use_[v] = count_;
  }

  void find_kept() {
    std::unordered_map<std::string, std::size_t> index;
    for (unsigned i = 0; i < count_; ++i) {
      for (const SavedTensor& s : lowered(i).saved) {
        if (is_zero(s.bytes)) continue;
        const ValueId v = s.value == kNone ? kNone : storage(s.value);
        const bool natural = v != kNone && s.dtype.empty();
        if (natural && shared(v)) continue;
        const std::string key =
            v == kNone ? fmt::format("o{}:{}", i, s.name) : fmt::format("v{}:{}", v, s.dtype);
        const auto [at, is_new] = index.try_emplace(key, kept_.size());
        if (is_new) {
          Kept k;
          k.name = fmt::format("{} {}", labels_[i], s.name);
          k.value = natural ? v : kNone;
          k.copied = natural ? kNone : v;
          k.part = s.name;
          k.dtype = s.dtype;
          k.bytes = s.bytes;
          k.condition = s.condition;
          k.first_saver = k.made_at = i;
          kept_.push_back(std::move(k));
        } else {
          Kept& k = kept_[at->second];
          k.bytes = pool_.max(k.bytes, s.bytes);
          k.condition = pool_.max(k.condition, s.condition);
        }
      }
      for (const OpItem& item : lowered(i).items)
        if (item.kept) kept_.push_back(own_item(item, i));
    }
    for (const OpItem& item : in_.segment_items)
      if (item.kept) {
        kept_.push_back(own_item(item, 0));
        kept_.back().of_segment = true;
      }
  }

  Kept own_item(const OpItem& item, unsigned position) const {
    Kept k;
    k.name = "";
    k.bytes = item.bytes;
    k.condition = pool_.constant(1);
    k.first_saver = k.made_at = position;
    k.item = item.item;
    return k;
  }

  void apply_policy() {
    for (Kept& k : kept_) {
      switch (policy_.kind) {
        case RecomputePolicy::none:
          break;
        case RecomputePolicy::full:
          k.retained = false;
          break;
        case RecomputePolicy::drop:
          k.retained = !is_dropped(k);
          break;
        case RecomputePolicy::keep:
          // Copies of its inputs are no result of an op.
          k.retained =
              k.value == kNone
                  ? k.of_segment || (matches(op(k.made_at)) && !k.name.ends_with("_expanded"))
                  : producer_.count(k.value) && matches(op(producer_.at(k.value)));
          break;
      }
    }
    stores_input_ = policy_.kind == RecomputePolicy::full || policy_.kind == RecomputePolicy::keep;
    if (policy_.kind != RecomputePolicy::keep) return;
    // Outputs that are kept although no op saves them.
    for (unsigned i = 0; i < count_; ++i) {
      const ValueId v = op(i).output == kNone ? kNone : storage(op(i).output);
      if (v == kNone || !matches(op(i)) || shared(v) || natural_kept(v)) continue;
      Kept k;
      k.name = labels_[i] + " output";
      k.value = v;
      k.bytes = natural_bytes(v);
      k.condition = pool_.constant(1);
      k.first_saver = k.made_at = i;
      kept_.push_back(std::move(k));
    }
  }

  /// Outputs that go though others save them, and what making them again will read.
  void apply_discards() {
    if (policy_.discards.empty()) return;
    std::vector<ValueId> read;
    for (Kept& k : kept_) {
      const auto made = k.value == kNone ? producer_.end() : producer_.find(k.value);
      if (made == producer_.end() || !matches(op(made->second), policy_.discards) ||
          std::find(handed_on_.begin(), handed_on_.end(), k.value) != handed_on_.end())
        continue;
      k.retained = false;
      k.discarded = true;
      read.push_back(k.value);
    }
    while (!read.empty()) {
      const unsigned maker = producer_.at(read.back());
      read.pop_back();
      for (const ValueId input : op(maker).inputs) {
        const ValueId v = storage(input);
        const auto made = producer_.find(v);
        if (made != producer_.end() && matches(op(made->second), policy_.discards)) {
          if (natural_kept(v) == nullptr) read.push_back(v);
          continue;
        }
        if (shared(v)) continue;
        if (Kept* k = natural_kept(v)) {
          k->first_saver = std::min(k->first_saver, maker);
          k->condition = pool_.constant(1);
          k->bytes = natural_bytes(v);
          continue;
        }
        Kept k;
        k.name = made == producer_.end() ? "layer input" : labels_[made->second] + " output";
        k.value = v;
        k.bytes = natural_bytes(v);
        k.condition = pool_.constant(1);
        k.first_saver = maker;
        k.made_at = made == producer_.end() ? 0 : made->second;
        kept_.push_back(std::move(k));
      }
    }
  }

  /// Under drop: what only the named ops made and saved for themselves.
  bool is_dropped(const Kept& k) const {
    if (k.of_segment) return false;
    if (k.value == kNone) return matches(op(k.made_at));
    const auto made = producer_.find(k.value);
    if (made == producer_.end() || !matches(op(made->second))) return false;
    for (unsigned i = 0; i < count_; ++i)
      for (const SavedTensor& s : lowered(i).saved)
        if (s.value != kNone && s.dtype.empty() && storage(s.value) == k.value && !matches(op(i)))
          return false;
    return true;
  }

  Kept* natural_kept(ValueId v) {
    for (Kept& k : kept_)
      if (k.value == v) return &k;
    return nullptr;
  }

  // --- tensors and events
  // --------------------------------------------------------------------------

  /// \a what says what it holds; its row is found or made unless it is an explicit item's.
  int add_tensor(TraceTensor what, LifetimeKind lifetime, std::vector<Expr> dims, Span origin) {
    if (what.item == kNone)
      what.item = in_.items->row(in_.place, what.name, Category::activations, lifetime, what.bytes,
                                 std::move(dims), "derived from the program's ops", origin);
    trace_.tensors.push_back(std::move(what));
    return static_cast<int>(trace_.tensors.size() - 1);
  }
  TraceTensor of_value(const std::string& tensor_name, TensorRole role, ValueId v) const {
    return {tensor_name, natural_bytes(v), kNone, role, v, kNone, "", ""};
  }
  int add_item(const OpItem& item, OpId o, Span origin) {
    return add_tensor({"", item.bytes, item.item, TensorRole::item, kNone, o, "", ""},
                      LifetimeKind::op, {}, origin);
  }
  void alloc(int tensor) {
    out_->push_back({TraceEvent::alloc, static_cast<std::uint32_t>(tensor), recomputing_});
  }
  void free(int tensor) {
    out_->push_back({TraceEvent::free, static_cast<std::uint32_t>(tensor), recomputing_});
  }
  /// A tensor that goes to host memory with its content, and one that comes back.
  void store(int tensor) {
    out_->push_back({TraceEvent::free, static_cast<std::uint32_t>(tensor), false, true});
  }
  void fetch(int tensor) {
    out_->push_back({TraceEvent::alloc, static_cast<std::uint32_t>(tensor), false, true});
  }
  void run(unsigned position) {
    out_->push_back({TraceEvent::run, segment_.first_op + position, recomputing_});
  }

  void alloc_kept(Kept& k) {
    const Op& o = op(std::min(k.made_at, count_ - 1));
    TraceTensor what{k.name, k.bytes, k.item, TensorRole::value, k.value, kNone, k.part, k.dtype};
    if (k.value == kNone) {
      what.role = k.item == kNone ? TensorRole::saved : TensorRole::item;
      what.value = k.copied;
      if (!k.of_segment) what.op = segment_.first_op + k.made_at;
    }
    k.tensor = add_tensor(std::move(what), LifetimeKind::microbatch,
                          k.value == kNone ? std::vector<Expr>{} : shape(k.value), o.span);
    alloc(k.tensor);
  }
  void free_kept(Kept& k) {
    if (k.tensor == kNoTensor) return;
    free(k.tensor);
    k.tensor = kNoTensor;
  }

  /// Makes a value: the part that is saved, and the part that goes after its last use.
  void alloc_value(ValueId v, const std::string& value_name, Span origin, bool all_retained) {
    Kept* k = natural_kept(v);
    if (k && k->tensor != kNoTensor) return;  // kept from forward, or the stored input
    if (stored_.count(v)) return;
    const bool retained = k && (all_retained || k->retained);
    if (retained) alloc_kept(*k);
    if ((retained && is_one(k->condition)) || accounted_elsewhere(v)) return;
    TraceTensor what = of_value(value_name, TensorRole::value, v);
    if (retained) what.bytes = pool_.mul(what.bytes, pool_.logical_not(k->condition));
    transient_[v] = add_tensor(std::move(what), LifetimeKind::op, shape(v), origin);
    alloc(transient_[v]);
  }
  void free_transient(ValueId v) {
    const auto at = transient_.find(v);
    if (at == transient_.end()) return;
    free(at->second);
    transient_.erase(at);
  }

  // --- forward: trace_forward.cpp
  // -------------------------------------------------------------------------------------
  void emit_forward_pass();
  std::vector<int> alloc_segment_items(bool forward);
  void hand_in();
  /// One pass over the ops. The main pass keeps what the policy retains, a recomputing pass all
  /// that backward needs.
  void emit_forward(bool recompute);
  void emit_forward_op(unsigned i, bool recompute);
  std::vector<int> alloc_temporaries(unsigned i, const std::vector<ops::Temporary>& list,
                                     bool forward);
  unsigned combine_of(unsigned experts) const;
  void store_kept();
  void fetch_kept();
  void free_last_used(unsigned i);
  /// derive = false: the segment is one moment with its kept items.
  void emit_items_only(bool recompute);

  // --- backward: trace_backward.cpp
  // ------------------------------------------------------------------------------------
  void emit_backward_pass();
  int new_gradient(ValueId v, const std::string& of, Span origin,
                   TensorRole role = TensorRole::gradient);
  void bind(ValueId v, int tensor);
  void unbind(ValueId v);
  bool is_gradient_of_others(ValueId v, const Op& running) const;
  void recompute_dropped(unsigned i);
  void recompute_discarded(unsigned i);
  void make_again(ValueId v, std::vector<ValueId>& passing);
  void emit_backward_op(unsigned i);
  void free_saved_by(unsigned i);
  void make_input_gradients(unsigned i, std::vector<int>& temporaries);

  const TraceInput& in_;
  const Program& program_;
  ExprPool& pool_;
  const Segment& segment_;
  const RecomputePolicy& policy_;
  const unsigned count_;

  SegmentTrace trace_;
  std::vector<TraceEvent>* out_ = nullptr;
  bool recomputing_ = false;
  bool stores_input_ = false, has_experts_ = false;

  std::vector<std::string> labels_;
  std::vector<ValueId> handed_in_, handed_on_;
  std::unordered_map<ValueId, unsigned> last_use_, producer_;
  std::vector<Kept> kept_;
  std::unordered_map<ValueId, int> transient_;
  std::map<ValueId, int> stored_;
  std::vector<int> on_host_;  ///< tensors that wait there between forward and backward
  std::map<unsigned, std::vector<int>> held_until_;
  std::unordered_map<ValueId, int> gradient_, made_by_group_;
  std::unordered_map<int, int> references_;
  std::vector<std::pair<ValueId, int>> successors_;  ///< of the running op: value, tensor
};

}  // namespace plimsoll
