// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/stage_plan.hpp"

#include <algorithm>

#include "runtime/state_pieces.hpp"

namespace plimsoll::runtime {

namespace {

void sort_unique(std::vector<ValueId>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace

/// The values of a segment, by those of the one that stands for its class.
class StagePlan::OwnValues {
 public:
  explicit OwnValues(const Problem& p)
      : program_(*p.program),
        storage_(p.inventory.flow.storage),
        own_(p.program->values.size(), kNone) {}

  void set(const Segment& of_class, const Segment& own) {
    for (const ValueId v : set_) own_[v] = kNone;
    set_.clear();
    if (of_class.first_op == own.first_op) return;
    for (OpId i = 0; i < own.op_count; ++i) {
      const Op& a = program_.ops[of_class.first_op + i];
      const Op& b = program_.ops[own.first_op + i];
      pair(a.output, b.output);
      for (std::size_t k = 0; k < a.inputs.size(); ++k) pair(a.inputs[k], b.inputs[k]);
    }
  }

  /// What ops neither read nor make is its own.
  ValueId of(ValueId v) const { return v == kNone || own_[v] == kNone ? v : own_[v]; }

 private:
  void pair(ValueId a, ValueId b) {
    if (a == kNone) return;
    ValueId& own = own_[storage_[a]];
    if (own != kNone) return;
    own = storage_[b];
    set_.push_back(storage_[a]);
  }

  const Program& program_;
  const std::vector<ValueId>& storage_;
  std::vector<ValueId> own_;  ///< kNone: as it is
  std::vector<ValueId> set_;
};

StagePlan::StagePlan(const Problem& p, const Layout& l, std::int64_t rank)
    : problem(p), layout(l), place(place_of(l, rank)), model(p) {
  model.set(l);
  cost = model.stage(place.stage);
  slots = plimsoll::slots(l.schedule, l.pp, l.vpp, l.microbatches, place.stage);
  streams.emplace("", 0);
  for (const Item& item : p.inventory.items)
    row_streams_.push_back(
        streams.try_emplace(item.stream, static_cast<StreamId>(streams.size())).first->second);
  plan_chunks();
  plan_states();
  plan_shared();
  const std::size_t traces = p.inventory.traces.front().size();
  for (const bool backward : {false, true})
    for (const bool late : {false, true})
      for (std::uint32_t t = 0; t < traces; ++t)
        spilled[backward][late].push_back(model.spilled(t, backward, late));
}

void StagePlan::plan_chunks() {
  const Program& program = *problem.program;
  const Flow& flow = problem.inventory.flow;
  const auto crossing = [&](std::uint32_t segment) {
    std::vector<ValueId> values;
    for (const ValueId v : program.segments[segment].carried) values.push_back(flow.storage[v]);
    sort_unique(values);
    return values;
  };
  const auto with_gradient = [&](const std::vector<ValueId>& values) {
    std::vector<ValueId> some;
    for (const ValueId v : values)
      if (flow.needs_gradient[v]) some.push_back(v);
    return some;
  };
  OwnValues own_values(problem);
  for (std::size_t k = 0; k < cost.chunks.size(); ++k) {
    PlannedChunk chunk;
    chunk.piece = piece_of(layout, place.stage, static_cast<std::int64_t>(k));
    for (const Run& run : cost.chunks[k].runs)
      for (std::uint32_t i = 0; i < run.count; ++i)
        chunk.segments.push_back(plan_segment(run, run.first_segment + i, own_values));
    if (!chunk.segments.empty()) {
      const std::uint32_t first = chunk.segments.front().segment;
      if (first > 0) chunk.received = crossing(first - 1);
      chunk.sent = crossing(chunk.segments.back().segment);
      chunk.received_gradients = with_gradient(chunk.sent);
      chunk.sent_gradients = with_gradient(chunk.received);
    }
    chunks.push_back(std::move(chunk));
  }
}

PlannedSegment StagePlan::plan_segment(const Run& run, std::uint32_t segment, OwnValues& values) {
  const Program& program = *problem.program;
  const Inventory& inventory = problem.inventory;
  const Segment& own = program.segments[segment];
  const Segment& of_class =
      own.is_layer ? program.segments[program.class_first_segment[own.layer_class]] : own;
  PlannedSegment s;
  s.segment = segment;
  s.trace_index = run.trace;
  s.mode = run.mode;
  s.trace = &inventory.traces[run.mode][run.trace];
  s.class_op = of_class.first_op;
  s.first_op = own.first_op;
  values.set(of_class, own);
  const std::vector<std::int64_t>& bytes = model.tensors(run.mode, run.trace);
  s.tensors.reserve(s.trace->tensors.size());
  for (std::size_t i = 0; i < s.trace->tensors.size(); ++i) {
    const TraceTensor& t = s.trace->tensors[i];
    s.successors = s.successors || t.role == TensorRole::successor;
    TensorInfo info = row_info(TensorInfo::trace, t.item, bytes[i]);
    info.tensor = &t;
    info.value = values.of(t.value);
    info.op = t.op == kNone ? kNone : s.op(t.op);
    info.segment = segment;
    s.tensors.push_back(info);
  }
  for (const bool backward : {false, true}) {
    const std::vector<TraceEvent>& events = backward ? s.trace->backward : s.trace->forward;
    std::size_t begin = 0, end = events.size();
    const auto hands = [&](const TraceEvent& e, TraceEvent::Kind kind) {
      return e.kind == kind && !e.host;
    };
    while (begin < end && hands(events[begin], TraceEvent::alloc)) ++begin;
    while (end > begin && hands(events[end - 1], TraceEvent::free)) --end;
    s.begin[backward] = begin;
    s.end[backward] = end;
  }
  const std::vector<TraceEvent>& forward = s.trace->forward;
  OpId next = kNone;
  for (std::size_t e = s.end[0]; e-- > s.begin[0];) {
    if (forward[e].kind == TraceEvent::run) next = forward[e].index;
    if (forward[e].kind != TraceEvent::free || forward[e].host || next == kNone) continue;
    const ValueId freed = s.trace->tensors[forward[e].index].value;
    for (const ValueId v : program.ops[next].inputs)
      if (freed != kNone && inventory.flow.storage[v] == freed &&
          s.trace->tensors[forward[e].index].role == TensorRole::value)
        s.early_frees.push_back({e, s.op(next)});
  }
  return s;
}

TensorInfo StagePlan::row_info(TensorInfo::Kind kind, std::uint32_t row, std::int64_t bytes) const {
  TensorInfo info;
  info.kind = kind;
  info.bytes = bytes;
  info.row = row;
  if (row != kNone) info.category = item(row).category;
  info.stream = stream(row);
  return info;
}

void StagePlan::set_rank(std::int64_t rank) {
  const auto at = place_of(layout, rank);
  PLIMSOLL_ASSERT(at.stage == place.stage);
  place = at;
  plan_states();
}

void StagePlan::plan_states() {
  states.clear();
  grown_state.clear();
  for (const StaticBytes& st : cost.statics) {
    const Item& row = item(st.item);
    const bool beside =
        row.lifetime.kind == LifetimeKind::span && is_beside_steps(row.lifetime.from);
    if (row.outside || beside || st.bytes.live == 0 ||
        row.lifetime.kind == LifetimeKind::microbatch)
      continue;
    PlannedState state;
    state.item = &row;
    state.row = st.item;
    state.when = presence(row.lifetime);
    state.grows = state.when.accumulates && row.place.kind != Place::stage;
    state.total = st.bytes.live;
    state.pieces = state_pieces(problem, layout, place, cost, row, st.bytes.live, model.env());
    states.push_back(std::move(state));
  }
  for (const ItemRows& rows : cost.growing)
    for (const auto& [grown, bytes] : rows)
      for (std::size_t i = 0; i < states.size(); ++i)
        if (states[i].grows && states[i].item->name == item(grown).name &&
            states[i].item->category == item(grown).category)
          grown_state.try_emplace(grown, i);
}

void StagePlan::plan_shared() {
  for (const StaticBytes& st : cost.statics)
    if (item(st.item).lifetime.kind == LifetimeKind::microbatch && st.bytes.live > 0 &&
        !item(st.item).outside)
      shared.push_back({kNone, st.item, st.bytes.live, 0});
  std::int64_t first = INT64_MAX, last = -1;
  for (const PlannedChunk& c : chunks)
    for (const PlannedSegment& s : c.segments) {
      first = std::min<std::int64_t>(first, s.segment);
      last = std::max<std::int64_t>(last, s.segment);
    }
  const ExprPool& pool = problem.module->pool();
  for (const SharedValue& v : problem.inventory.shared) {
    if (v.last_segment < first || v.first_segment > last) continue;
    shared.push_back({v.value, kNone, pool.eval(v.bytes, model.env()).to_int64(),
                      pool.eval(v.gradient_bytes, model.env()).to_int64()});
  }
}

}  // namespace plimsoll::runtime
