// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// One segment's turn. Nothing counts between a segment's last moment and the next one's first, so
// what the one frees there and the other makes there is one tensor all along.

#include <algorithm>

#include "lang/diagnostics.hpp"
#include "runtime/pass_script.hpp"
#include "runtime/segment_frame.hpp"

namespace plimsoll::runtime {

namespace {

/// Of a value, for as long as it lives.
bool is_gradient(TensorRole role) {
  return role == TensorRole::gradient || role == TensorRole::successor;
}

/// May a tensor of this kind live on in the next segment?
bool is_handed_on(const TensorInfo& info) {
  if (info.kind == TensorInfo::neighbour) return true;
  const TensorRole role = info.tensor->role;
  return role == TensorRole::value || is_gradient(role) || role == TensorRole::item;
}

bool is_row(const TensorInfo& info) {
  return info.kind == TensorInfo::neighbour || info.tensor->role == TensorRole::item;
}

}  // namespace

TensorInfo Executor::tensor_info(const PlannedSegment& s, std::uint32_t t) const {
  TensorInfo info = s.tensors[t];
  info.micro_batch = at_.micro_batch;
  return info;
}

void Executor::pass(const PlannedChunk& chunk, std::size_t index, MicroBatch& micro_batch) {
  const PlannedSegment& s = chunk.segments[index];
  SegmentFrame& frame = micro_batch.frames[index];
  const bool whole_weights = plan_.layout.zero < 3;
  at_.segment = s.segment;
  at_.op = kNone;
  if (!whole_weights) exchange(Exchange::gather_weights, s.segment);
  begin_pass(chunk, index, micro_batch);
  play(s, frame);
  end_pass(chunk, index, frame);
  if (!whole_weights) exchange(Exchange::release_weights, s.segment);
  if (backward() && plan_.layout.zero >= 2) exchange(Exchange::reduce_gradients, s.segment);
}

/// Rows of the segments before and after that live in this one's time, as CostModel counts them.
ItemRows Executor::neighbours(const PlannedChunk& chunk, std::size_t index) const {
  ItemRows rows;
  const auto add = [&](bool earlier, bool late) {
    if (earlier ? index == 0 : index + 1 == chunk.segments.size()) return;
    const PlannedSegment& there = chunk.segments[earlier ? index - 1 : index + 1];
    for (const auto& row : plan_.spilled[backward()][late][there.trace_index]) rows.push_back(row);
  };
  if (!plan_.problem.inventory.spills.empty()) {
    add(!backward(), true);
    add(backward(), false);
  }
  return rows;
}

/// Is there a tensor of the segment before that goes on as this one?
bool Executor::take_over(TensorId& place, const TensorInfo& info) {
  for (Handed& h : handed_) {
    if (h.taken || h.info.bytes != info.bytes || h.info.stream != info.stream) continue;
    const bool row = is_row(info);
    if (row != is_row(h.info)) continue;
    if (row ? h.info.row != info.row
            : is_gradient(h.info.tensor->role) != is_gradient(info.tensor->role))
      continue;
    if (!row && h.info.value != info.value &&
        std::find(h.also.begin(), h.also.end(), info.value) == h.also.end())
      continue;
    h.taken = true;
    place = h.tensor;
    device_.hand_on(place, info);
    return true;
  }
  return false;
}

void Executor::begin_pass(const PlannedChunk& chunk, std::size_t index, MicroBatch& micro_batch) {
  const PlannedSegment& s = chunk.segments[index];
  SegmentFrame& frame = micro_batch.frames[index];
  const ItemRows rows = neighbours(chunk, index);
  std::vector<std::size_t> wanted_rows;
  std::vector<std::uint32_t> wanted;
  for (const auto& [row, bytes] : rows) {
    if (bytes == 0) continue;
    neighbours_.emplace_back(kNoTensor, row_info(TensorInfo::neighbour, row, bytes));
    if (!take_over(neighbours_.back().first, neighbours_.back().second))
      wanted_rows.push_back(neighbours_.size() - 1);
  }
  const std::vector<TraceEvent>& list = events(s);
  for (std::size_t e = 0; e < s.begin[backward()]; ++e) {
    const std::uint32_t t = list[e].index;
    if (s.tensors[t].bytes == 0) continue;
    const TensorInfo info = tensor_info(s, t);
    if (!is_handed_on(info) || !take_over(frame.tensors[t], info)) wanted.push_back(t);
  }
  // What nobody goes on with goes before anything new comes.
  for (Handed& h : handed_)
    if (!h.taken) {
      free(h.tensor);
      h.tensor = kNoTensor;
    }
  if (backward() && plan_.layout.vpp == 1) {
    if (written_) written_->grows(index, at_);
    if (!grown_) grow(s);
  }
  for (const std::size_t i : wanted_rows) neighbours_[i].first = allocate(neighbours_[i].second);
  for (const std::uint32_t t : wanted) frame.tensors[t] = allocate(tensor_info(s, t));
  for (std::size_t e = 0; e < s.begin[backward()]; ++e) {
    const std::uint32_t t = list[e].index;
    if (s.trace->tensors[t].role == TensorRole::gradient)
      frame.bind(s.tensors[t].value, frame.tensors[t]);
  }
  if (computes_) fill_copies(chunk, index, micro_batch, wanted);
  handed_.clear();
  if (computes_ && (backward() ? index + 1 == chunk.segments.size() : index == 0))
    transfer(chunk, false, frame);
}

/// A value that the segment before keeps too, or a gradient that stands for two, is copied.
void Executor::fill_copies(const PlannedChunk& chunk, std::size_t index, MicroBatch& micro_batch,
                           const std::vector<std::uint32_t>& made) {
  const PlannedSegment& s = chunk.segments[index];
  for (const std::uint32_t t : made) {
    const TensorId to = micro_batch.frames[index].tensors[t];
    const ValueId v = s.tensors[t].value;
    const TensorRole role = s.trace->tensors[t].role;
    if (role == TensorRole::value && !backward() && index > 0) {
      const TensorId from = micro_batch.frames[index - 1].value(v);
      if (from != kNoTensor && from != to) device_.copy(from, to);
    }
    if (role != TensorRole::gradient) continue;
    for (const Handed& h : handed_)
      if (h.taken && !is_row(h.info) && is_gradient(h.info.tensor->role) &&
          (h.info.value == v || std::find(h.also.begin(), h.also.end(), v) != h.also.end()))
        device_.copy(h.tensor, to);
  }
}

void Executor::play(const PlannedSegment& s, SegmentFrame& frame) {
  const std::vector<TraceEvent>& list = events(s);
  for (std::size_t e = s.begin[backward()]; e < s.end[backward()]; ++e) {
    const TraceEvent& event = list[e];
    if (event.kind == TraceEvent::run) {
      run(event, frame);
      continue;
    }
    TensorId& tensor = frame.tensors[event.index];
    if (event.kind == TraceEvent::alloc) {
      if (s.tensors[event.index].bytes == 0) continue;
      tensor = allocate(tensor_info(s, event.index));
      if (event.host && computes_) device_.fetch(frame.on_host.at(event.index), tensor);
      if (s.trace->tensors[event.index].role == TensorRole::gradient)
        frame.bind(s.tensors[event.index].value, tensor);
    } else if (tensor != kNoTensor) {
      if (computes_ && !backward() && !s.early_frees.empty()) announce_early_free(e, frame);
      if (is_gradient(s.trace->tensors[event.index].role)) frame.unbind(tensor);
      const TensorId freed = tensor;
      tensor = kNoTensor;
      if (event.host && computes_) device_.store(freed, frame.on_host[event.index] = stored_++);
      free(freed);
    }
  }
}

void Executor::announce_early_free(std::size_t event, const SegmentFrame& frame) {
  const PlannedSegment& s = frame.planned();
  for (const auto& [early, op] : s.early_frees) {
    if (early != event) continue;
    OpRun next{at_, false, &frame};
    next.at.op = op;
    const std::uint32_t t = s.trace->forward[event].index;
    device_.about_to_free(next, s.tensors[t].value, frame.tensors[t]);
  }
}

void Executor::run(const TraceEvent& event, SegmentFrame& frame) {
  const Flow& flow = plan_.problem.inventory.flow;
  at_.op = frame.planned().op(event.index);
  at_.recomputing = event.recomputing;
  const bool gradient = backward() && !event.recomputing;
  const Op& op = plan_.problem.program->ops[at_.op];
  // A residual hands its gradient on to both its inputs.
  if (gradient && op.kind == OpKind::add) {
    const TensorId out = frame.gradient(flow.storage[op.output]);
    for (const ValueId input : op.inputs) {
      const ValueId v = flow.storage[input];
      if (flow.needs_gradient[v] && !flow.is_shared[v]) frame.bind(v, out);
    }
  }
  device_.run({at_, gradient, &frame});
  if (gradient && frame.planned().successors)
    for (const ValueId input : op.inputs) {
      const ValueId v = flow.storage[input];
      if (!frame.succeeds(v)) continue;
      const TensorId successor = frame.partial(v);
      frame.unbind_value(v);
      frame.bind(v, successor);
    }
  at_.recomputing = false;
}

void Executor::transfer(const PlannedChunk& chunk, bool sends, const SegmentFrame& frame) {
  const bool towards_last = sends != backward();
  const std::int64_t other = chunk.piece + (towards_last ? 1 : -1);
  if (other < 0 || other >= plan_.layout.pp * plan_.layout.vpp) return;
  const std::vector<ValueId>& values =
      backward() ? (sends ? chunk.sent_gradients : chunk.received_gradients)
                 : (sends ? chunk.sent : chunk.received);
  if (!values.empty()) device_.transfer({at_, sends, chunk.piece, other, values, &frame});
}

void Executor::end_pass(const PlannedChunk& chunk, std::size_t index, SegmentFrame& frame) {
  const PlannedSegment& s = chunk.segments[index];
  if (computes_ && (backward() ? index == 0 : index + 1 == chunk.segments.size()))
    transfer(chunk, true, frame);
  const std::vector<TraceEvent>& list = events(s);
  for (std::size_t e = s.end[backward()]; e < list.size(); ++e) {
    const std::uint32_t t = list[e].index;
    const TensorId tensor = frame.tensors[t];
    if (tensor == kNoTensor) continue;
    frame.tensors[t] = kNoTensor;
    const TensorInfo info = tensor_info(s, t);
    std::vector<ValueId> also;
    if (is_gradient(info.tensor->role)) {
      also = frame.others_bound(tensor, info.value);
      frame.unbind(tensor);
    }
    if (is_handed_on(info))
      handed_.push_back({tensor, info, std::move(also), false});
    else
      free(tensor);
  }
  for (const auto& [tensor, info] : neighbours_) handed_.push_back({tensor, info, {}, false});
  neighbours_.clear();
}

void Executor::flush() {
  for (const Handed& h : handed_)
    if (!h.taken && h.tensor != kNoTensor) free(h.tensor);
  handed_.clear();
}

}  // namespace plimsoll::runtime
