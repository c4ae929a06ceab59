// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/cuda_device.hpp"

#include <algorithm>
#include <utility>

#include "lang/diagnostics.hpp"
#include "runtime/host/op_walk.hpp"
#include "runtime/replay.hpp"

namespace plimsoll::runtime::cuda {

namespace {

/// Times of so many runs are kept before they are looked at.
constexpr std::size_t kMostMarks = 4000;

Number activation_number(const Problem& p) {
  return p.inventory.facts.activation_bytes == Rational(2) ? Number::bf16 : Number::fp32;
}

}  // namespace

CudaDevice::CudaDevice(const RankWorld& world, Machine& machine, Peers& peers,
                       std::int64_t capacity, const AllocatorOptions& options)
    : world_(world),
      machine_(machine),
      peers_(peers),
      backing_(machine.backing(capacity)),
      allocator_(*backing_, options),
      counted_(world.plan, &allocator_),
      scratch_(machine, CountingBacking::kNoLimit),
      states_(world, machine, scratch_, peers),
      loss_(scratch_, 8),
      number_(activation_number(world.problem)) {}

CudaDevice::~CudaDevice() { machine_.use_workspace(nullptr, 0); }

// --- memory --------------------------------------------------------------------------------------

void* CudaDevice::address(TensorId id) const {
  return reinterpret_cast<void*>(allocator_.address(counted_.block_of(id)));  // NOLINT
}

CudaDevice::Tensor CudaDevice::describe(const TensorInfo& info) const {
  Tensor t;
  t.bytes = info.bytes;
  t.number = number_;
  t.is_state = info.kind == TensorInfo::state;
  t.is_workspace = info.category == Category::workspace && info.row != kNone &&
                   world_.plan.item(info.row).name.find("cuBLAS") != std::string::npos;
  if (info.kind == TensorInfo::shared_value || info.kind == TensorInfo::shared_gradient) return t;
  const bool numbers = info.kind == TensorInfo::trace && info.tensor->role != TensorRole::item &&
                       info.tensor->role != TensorRole::temporary;
  t.raw = !numbers;
  if (!numbers || info.tensor->dtype.empty()) return t;
  t.number = info.tensor->dtype == "bf16" ? Number::bf16 : Number::fp32;
  t.raw = info.tensor->dtype != "bf16" && info.tensor->dtype != "fp32";
  return t;
}

TensorId CudaDevice::allocate(const TensorInfo& info) {
  const TensorId id = counted_.allocate(info);  // throws OutOfMemory
  if (id >= tensors_.size()) tensors_.resize(id + 1);
  tensors_[id] = describe(info);
  tensors_[id].at = address(id);
  if (tensors_[id].is_state) states_.add(info, id, tensors_[id].at);
  if (tensors_[id].is_workspace) machine_.use_workspace(tensors_[id].at, info.bytes);
  return id;
}

void CudaDevice::free(TensorId id) {
  if (tensors_.at(id).is_state) states_.remove(id);
  if (tensors_[id].is_workspace) machine_.use_workspace(nullptr, 0);
  tensors_[id] = {};
  counted_.free(id);
}

/// The block is made anew, as a stack would: what is left moves with it.
void CudaDevice::shrink(TensorId id, std::int64_t bytes) {
  Tensor& t = tensors_.at(id);
  const std::int64_t left = t.bytes - bytes;
  Room kept(scratch_, left);
  machine_.copy(kept.at(), t.at, left);
  counted_.shrink(id, bytes);
  t.bytes = left;
  t.at = address(id);
  machine_.copy(t.at, kept.at(), left);
  if (t.is_state) states_.move(id, t.at, left);
}

void CudaDevice::hand_on(TensorId id, const TensorInfo& info) { counted_.hand_on(id, info); }

void CudaDevice::copy(TensorId from, TensorId to) {
  const Tensor& a = tensors_.at(from);
  Tensor& b = tensors_.at(to);
  PLIMSOLL_ASSERT(a.bytes == b.bytes);
  machine_.copy(b.at, a.at, a.bytes);
  b.written = a.written;
}

Array CudaDevice::array(TensorId id) const {
  if (id == kNoTensor) return {};
  return {tensors_.at(id).at, tensors_[id].number};
}

CudaDevice::LooseValue& CudaDevice::loose(std::int64_t micro_batch, ValueId v, bool gradient) {
  const auto [at, is_new] = loose_.try_emplace({micro_batch, v, gradient});
  if (is_new) at->second.room = Room(scratch_, world_.shapes.values[v].count() * bytes_of(number_));
  return at->second;
}

// --- ops -----------------------------------------------------------------------------------------

Array CudaDevice::value(const OpRun& r, ValueId v, bool make) {
  const ValueId s = storage(v);
  if (const TensorId t = r.frame->value(s); t != kNoTensor) return array(t);
  const auto scratch = loose_.find({r.at.micro_batch, s, false});
  if (scratch != loose_.end()) return {scratch->second.room.at(), number_};
  if (make) return {loose(r.at.micro_batch, s, false).room.at(), number_};
  const TensorId kept = r.frame->saved_copy(s);
  return kept == kNoTensor || tensors_.at(kept).raw ? Array{} : array(kept);
}

/// Where a gradient is to be put or added to, or (not to write) read: then it is there, of zeros
/// where nobody made it.
Target CudaDevice::open_gradient(const Frame& frame, ValueId v, std::int64_t micro_batch,
                                 bool to_write) {
  const ValueId s = storage(v);
  if (!world_.problem.inventory.flow.needs_gradient[s]) return {};
  const TensorId id = frame.gradient(s);
  if (id == kNoTensor) {
    LooseValue& l = loose(micro_batch, s, true);
    const Array at{l.room.at(), number_};
    if (!to_write && !l.written)
      machine_.clear(at.at, world_.shapes.values[s].count() * bytes_of(number_));
    return {at, std::exchange(l.written, true)};
  }
  Tensor& t = tensors_.at(id);
  // What an op made of it before it was allocated (see Device::run()).
  if (const auto early = loose_.find({micro_batch, s, true}); early != loose_.end()) {
    machine_.launch(Scale{{early->second.room.at(), number_},
                          array(id),
                          world_.shapes.values[s].count(),
                          1,
                          t.written});
    t.written = true;
    loose_.erase(early);
  }
  if (!to_write && !t.written) machine_.clear(t.at, t.bytes);
  return {array(id), std::exchange(t.written, true)};
}

OpCall CudaDevice::call(const OpRun& r, std::vector<Room>& rooms) {
  OpCall c{world_, machine_, scratch_, peers_, kNone, 0,     1,       {},      {},          {},
           {},     {},       {},       {},     {},    false, nullptr, nullptr, Number::fp32};
  const OpId id = r.op();
  const Frame* frame = r.frame;
  c.op = id;
  c.step = step_;
  c.number = number_;
  c.first_sequence =
      host::first_sequence(world_.plan, step_, world_.options.same_text, r.at.micro_batch);
  const Op& op = c.what();
  if (!op.weights.empty()) c.transposed = states_.transposed(op.weights[0]);
  c.w = [this, &op, &rooms](std::size_t i) {
    return i < op.weights.size() ? states_.weight(op.weights[i], rooms) : Array{};
  };
  c.dw = [this, &op](std::size_t i) {
    return i < op.weights.size() ? states_.gradient(op.weights[i]) : Array{};
  };
  const OpId owner = host::owner_of_parts(*world_.problem.program, r);
  c.part = [this, frame, owner](std::string_view part) { return array(frame->saved(owner, part)); };
  c.temporary = [this, frame, id](std::string_view name, std::int64_t bytes) -> void* {
    const TensorId t = frame->temporary(id, name);
    return t != kNoTensor && tensors_.at(t).bytes >= bytes ? tensors_[t].at : nullptr;
  };
  if (const OpId experts = host::routed_by(*world_.problem.program, id); experts != kNone)
    c.routes = &routes_[{r.at.micro_batch, experts}];
  if (r.at.part == StepPart::forward) c.loss = loss_.as<double>();
  return c;
}

template <class F>
void CudaDevice::timed(std::string name, bool backward, F f) {
  if (!world_.options.times) return f();
  if (marks_.size() >= kMostMarks) times();
  const int begin = machine_.mark();
  f();
  machine_.mark();
  marks_.emplace_back(std::move(name), backward, begin);
}

const OpTimes& CudaDevice::times() {
  if (!marks_.empty()) machine_.wait();
  for (const auto& [name, backward, begin] : marks_) {
    OpTime& t = times_[{name, backward}];
    ++t.runs;
    t.seconds += machine_.seconds(begin, begin + 1);
  }
  marks_.clear();
  machine_.forget_marks();
  return times_;
}

void CudaDevice::run(const OpRun& r) {
  counted_.run(r);
  const Op& op = world_.problem.program->ops[r.op()];
  if (host::hands_on(world_.problem, op)) return;
  timed(std::string(plimsoll::name(op.kind)), r.backward, [&] {
    if (r.backward)
      backward(r);
    else
      forward(r);
  });
}

void CudaDevice::forward(const OpRun& r) {
  std::vector<Room> rooms;
  OpCall c = call(r, rooms);
  const Op& op = c.what();
  for (const ValueId v : op.inputs) {
    c.inputs.push_back(value(r, v, false));
    if (!c.inputs.back())
      throw InternalError(
          fmt::format("forward of {} reads a value that is not there", plimsoll::name(op.kind)));
  }
  if (op.output != kNone) c.output = value(r, op.output, true);
  run_forward(c);
  keep_copies(r, c);
  if (op.kind == OpKind::combine)
    routes_.erase({r.at.micro_batch, host::routed_by(*world_.problem.program, r.op())});
  host::forget_inputs(world_.problem, r, loose_);
}

/// What an op keeps of its inputs or output in another dtype.
void CudaDevice::keep_copies(const OpRun& r, const OpCall& c) {
  const auto keep = [&](ValueId v, Array from) {
    const TensorId t = r.frame->saved_copy(storage(v));
    if (t == kNoTensor || tensors_.at(t).raw || from.at == tensors_[t].at) return;
    machine_.launch(Scale{from, array(t), world_.shapes.values[v].count(), 1, false});
  };
  const Op& op = c.what();
  for (std::size_t i = 0; i < op.inputs.size(); ++i) keep(op.inputs[i], c.inputs[i]);
  if (op.output != kNone) keep(op.output, c.output);
}

void CudaDevice::backward(const OpRun& r) {
  std::vector<Room> rooms;
  OpCall c = call(r, rooms);
  const Op& op = c.what();
  const std::int64_t micro_batch = r.at.micro_batch;
  if (op.output != kNone) {
    c.output = value(r, op.output, false);
    c.output_gradient = open_gradient(*r.frame, op.output, micro_batch, false).to;
    if (!c.output_gradient) return;
  }
  std::map<ValueId, bool> partial;  // values with a second gradient, and whether it was written
  for (const ValueId v : op.inputs) {
    c.inputs.push_back(value(r, v, false));
    if (r.frame->partial(storage(v)) != kNoTensor) partial.emplace(storage(v), false);
  }
  c.dx = [&](std::size_t i) -> Target {
    if (i >= op.inputs.size()) return {};
    const ValueId s = storage(op.inputs[i]);
    const auto more = partial.find(s);
    if (more == partial.end()) return open_gradient(*r.frame, op.inputs[i], micro_batch, true);
    return {array(r.frame->partial(s)), std::exchange(more->second, true)};
  };
  run_backward(c);
  for (const auto& [v, written] : partial) {
    if (!written) continue;
    const TensorId more = r.frame->partial(v);
    const std::int64_t count = world_.shapes.values[v].count();
    if (r.frame->succeeds(v)) {
      const TensorId old = r.frame->gradient(v);
      if (old == kNoTensor || tensors_.at(old).written)
        put(c, open_gradient(*r.frame, v, micro_batch, false).to, {array(more), true}, count);
      tensors_.at(more).written = true;
    } else {
      put(c, array(more), open_gradient(*r.frame, v, micro_batch, true), count);
    }
  }
  if (op.kind == OpKind::experts) routes_.erase({micro_batch, r.op()});
  if (op.output != kNone) loose_.erase({micro_batch, storage(op.output), true});
}

void CudaDevice::about_to_free(const OpRun& next, ValueId input, TensorId id) {
  const Array to{loose(next.at.micro_batch, input, false).room.at(), number_};
  machine_.launch(Scale{array(id), to, world_.shapes.values[input].count(), 1, false});
}

// --- between ranks -------------------------------------------------------------------------------

void CudaDevice::begin_step(int step) {
  times();
  times_.clear();
  step_ = step;
  machine_.clear(loss_.at(), 8);
  states_.begin_step();
}

double CudaDevice::loss() {
  double loss = 0;
  machine_.download(&loss, loss_.at(), 8);
  return loss;
}

void CudaDevice::transfer(const Transfer& t) {
  const Layout& l = world_.layout;
  const std::int64_t other = rank_in_stage(l, world_.plan.place.rank, stage_of_piece(l, t.other));
  const bool gradients = t.at.part == StepPart::backward;
  for (const ValueId v : t.values) {
    const std::int64_t tag = (t.at.micro_batch * 2 + gradients) << 32 | v;
    const std::int64_t count = world_.shapes.values[v].count();
    timed("send and receive", gradients, [&] {
      if (t.sends) {
        const Array from = gradients ? open_gradient(*t.frame, v, t.at.micro_batch, false).to
                                     : array(t.frame->value(v));
        if (!from) throw InternalError("a value that another stage waits for is not there");
        peers_.send(from, count, other, tag);
        return;
      }
      const TensorId id = gradients ? t.frame->gradient(v) : t.frame->value(v);
      PLIMSOLL_ASSERT(id != kNoTensor);
      peers_.receive(array(id), count, other, tag);
      tensors_[id].written = true;
    });
  }
}

void CudaDevice::exchange(const Exchange& e) {
  switch (e.kind) {
    case Exchange::gather_weights:
      return timed("gather weights", e.at.part == StepPart::backward,
                   [&] { states_.gather_weights(e.at.segment); });
    case Exchange::release_weights:
      return states_.release_weights();
    case Exchange::reduce_gradients:
      return timed("reduce gradients", true, [&] { states_.reduce_gradients(e.at.segment); });
    case Exchange::clip:
      timed("gradients' norm", true, [&] { states_.clip(); });
      if (with_gradients) with_gradients();
      return;
    case Exchange::gather_updated:
      return timed("gather weights", true, [&] { states_.gather_updated(); });
  }
}

void CudaDevice::update(int step) {
  timed("optimizer", true, [&] { states_.update(step); });
}

}  // namespace plimsoll::runtime::cuda
