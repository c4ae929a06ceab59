// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/executor.hpp"

#include <algorithm>

#include "lang/diagnostics.hpp"
#include "runtime/pass_script.hpp"
#include "runtime/segment_frame.hpp"

namespace plimsoll::runtime {

std::string_view name(StepPart part) {
  switch (part) {
    case StepPart::forward:
      return "forward";
    case StepPart::backward:
      return "backward";
    case StepPart::update:
      return "optimizer step";
    case StepPart::between:
      return "between steps";
  }
  return "";
}

OutOfMemory::OutOfMemory(const TensorInfo& what, std::string tensor_name, std::int64_t live_bytes,
                         std::int64_t reserved_bytes)
    : std::runtime_error("out of memory"),
      info(what),
      tensor(std::move(tensor_name)),
      live(live_bytes),
      reserved(reserved_bytes) {}

Executor::Executor(const StagePlan& plan, Device& device)
    : plan_(plan), device_(device), computes_(device.computes()) {
  states_.resize(plan.states.size());
  grown_bytes_.resize(plan.states.size());
  alive_.resize(plan.chunks.size());
  begun_.resize(plan.chunks.size());
  if (device.only_serves()) scripts_.resize(plan.chunks.size());
}

Executor::~Executor() = default;

void Executor::start() { enter(StepPart::between); }

void Executor::step() {
  ++at_.step;
  any_backward_ = grown_ = false;
  std::fill(begun_.begin(), begun_.end(), 0);
  std::fill(grown_bytes_.begin(), grown_bytes_.end(), 0);
  device_.begin_step(at_.step);
  const bool shorter = at_.step == 1 && !plan_.first_slots.empty();
  for (const Slot& slot : shorter ? plan_.first_slots : plan_.slots) {
    if (slot.backward)
      backward_slot(slot.chunk);
    else
      forward_slot(slot.chunk);
  }
  if (plan_.layout.zero < 2) exchange(Exchange::reduce_gradients, kNone);
  update();
}

void Executor::update() {
  updated_ = true;  // moments are made as the first update begins
  enter(StepPart::update);
  exchange(Exchange::clip, kNone);
  device_.update(at_.step);
  device_.moment(at_);
  if (plan_.layout.zero == 1 || plan_.layout.zero == 2) exchange(Exchange::gather_updated, kNone);
  enter(StepPart::between);
  device_.moment(at_);
}

void Executor::exchange(Exchange::Kind kind, std::uint32_t segment) {
  Exchange e{kind, at_};
  e.at.segment = segment;
  device_.exchange(e);
}

TensorInfo Executor::row_info(TensorInfo::Kind kind, std::uint32_t row, std::int64_t bytes) const {
  TensorInfo info = plan_.row_info(kind, row, bytes);
  info.micro_batch = at_.micro_batch;
  return info;
}

// --- rows outside the traces
// ---------------------------------------------------------------------

bool Executor::wanted(const PlannedState& s) const {
  if (!s.when.from_start && !updated_) return false;
  switch (at_.part) {
    case StepPart::forward:
      return s.when.in_forward(any_backward_);
    case StepPart::backward:
      return s.when.backward;
    case StepPart::update:
      return s.when.update;
    case StepPart::between:
      return s.when.between;
  }
  return false;
}

void Executor::make(std::size_t state) {
  for (std::size_t i = 0; i < plan_.states[state].pieces.size(); ++i) make_piece(state, i);
}

void Executor::make_piece(std::size_t state, std::size_t piece) {
  const PlannedState& planned = plan_.states[state];
  TensorInfo info = row_info(TensorInfo::state, planned.row, planned.pieces[piece]);
  info.piece = piece;
  info.pieces = planned.pieces.size();
  states_[state].push_back(device_.allocate(info));
}

void Executor::drop(std::size_t state) {
  for (const TensorId t : states_[state]) device_.free(t);
  states_[state].clear();
}

/// Rows come and go where a part of the step begins.
void Executor::enter(StepPart part) {
  at_.part = part;
  if (part == StepPart::update || part == StepPart::between) {
    at_.micro_batch = -1;
    at_.segment = at_.op = kNone;
    at_.chunk = 0;
  }
  for (std::size_t i = 0; i < states_.size(); ++i)
    if (!wanted(plan_.states[i])) drop(i);
  std::vector<std::size_t> together;  // an optimizer makes a parameter's states before the next's
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const PlannedState& s = plan_.states[i];
    if (!wanted(s) || !states_[i].empty() || s.grows) continue;
    if (s.item->category == Category::moments)
      together.push_back(i);
    else
      make(i);
  }
  for (std::size_t piece = 0; !together.empty(); ++piece) {
    for (const std::size_t i : together) make_piece(i, piece);
    std::erase_if(together,
                  [&](std::size_t i) { return plan_.states[i].pieces.size() <= piece + 1; });
  }
}

/// Gradients that a step's first backward of a segment leaves.
void Executor::grow(const PlannedSegment& s) {
  for (const auto& [row, bytes] : plan_.cost.growing[s.trace_index]) {
    if (bytes == 0) continue;
    const std::size_t state = plan_.grown_state.at(row);
    TensorInfo info = row_info(TensorInfo::state, row, bytes);
    info.segment = s.segment;
    info.piece = states_[state].size();
    info.pieces = 0;
    states_[state].push_back(device_.allocate(info));
    grown_bytes_[state] += bytes;
  }
}

/// A row is rounded up once a stage, what grows once a segment: the last piece gives the difference
/// back. Rows that nothing grew come whole.
void Executor::settle_grown() {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const PlannedState& planned = plan_.states[i];
    if (!planned.grows || !wanted(planned)) continue;
    if (states_[i].empty()) {
      make(i);
      continue;
    }
    const std::int64_t excess = grown_bytes_[i] - planned.total;
    PLIMSOLL_ASSERT(excess >= 0);
    if (excess > 0) device_.shrink(states_[i].back(), excess);
  }
}

// --- micro-batches
// -------------------------------------------------------------------------------

/// Values that several segments read: once for each micro-batch that any chunk holds.
void Executor::share(std::int64_t micro_batch) {
  if (plan_.shared.empty() || (!shared_.empty() && shared_.back().micro_batch >= micro_batch))
    return;
  shared_.push_back({micro_batch, {}});
  for (const PlannedShared& s : plan_.shared) {
    TensorInfo info = row_info(TensorInfo::shared_value, s.row, s.bytes);
    info.value = s.value;
    shared_.back().tensors.push_back(s.bytes > 0 ? device_.allocate(info) : kNoTensor);
  }
}

/// Micro-batch \a micro_batch is gone from every chunk.
void Executor::unshare(std::int64_t micro_batch) {
  while (!shared_.empty() && shared_.front().micro_batch <= micro_batch) {
    for (const TensorId t : shared_.front().tensors)
      if (t != kNoTensor) device_.free(t);
    shared_.pop_front();
  }
}

void Executor::forward_slot(std::int32_t c) {
  const auto index = static_cast<std::size_t>(c);
  const PlannedChunk& chunk = plan_.chunks[index];
  at_.chunk = c;
  at_.micro_batch = begun_[index]++;
  at_.segment = at_.op = kNone;
  enter(StepPart::forward);
  alive_[index].push_back({at_.micro_batch, {}, {}});
  share(at_.micro_batch);
  MicroBatch& micro_batch = alive_[index].back();
  if (play_script(micro_batch)) return;
  write_script();
  micro_batch.frames.reserve(chunk.segments.size());
  for (std::size_t i = 0; i < chunk.segments.size(); ++i) {
    micro_batch.frames.emplace_back(*this, chunk.segments[i]);
    pass(chunk, i, micro_batch);
  }
  flush();
  end_script();
}

void Executor::backward_slot(std::int32_t c) {
  const auto index = static_cast<std::size_t>(c);
  const PlannedChunk& chunk = plan_.chunks[index];
  const bool whole = plan_.layout.vpp > 1;  // of several chunks gradients are there at once
  at_.chunk = c;
  at_.micro_batch = alive_[index].front().number;
  at_.segment = at_.op = kNone;
  any_backward_ = true;
  enter(StepPart::backward);
  for (const PlannedShared& s : plan_.shared) {
    TensorInfo info = row_info(TensorInfo::shared_gradient, kNone, s.gradient_bytes);
    info.value = s.value;
    shared_gradients_.push_back(s.gradient_bytes > 0 ? device_.allocate(info) : kNoTensor);
  }
  if (!grown_ && whole) {
    for (const PlannedChunk& each : plan_.chunks)
      for (const PlannedSegment& s : each.segments) grow(s);
    settle_grown();
  }
  if (MicroBatch& micro_batch = alive_[index].front(); !play_script(micro_batch)) {
    write_script();
    for (std::size_t i = chunk.segments.size(); i-- > 0;) {
      pass(chunk, i, micro_batch);
      for (const TensorId t : micro_batch.frames[i].tensors) PLIMSOLL_ASSERT(t == kNoTensor);
      micro_batch.frames.pop_back();
    }
    flush();
    end_script();
  }
  if (!grown_ && !whole) settle_grown();
  grown_ = true;
  for (const TensorId t : shared_gradients_)
    if (t != kNoTensor) device_.free(t);
  shared_gradients_.clear();
  alive_[index].pop_front();
  std::int64_t oldest = INT64_MAX;  // that some chunk still holds
  for (const auto& chunk_alive : alive_)
    if (!chunk_alive.empty()) oldest = std::min(oldest, chunk_alive.front().number);
  if (!shared_.empty()) unshare(std::min(oldest - 1, shared_.back().micro_batch));
}

void Executor::finish() {
  written_ = nullptr;
  flush();
  for (auto& [tensor, info] : neighbours_)
    if (tensor != kNoTensor) device_.free(tensor);
  neighbours_.clear();
  for (auto& chunk : alive_) {
    for (MicroBatch& m : chunk) {
      for (SegmentFrame& f : m.frames)
        for (const TensorId t : f.tensors)
          if (t != kNoTensor) device_.free(t);
      for (const TensorId t : m.places)
        if (t != kNoTensor) device_.free(t);
    }
    chunk.clear();
  }
  if (!shared_.empty()) unshare(shared_.back().micro_batch);
  for (const TensorId t : shared_gradients_)
    if (t != kNoTensor) device_.free(t);
  shared_gradients_.clear();
  for (std::size_t i = 0; i < states_.size(); ++i) drop(i);
}

}  // namespace plimsoll::runtime
