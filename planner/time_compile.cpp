// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "planner/time_constants.hpp"
#include "planner/time_ops.hpp"

/// The program's rules as SegmentTimer keeps them: which products, bytes and collectives an op has,
/// and what of it runs a second time.
namespace plimsoll {

SegmentTimer::SegmentTimer(const Problem& problem, const TimeConstants& constants)
    : constants_(constants), path_(time_path(problem)) {
  const Program& program = *problem.program;
  const Facts& facts = problem.inventory.facts;
  const ops::Shapes shapes(program, problem.module->pool(), facts.imbalance, facts.vocab_multiple);
  fuses_ = problem.framework != nullptr &&
           std::any_of(problem.framework->entries.begin(), problem.framework->entries.end(),
                       [](const ast::Entry* e) { return e->kind == ast::EntryKind::fuse; });
  modes_ = std::max<std::size_t>(problem.inventory.recompute_modes.size(), 2);
  const Cluster& cluster = *problem.cluster;
  pcie_ = cluster.pcie.sign() > 0
              ? cluster.pcie.to_double() / static_cast<double>(std::max<std::int64_t>(
                                               cluster.pools.front().gpus_per_node, 1))
              : constants.pcie;
  if (!problem.job->target.is_zero()) target_ = problem.job->target.to_int64();
  for (std::uint32_t k = 0; k < program.class_count; ++k)
    segments_.push_back(compile(program.class_first_segment[k], problem, shapes, k));
  std::vector<std::int64_t> count(program.class_count, 0);
  for (const Segment& s : program.segments)
    if (s.is_layer) ++count[s.layer_class];
  for (std::uint32_t k = 0; k < program.class_count; ++k) segments_[k].times = count[k];
  for (const std::uint32_t root : problem.inventory.root_segments)
    segments_.push_back(compile(root, problem, shapes, problem.inventory.trace_of(root)));
  tape_.emplace(problem.module->pool(), roots_);
  values_.resize(roots_.size());
}

SegmentTimer::Slot SegmentTimer::slot(Expr e) {
  const auto it = std::find(roots_.begin(), roots_.end(), e);
  if (it != roots_.end()) return static_cast<Slot>(it - roots_.begin());
  roots_.push_back(e);
  return static_cast<Slot>(roots_.size() - 1);
}

namespace {
/// By op: does backward run it a second time? Where the trace runs a whole layer again, what it
/// kept all the same is there already.
std::vector<bool> run_again(const Program& program, const Segment& s, const SegmentTrace& trace) {
  std::vector<bool> again(s.op_count, false);
  std::set<ValueId> made, made_again;
  for (const TraceEvent& e : trace.forward)
    if (e.kind == TraceEvent::alloc && trace.tensors[e.index].role == TensorRole::value)
      made.insert(trace.tensors[e.index].value);
  for (const TraceEvent& e : trace.backward) {
    if (!e.recomputing) continue;
    if (e.kind == TraceEvent::alloc && trace.tensors[e.index].role == TensorRole::value)
      made_again.insert(trace.tensors[e.index].value);
    if (e.kind == TraceEvent::run && e.index >= s.first_op && e.index < s.first_op + s.op_count)
      again[e.index - s.first_op] = true;
  }
  if (std::find(again.begin(), again.end(), false) != again.end()) return again;
  for (std::size_t i = 0; i < again.size(); ++i) {
    const ValueId v = program.ops[s.first_op + i].output;
    again[i] = v == kNone || made.count(v) == 0 || made_again.count(v) > 0;
  }
  return again;
}
}  // namespace

SegmentTimer::TimedSegment SegmentTimer::compile(std::uint32_t segment, const Problem& problem,
                                                 const ops::Shapes& shapes, std::uint32_t trace) {
  const Program& program = *problem.program;
  const Segment& s = program.segments[segment];
  const std::vector<bool>& trained = problem.inventory.facts.trained;
  TimedSegment out;
  out.is_layer = s.is_layer;
  std::map<ValueId, std::pair<std::size_t, Expr>> readers;  ///< op and width of fused products
  for (OpId id = s.first_op; id < s.first_op + s.op_count; ++id) {
    const Op& op = program.ops[id];
    TimedOp t;
    t.kind = op.kind;
    t.top_k = static_cast<double>(std::max<std::int64_t>(op.top_k, 1));
    if (op.kind == OpKind::combine && op.experts != kNone)
      t.top_k = static_cast<double>(std::max<std::int64_t>(program.ops[op.experts].top_k, 1));
    t.in_experts = op.experts != kNone;
    t.biased = op.weights.size() > 1;
    if (op.kind == OpKind::experts) {
      out.experts = static_cast<double>(op.count);
      out.counted = op.capacity.is_zero();
    }
    ops::Variant variant = problem.inventory.facts.variant;
    for (const WeightId w : op.weights) {
      const Weight& weight = program.weights[w];
      const bool learns = w >= trained.size() || trained[w];
      if (w == op.weights.front()) {
        t.trained = learns;
        t.fp8 = weight.role == Role::linear || weight.role == Role::expert;
      }
      if (weight.tied_to != kNone) continue;
      const bool expert = weight.experts != kNone;
      auto& counts = learns ? (expert ? out.expert : out.dense)
                            : (expert ? out.frozen_expert : out.frozen_dense);
      counts.push_back(slot(shapes.weight_elements(w)));
    }
    variant.trained_weights = t.trained;
    const ops::Rule rule = ops::rule(shapes, op, variant);
    const bool joins = fuses_ && op.kind == OpKind::linear && op.split == Split::column;
    const auto first = joins ? readers.find(op.inputs.front()) : readers.end();
    if (first != readers.end()) {
      // One product, as wide as all that read the value.
      auto& [index, width] = first->second;
      width = shapes.pool().add(width, rule.products.front().n);
      out.ops[index].products.front().n = slot(width);
    } else {
      ++out.launches;
      if (op.kind == OpKind::attention) ++out.attentions;
      if (path_.precision == "fp8" && t.fp8 && !t.in_experts && !path_.torch) ++out.casts;
      for (const ops::Product& p : rule.products)
        t.products.push_back({slot(p.m), slot(p.n), slot(p.k), slot(p.count)});
      if (joins) readers[op.inputs.front()] = {out.ops.size(), rule.products.front().n};
    }
    t.attention = slot(rule.attention_flops);
    t.bytes_forward = slot(rule.bytes_forward);
    t.bytes_backward = slot(rule.bytes_backward);
    out.flops.push_back(slot(rule.flops_forward));
    out.flops.push_back(slot(rule.flops_backward));
    for (const ops::Collective& c : rule.forward_collectives) {
      t.forward.push_back({c.kind, c.group, slot(c.bytes)});
      if (c.group == ops::Group::tp) ++out.tp_collectives;
    }
    for (const ops::Collective& c : rule.backward_collectives) {
      // Sequence parallelism gathers a column-split op's input a second time for the weight
      // gradient; that gather runs beside the product of the input gradient.
      const bool again = op.split == Split::column && c.group == ops::Group::tp &&
                         c.kind == ops::CollectiveKind::all_gather;
      t.backward.push_back({c.kind, c.group, slot(c.bytes), again});
    }
    t.again.assign(modes_, false);
    out.ops.push_back(std::move(t));
  }
  for (std::size_t mode = 0; mode < modes_ && mode < problem.inventory.traces.size(); ++mode) {
    if (trace >= problem.inventory.traces[mode].size()) continue;
    const std::vector<bool> again = run_again(program, s, problem.inventory.traces[mode][trace]);
    for (std::size_t i = 0; i < again.size(); ++i) out.ops[i].again[mode] = again[i];
    const SegmentTrace& events = problem.inventory.traces[mode][trace];
    out.away.resize(modes_);
    for (const TraceEvent& e : events.forward)
      if (e.host) out.away[mode].push_back(slot(events.tensors[e.index].bytes));
  }
  if (s.is_layer)
    for (TimedOp& t : out.ops) t.again[kFullRecompute] = true;
  // PyTorch's checkpoint stops when the last of what backward needs is there: the layer's last
  // linear is needed for nothing but its input.
  if (s.is_layer && path_.stops_early)
    for (std::size_t i = out.ops.size(); i-- > 0;) {
      for (std::size_t mode = kFullRecompute; mode < modes_; ++mode) out.ops[i].again[mode] = false;
      if (!out.ops[i].products.empty()) break;
    }
  return out;
}

}  // namespace plimsoll
