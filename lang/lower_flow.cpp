// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include <algorithm>

#include "lang/lowering.hpp"

namespace plimsoll {

void Lowering::find_flow() {
  for (std::uint32_t c = 0; c < program_.class_count; ++c)
    representatives_.push_back(program_.class_first_segment[c]);
  for (std::uint32_t s = 0; s < program_.segments.size(); ++s)
    if (!program_.segments[s].is_layer) {
      representatives_.push_back(s);
      inventory_.root_segments.push_back(s);
    }
  find_storages();
  find_gradients();
  find_shared();
  find_boundaries();
}

Place Lowering::place_of(std::uint32_t segment) const {
  const Segment& s = program_.segments[segment];
  if (s.is_layer) return {Place::layer_class, s.layer_class};
  return {Place::root_segment, segment};
}

/// A dropout that does nothing hands its input on.
void Lowering::find_storages() {
  storage_.resize(program_.values.size());
  for (ValueId v = 0; v < storage_.size(); ++v) storage_[v] = v;
  for (const Op& op : program_.ops) {
    const bool off = op.kind == OpKind::dropout &&
                     (op.p == 0 || (op.p < 0 && !inventory_.facts.variant.dropout));
    if (off) storage_[op.output] = storage_[op.inputs[0]];
  }
  fuse_group_.assign(program_.ops.size(), -1);
  for (OpId o = 0; o < program_.ops.size(); ++o) {
    const Op& op = program_.ops[o];
    if (op.kind != OpKind::linear || op.name.empty()) continue;
    for (std::size_t g = 0; g < fuse_.size(); ++g)
      if (std::find(fuse_[g].begin(), fuse_[g].end(), op.name) != fuse_[g].end())
        fuse_group_[o] = static_cast<int>(g);
  }
}

/// A gradient flows to a value if something trained stands before it. The segment that stands for
/// all layers of a class is handed what any of them is: under a frozen embedding the first layer's
/// input has no gradient, and the others' have.
void Lowering::find_gradients() {
  flow_gradients();
  bool more = false;
  for (std::uint32_t s = 1; s < program_.segments.size(); ++s) {
    const Segment& segment = program_.segments[s];
    if (!segment.is_layer) continue;
    const std::uint32_t first = program_.class_first_segment[segment.layer_class];
    if (first == s || first == 0) continue;
    const std::vector<ValueId>& here = program_.segments[s - 1].carried;
    const std::vector<ValueId>& there = program_.segments[first - 1].carried;
    for (std::size_t i = 0; i < std::min(here.size(), there.size()); ++i) {
      if (!needs_gradient_[here[i]] || needs_gradient_[there[i]]) continue;
      handed_gradient_.push_back(there[i]);
      more = true;
    }
  }
  if (more) flow_gradients();
}

void Lowering::flow_gradients() {
  needs_gradient_.assign(program_.values.size(), false);
  for (ValueId v : handed_gradient_) needs_gradient_[v] = true;
  const Job& job = *in_.job;
  for (const Op& op : program_.ops) {
    if (op.output == kNone) continue;
    bool needs = needs_gradient_[op.output];
    for (WeightId w : op.weights) needs = needs || inventory_.facts.trained[w];
    for (ValueId v : op.inputs) needs = needs || needs_gradient_[v];
    // An adapter trains beside the frozen weight.
    needs =
        needs || std::find(job.adapt.on.begin(), job.adapt.on.end(), op.name) != job.adapt.on.end();
    needs_gradient_[op.output] = needs;
  }
  for (ValueId v = 0; v < storage_.size(); ++v)
    if (needs_gradient_[v]) needs_gradient_[storage_[v]] = true;
}

/// Values read by more than the next segment: the stage holds them, once a micro-batch.
void Lowering::find_shared() {
  const std::size_t n = program_.values.size();
  std::vector<std::uint32_t> made(n, kNone), first(n, kNone), last(n, kNone);
  for (std::uint32_t s = 0; s < program_.segments.size(); ++s) {
    const Segment& segment = program_.segments[s];
    for (OpId o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
      const Op& op = program_.ops[o];
      for (ValueId input : op.inputs) {
        const ValueId v = storage_[input];
        if (made[v] == s) continue;
        if (first[v] == kNone) first[v] = s;
        last[v] = s;
      }
      if (op.output != kNone && made[storage_[op.output]] == kNone) made[storage_[op.output]] = s;
    }
  }
  is_shared_.assign(n, false);
  for (ValueId v = 0; v < n; ++v) {
    if (first[v] == kNone || made[v] == kNone) continue;
    if (first[v] == last[v] && first[v] == made[v] + 1) continue;
    is_shared_[v] = true;
    const Expr bytes =
        pool_.ceil(pool_.mul(shapes_->elements(v), constant(inventory_.facts.activation_bytes)));
    inventory_.shared.push_back(
        {v, made[v], last[v], bytes, needs_gradient_[v] ? bytes : constant(0)});
  }
}

void Lowering::find_boundaries() {
  Expr widest = constant(0);
  std::map<std::vector<std::uint32_t>, Expr> known;  // by what the sum is made of
  for (const Segment& s : program_.segments) {
    std::vector<std::uint32_t> key;
    for (ValueId v : s.carried) key.push_back(shapes_->elements(v).id);
    std::sort(key.begin(), key.end());
    const auto [at, is_new] = known.try_emplace(key, constant(0));
    if (is_new) {
      for (std::uint32_t id : key) at->second = pool_.add(at->second, Expr{id});
      widest = pool_.max(widest, at->second);
    }
    inventory_.boundary_bytes.push_back(
        pool_.ceil(pool_.mul(at->second, constant(inventory_.facts.activation_bytes))));
  }
  scope_.set("carried", number(widest));
}

}  // namespace plimsoll
