// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "lang/trace_builder.hpp"

namespace plimsoll {

void TraceBuilder::emit_forward_pass() {
  out_ = &trace_.forward;
  const std::vector<int> layer = alloc_segment_items(true);
  if (in_.derive || stores_input_) hand_in();
  emit_forward(false);
  for (int t : layer) free(t);
  if (stores_input_) return;
  for (ValueId v : handed_in_) free_transient(v);
}

std::vector<int> TraceBuilder::alloc_segment_items(bool forward) {
  std::vector<int> tensors;
  for (const OpItem& item : in_.segment_items) {
    if (item.kept || !(forward ? item.forward : item.backward)) continue;
    tensors.push_back(add_item(item, kNone, {}));
    alloc(tensors.back());
  }
  return tensors;
}

void TraceBuilder::hand_in() {
  for (ValueId v : handed_in_) {
    if (!stores_input_) {
      alloc_value(v, "layer input", {}, true);
      continue;
    }
    stored_[v] = add_tensor(of_value("layer input", TensorRole::value, v), LifetimeKind::microbatch,
                            shape(v), {});
    alloc(stored_[v]);
  }
}

/// One pass over the ops. The main pass keeps what the policy retains, a recomputing pass all
/// that backward needs.
void TraceBuilder::emit_forward(bool recompute) {
  recomputing_ = recompute;
  if (in_.derive)
    for (unsigned i = 0; i < count_; ++i) emit_forward_op(i, recompute);
  else
    emit_items_only(recompute);
  if (!recompute && (in_.offload || !policy_.offloads.empty())) store_kept();
  for (ValueId v : handed_on_) free_transient(v);
  recomputing_ = false;
}

/// What backward will need goes to the host when the layer has run, all of it or what the named ops
/// save: but for what the next layer reads, which stays.
void TraceBuilder::store_kept() {
  const auto goes = [&](const Kept& k) {
    return in_.offload || matches(op(k.first_saver), policy_.offloads);
  };
  const auto stays = [&](ValueId v) {
    return v != kNone && std::find(handed_on_.begin(), handed_on_.end(), v) != handed_on_.end();
  };
  for (const Kept& k : kept_)
    if (k.tensor != kNoTensor && k.item == kNone && !stays(k.value) && goes(k))
      on_host_.push_back(k.tensor);
  for (const auto& [v, t] : stored_)
    if (in_.offload && !stays(v)) on_host_.push_back(t);
  for (const int t : on_host_) store(t);
}

void TraceBuilder::fetch_kept() {
  for (const int t : on_host_) fetch(t);
  on_host_.clear();
}

void TraceBuilder::emit_forward_op(unsigned i, bool recompute) {
  const Op& o = op(i);
  const LoweredOp& low = lowered(i);
  const bool loss = o.kind == OpKind::cross_entropy && low.accounts_for_all;
  if (loss) free_last_used(i);
  if (o.output != kNone && !is_alias(o) && !shared(storage(o.output)))
    alloc_value(storage(o.output), labels_[i] + " output", o.span, recompute);
  // A loss keeps what it made last, behind the copies that it was made from.
  std::vector<int> temporaries;
  if (loss) temporaries = alloc_temporaries(i, low.forward_temporaries, true);
  std::vector<Kept*> passing;  // made here, gone when the op has run
  for (Kept& k : kept_) {
    if (k.value != kNone || k.made_at != i || k.tensor != kNoTensor) continue;
    if (k.item != kNone && is_zero(k.bytes)) continue;
    alloc_kept(k);
    if (!recompute && !k.retained) passing.push_back(&k);
  }
  if (!loss) temporaries = alloc_temporaries(i, low.forward_temporaries, true);
  run(i);
  for (int t : temporaries) free(t);
  const auto held = held_until_.find(i);
  if (held != held_until_.end()) {
    for (int t : held->second) free(t);
    held_until_.erase(held);
  }
  for (Kept* k : passing) free_kept(*k);
  free_last_used(i);
}

std::vector<int> TraceBuilder::alloc_temporaries(unsigned i,
                                                 const std::vector<ops::Temporary>& list,
                                                 bool forward) {
  std::vector<int> tensors;
  const Op& o = op(i);
  for (const ops::Temporary& t : list) {
    if (is_zero(t.bytes)) continue;
    tensors.push_back(add_tensor({labels_[i] + ": " + t.name, t.bytes, kNone, TensorRole::temporary,
                                  kNone, segment_.first_op + i, t.name, ""},
                                 LifetimeKind::op, {}, o.span));
  }
  for (const OpItem& item : lowered(i).items) {
    if (item.kept || is_zero(item.bytes) || !(forward ? item.forward : item.backward)) continue;
    const int t = add_item(item, segment_.first_op + i, o.span);
    if (o.kind == OpKind::experts) {
      // An experts op runs until its rows are combined; backward begins there.
      const unsigned end = combine_of(i);
      if (forward) {
        held_until_[end].push_back(t);
        alloc(t);
        continue;
      }
    }
    tensors.push_back(t);
  }
  for (int t : tensors) alloc(t);
  return tensors;
}

unsigned TraceBuilder::combine_of(unsigned experts) const {
  for (unsigned i = experts; i < count_; ++i)
    if (op(i).kind == OpKind::combine &&
        program_.values[op(i).inputs[0]].experts == segment_.first_op + experts)
      return i;
  return experts;
}

void TraceBuilder::free_last_used(unsigned i) {
  for (ValueId v : op(i).inputs) {
    const ValueId s = storage(v);
    if (last_use_.at(s) == i) free_transient(s);
  }
  if (op(i).output != kNone && last_use_.at(storage(op(i).output)) == i)
    free_transient(storage(op(i).output));
}

/// derive = false: the segment is one moment with its kept items.
void TraceBuilder::emit_items_only(bool recompute) {
  for (Kept& k : kept_) {
    if (k.item == kNone || k.tensor != kNoTensor) continue;
    alloc_kept(k);
  }
  if (count_ > 0) run(count_ - 1);
  if (recompute) return;
  for (Kept& k : kept_)
    if (!k.retained) free_kept(k);
}

}  // namespace plimsoll
