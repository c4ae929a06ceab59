// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "lang/trace_builder.hpp"

namespace plimsoll {

void TraceBuilder::emit_backward_pass() {
  out_ = &trace_.backward;
  if (in_.derive)
    for (ValueId v : handed_on_)
      if (needs_gradient(v)) bind(v, new_gradient(v, "layer output", {}));
  const std::vector<int> layer = alloc_segment_items(false);
  fetch_kept();
  if (stores_input_) emit_forward(true);
  if (in_.derive)
    for (unsigned i = count_; i-- > 0;) emit_backward_op(i);
  else if (count_ > 0)
    run(0);
  for (int t : layer) free(t);
  for (Kept& k : kept_) free_kept(k);
  for (const auto& [v, t] : stored_) free(t);
  for (ValueId v : handed_in_) unbind(v);
}

int TraceBuilder::new_gradient(ValueId v, const std::string& of, Span origin, TensorRole role) {
  const int t =
      add_tensor(of_value("gradient of " + of, role, v), LifetimeKind::op, shape(v), origin);
  alloc(t);
  return t;
}

void TraceBuilder::bind(ValueId v, int tensor) {
  gradient_[v] = tensor;
  ++references_[tensor];
}

void TraceBuilder::unbind(ValueId v) {
  const auto at = gradient_.find(v);
  if (at == gradient_.end()) return;
  if (--references_[at->second] == 0) free(at->second);
  gradient_.erase(at);
}

/// Is the gradient of \a v also that of a value whose producer has not read it yet? A residual
/// hands its gradient on to both its inputs; adding to it for one would spoil the other's.
bool TraceBuilder::is_gradient_of_others(ValueId v, const Op& running) const {
  const int tensor = gradient_.at(v);
  const auto out =
      running.output == kNone ? gradient_.end() : gradient_.find(storage(running.output));
  const bool of_output = out != gradient_.end() && out->second == tensor;
  return references_.at(tensor) > (of_output ? 2 : 1);
}

void TraceBuilder::recompute_dropped(unsigned i) {
  if (policy_.kind != RecomputePolicy::drop || !matches(op(i))) return;
  recomputing_ = true;
  bool any = false;
  for (Kept& k : kept_) {
    const bool here =
        k.value == kNone ? k.made_at == i : producer_.count(k.value) && producer_.at(k.value) == i;
    if (!here || k.retained || k.tensor != kNoTensor) continue;
    alloc_kept(k);
    any = true;
  }
  if (any) {
    const std::vector<int> temporaries = alloc_temporaries(i, lowered(i).forward_temporaries, true);
    run(i);
    for (int t : temporaries) free(t);
  }
  recomputing_ = false;
}

/// Output-discarding recomputation: what op \a i saved and does not have is made by its makers.
void TraceBuilder::recompute_discarded(unsigned i) {
  std::vector<ValueId> passing;
  for (const SavedTensor& s : lowered(i).saved) {
    if (s.value == kNone || !s.dtype.empty() || is_zero(s.bytes)) continue;
    const Kept* k = natural_kept(storage(s.value));
    if (k != nullptr && k->discarded && k->tensor == kNoTensor) make_again(k->value, passing);
  }
  for (const ValueId v : passing) free_transient(v);
}

void TraceBuilder::make_again(ValueId v, std::vector<ValueId>& passing) {
  const auto made = producer_.find(v);
  Kept* k = natural_kept(v);
  if ((k != nullptr && k->tensor != kNoTensor) || transient_.count(v) || stored_.count(v) ||
      shared(v) || made == producer_.end())
    return;
  const unsigned maker = made->second;
  for (const ValueId input : op(maker).inputs) make_again(storage(input), passing);
  recomputing_ = true;
  if (k != nullptr) {
    alloc_kept(*k);
  } else {
    alloc_value(v, labels_[maker] + " output", op(maker).span, false);
    passing.push_back(v);
  }
  const std::vector<int> temporaries =
      alloc_temporaries(maker, lowered(maker).forward_temporaries, true);
  run(maker);
  for (int t : temporaries) free(t);
  recomputing_ = false;
}

void TraceBuilder::emit_backward_op(unsigned i) {
  const Op& o = op(i);
  recompute_discarded(i);
  recompute_dropped(i);
  const bool flows = o.output == kNone || needs_gradient(o.output);
  if (flows && !is_alias(o)) {
    std::vector<int> temporaries = alloc_temporaries(i, lowered(i).backward_temporaries, false);
    const bool loss = o.kind == OpKind::cross_entropy && lowered(i).accounts_for_all;
    if (!loss) make_input_gradients(i, temporaries);
    run(i);
    for (int t : temporaries) free(t);
    for (const auto& [v, t] : successors_) {
      unbind(v);
      bind(v, t);
    }
    successors_.clear();
    if (o.output != kNone) unbind(storage(o.output));
    free_saved_by(i);
    if (loss) make_input_gradients(i, temporaries);
  } else {
    free_saved_by(i);
  }
}

void TraceBuilder::free_saved_by(unsigned i) {
  for (Kept& k : kept_)
    if (k.first_saver == i) free_kept(k);
}

void TraceBuilder::make_input_gradients(unsigned i, std::vector<int>& temporaries) {
  const Op& o = op(i);
  const int group = (*in_.fuse_group)[segment_.first_op + i];
  std::vector<ValueId> done;
  for (ValueId input : o.inputs) {
    const ValueId v = storage(input);
    if (!needs_gradient(v) || std::find(done.begin(), done.end(), v) != done.end()) continue;
    done.push_back(v);
    const std::string of =
        producer_.count(v) ? labels_[producer_.at(v)] + " output" : "layer input";
    const bool spoils = gradient_.count(v) && is_gradient_of_others(v, o);
    if (shared(v)) {  // added to the gradient that the stage holds
      temporaries.push_back(new_gradient(v, of, o.span, TensorRole::partial));
    } else if (spoils) {
      successors_.emplace_back(v, new_gradient(v, of + " (to add)", o.span, TensorRole::successor));
    } else if (o.kind == OpKind::add) {
      const auto out = gradient_.find(storage(o.output));
      if (!gradient_.count(v) && out != gradient_.end()) bind(v, out->second);
    } else if (!gradient_.count(v)) {
      bind(v, new_gradient(v, of, o.span));
      made_by_group_[v] = group;
    } else if (group < 0 || made_by_group_[v] != group) {
      temporaries.push_back(new_gradient(v, of + " (to add)", o.span, TensorRole::partial));
    }
  }
}

}  // namespace plimsoll
