// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/host/host_device.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lang/diagnostics.hpp"
#include "runtime/host/op_family.hpp"
#include "runtime/host/op_walk.hpp"

namespace plimsoll::runtime::host {

namespace {

constexpr int kPoison = 0xff;  // every float and double of such bytes is a NaN

}  // namespace

HostDevice::HostDevice(HostWorld& world, std::int64_t rank)
    : world_(world),
      rank_(rank),
      plan_(world.plan(rank)),
      groups_(world.groups(rank)),
      counted_(plan_),
      backing_(world.options.capacities.empty()
                   ? world.options.capacity
                   : world.options.capacities.at(static_cast<std::size_t>(rank)),
               world.budget),
      allocator_(backing_, world.options.allocator),
      states_(world, rank) {}

// --- memory --------------------------------------------------------------------------------------

TensorId HostDevice::allocate(const TensorInfo& info) {
  const std::optional<BlockId> block = allocator_.allocate(info.bytes, info.stream);
  if (!block) {
    const std::string name =
        info.row == kNone ? "a value that several segments read" : plan_.item(info.row).name;
    throw OutOfMemory(info, name, counted_.live(), allocator_.stats().reserved.now);
  }
  const TensorId id = counted_.allocate(info);
  if (id >= tensors_.size()) tensors_.resize(id + 1);
  Tensor t;
  t.block = *block;
  t.at = reinterpret_cast<std::byte*>(allocator_.address(*block));  // NOLINT
  t.bytes = info.bytes;
  t.is_state = info.kind == TensorInfo::state;
  t.storage = storage_of(info);
  std::memset(t.at, kPoison, static_cast<std::size_t>(allocator_.bytes(*block)));
  tensors_[id] = t;
  if (t.is_state) states_.add(info, {id, t.at, t.bytes});
  return id;
}

void HostDevice::free(TensorId id) {
  Tensor& t = tensors_.at(id);
  if (t.is_state) states_.remove(id);
  std::memset(t.at, kPoison, static_cast<std::size_t>(t.bytes));
  allocator_.free(t.block);
  t = {};
  counted_.free(id);
}

/// The block stays as large as it is.
void HostDevice::shrink(TensorId id, std::int64_t bytes) {
  counted_.shrink(id, bytes);
  tensors_.at(id).bytes -= bytes;
  if (tensors_[id].is_state) states_.shrink(id, bytes);
}

void HostDevice::hand_on(TensorId id, const TensorInfo& info) { counted_.hand_on(id, info); }

void HostDevice::store(TensorId id, std::uint64_t key) {
  const Tensor& t = tensors_.at(id);
  away_[key].assign(t.at, t.at + t.bytes);
}

void HostDevice::fetch(std::uint64_t key, TensorId id) {
  const auto kept = away_.find(key);
  PLIMSOLL_ASSERT(kept != away_.end() &&
                  static_cast<std::int64_t>(kept->second.size()) == tensors_.at(id).bytes);
  std::memcpy(tensors_[id].at, kept->second.data(), kept->second.size());
  away_.erase(kept);
}

void HostDevice::copy(TensorId from, TensorId to) {
  const Tensor& a = tensors_.at(from);
  Tensor& b = tensors_.at(to);
  PLIMSOLL_ASSERT(a.bytes == b.bytes);
  std::memcpy(b.at, a.at, static_cast<std::size_t>(a.bytes));
  b.written = a.written;
}

/// Of what names no dtype.
Storage HostDevice::activation() const {
  if (plan_.problem.inventory.facts.activation_bytes != Rational(2)) return Storage::fp32;
  return plan_.problem.job->precision == "fp16" ? Storage::fp16 : Storage::bf16;
}

Storage HostDevice::storage_of(const TensorInfo& info) const {
  if (info.kind == TensorInfo::shared_value || info.kind == TensorInfo::shared_gradient)
    return activation();
  if (info.kind != TensorInfo::trace) return Storage::raw;
  const TraceTensor& t = *info.tensor;
  if (t.role == TensorRole::item || t.role == TensorRole::temporary) return Storage::raw;
  if (t.dtype.empty()) return activation();
  return t.dtype == "fp32"   ? Storage::fp32
         : t.dtype == "bf16" ? Storage::bf16
         : t.dtype == "fp16" ? Storage::fp16
                             : Storage::raw;
}

float* HostDevice::floats(TensorId id) {
  if (id == kNoTensor) return nullptr;
  const Tensor& t = tensors_.at(id);
  if (!is_half(t.storage)) return reinterpret_cast<float*>(t.at);  // NOLINT
  const auto [view, is_new] = views_.try_emplace(id);
  if (is_new) {
    view->second.resize(static_cast<std::size_t>(t.bytes / 2));
    decode(t.storage, t.at, t.bytes / 2, view->second.data());
  }
  return view->second.data();
}

void HostDevice::close_views() {
  for (const auto& [id, view] : views_) {
    const Tensor& t = tensors_.at(id);
    encode(t.storage, view.data(), static_cast<std::int64_t>(view.size()), t.at);
  }
  views_.clear();
}

/// Scratch for a value that the run has no tensor for.
float* HostDevice::loose(std::int64_t micro_batch, ValueId v, bool gradient) {
  const auto [at, is_new] = loose_.try_emplace({micro_batch, v, gradient});
  if (is_new) at->second.resize(static_cast<std::size_t>(world_.shapes(rank_).values[v].count()));
  return at->second.data();
}

// --- ops -----------------------------------------------------------------------------------------

/// Where a value is to be read, or (make) written: its tensor, scratch where an op accounts for it
/// all, or what is kept of it in another dtype.
float* HostDevice::value(const OpRun& r, ValueId v, bool make) {
  const ValueId s = storage(v);
  if (float* at = floats(r.frame->value(s))) return at;
  const auto scratch = loose_.find({r.at.micro_batch, s, false});
  if (scratch != loose_.end()) return scratch->second.data();
  return make ? loose(r.at.micro_batch, s, false) : floats(r.frame->saved_copy(s));
}

OpCall<float> HostDevice::call(const OpRun& r) {
  OpCall<float> c;
  const OpId id = r.op();
  const Frame* frame = r.frame;
  c.shapes = &world_.shapes(rank_);
  c.groups = &groups_;
  c.facts = &world_.facts;
  c.op = id;
  c.step = step_;
  c.first_sequence = first_sequence(plan_, step_, world_.options.same_text, r.at.micro_batch);
  const Op& op = c.what();
  for (const WeightId w : op.weights) c.weights.push_back(states_.weight(w));
  if (!op.weights.empty()) c.transposed = states_.transposed(op.weights[0]);
  const OpId owner = owner_of_parts(*plan_.problem.program, r);
  c.own = [this, frame, owner](std::string_view part) -> void* {
    return floats(frame->saved(owner, part));
  };
  c.room = [this, frame, id](std::string_view name, std::int64_t count) -> float* {
    const TensorId t = frame->temporary(id, name);
    if (plan_.problem.inventory.facts.activation_bytes != Rational(4)) return nullptr;
    if (t != kNoTensor)
      PLIMSOLL_ASSERT(tensors_.at(t).bytes >= count * static_cast<std::int64_t>(sizeof(float)));
    return floats(t);
  };
  if (const OpId experts = routed_by(*plan_.problem.program, id); experts != kNone)
    c.routing = &routing_[{r.at.micro_batch, experts}];
  if (r.at.part == StepPart::forward) c.loss = &loss_;
  return c;
}

void HostDevice::run(const OpRun& r) {
  counted_.run(r);
  if (hands_on(plan_.problem, plan_.problem.program->ops[r.op()])) return;
  if (r.backward)
    backward(r);
  else
    forward(r);
  close_views();
}

void HostDevice::forward(const OpRun& r) {
  OpCall<float> c = call(r);
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
    routing_.erase({r.at.micro_batch, routed_by(*plan_.problem.program, r.op())});
  forget_inputs(plan_.problem, r, loose_);
}

/// What an op keeps of its inputs or output in another dtype.
void HostDevice::keep_copies(const OpRun& r, const OpCall<float>& c) {
  const auto keep = [&](ValueId v, const float* from) {
    const TensorId t = r.frame->saved_copy(storage(v));
    if (t == kNoTensor || from == floats(t)) return;
    const std::int64_t count = c.shapes->values[v].count();
    if (tensors_.at(t).storage == Storage::raw) return;  // fp8: its memory is all that is there
    PLIMSOLL_ASSERT(tensors_.at(t).bytes == count * bytes_of(tensors_.at(t).storage));
    std::copy_n(from, count, floats(t));
  };
  const Op& op = c.what();
  for (std::size_t i = 0; i < op.inputs.size(); ++i) keep(op.inputs[i], c.inputs[i]);
  if (op.output != kNone) keep(op.output, c.output);
}

/// A gradient that is going to be added to: the first time it is cleared.
float* HostDevice::open_gradient(const Frame& frame, ValueId v, std::int64_t micro_batch) {
  const ValueId s = storage(v);
  if (!plan_.problem.inventory.flow.needs_gradient[s]) return nullptr;
  const TensorId id = frame.gradient(s);
  if (id == kNoTensor) return loose(micro_batch, s, true);
  Tensor& t = tensors_.at(id);
  if (!t.written) std::memset(t.at, 0, static_cast<std::size_t>(t.bytes));
  t.written = true;
  // What an op made of it before it was allocated (see Device::run()).
  if (const auto early = loose_.find({micro_batch, s, true}); early != loose_.end()) {
    add_to(floats(id), early->second.data(), static_cast<std::int64_t>(early->second.size()));
    loose_.erase(early);
  }
  return floats(id);
}

void HostDevice::backward(const OpRun& r) {
  OpCall<float> c = call(r);
  const Op& op = c.what();
  if (op.output != kNone) {
    c.output = value(r, op.output, false);
    c.output_gradient = open_gradient(*r.frame, op.output, r.at.micro_batch);
    if (!c.output_gradient) return;
  }
  std::map<ValueId, float*> partial;
  for (const ValueId v : op.inputs) {
    c.inputs.push_back(value(r, v, false));
    const ValueId s = storage(v);
    const TensorId more = r.frame->partial(s);
    if (more == kNoTensor) {
      c.input_gradients.push_back(open_gradient(*r.frame, v, r.at.micro_batch));
      continue;
    }
    if (!partial.count(s)) {
      std::memset(tensors_.at(more).at, 0, static_cast<std::size_t>(tensors_.at(more).bytes));
      partial.emplace(s, floats(more));
    }
    c.input_gradients.push_back(partial.at(s));
  }
  for (const WeightId w : op.weights) c.weight_gradients.push_back(states_.gradient(w));
  run_backward(c);
  for (const auto& [v, more] : partial) {
    float* sum = open_gradient(*r.frame, v, r.at.micro_batch);
    const float* from = more;
    if (r.frame->succeeds(v)) {
      tensors_.at(r.frame->partial(v)).written = true;
      from = std::exchange(sum, more);
    }
    for (std::int64_t i = 0; i < c.shapes->values[v].count(); ++i) sum[i] += from[i];
  }
  if (op.kind == OpKind::experts) routing_.erase({r.at.micro_batch, r.op()});
  if (op.output != kNone) loose_.erase({r.at.micro_batch, storage(op.output), true});
}

void HostDevice::about_to_free(const OpRun& next, ValueId input, TensorId id) {
  const Tensor& t = tensors_.at(id);
  decode(t.storage, t.at, t.bytes / bytes_of(t.storage), loose(next.at.micro_batch, input, false));
}

// --- between ranks -------------------------------------------------------------------------------

void HostDevice::begin_step(int step) {
  step_ = step;
  loss_ = 0;
  states_.begin_step();
}

/// The value's (or its gradient's) bytes as they are stored.
std::vector<std::byte> HostDevice::letter(const Transfer& t, ValueId v, bool gradient) {
  const float* from =
      gradient ? open_gradient(*t.frame, v, t.at.micro_batch) : floats(t.frame->value(v));
  if (!from) throw InternalError("a value that another stage waits for is not there");
  const TensorId id = gradient ? t.frame->gradient(v) : t.frame->value(v);
  close_views();
  if (id != kNoTensor) return {tensors_.at(id).at, tensors_.at(id).at + tensors_.at(id).bytes};
  const Storage storage = activation();
  const std::int64_t count = world_.shapes(rank_).values[v].count();
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * bytes_of(storage)));
  encode(storage, from, count, bytes.data());
  return bytes;
}

void HostDevice::transfer(const Transfer& t) {
  const Layout& l = world_.layout;
  const auto self = static_cast<int>(rank_);
  const auto other = static_cast<int>(rank_in_stage(l, rank_, stage_of_piece(l, t.other)));
  const bool gradients = t.at.part == StepPart::backward;
  for (const ValueId v : t.values) {
    const std::int64_t tag = (t.at.micro_batch * 2 + gradients) << 32 | v;
    if (t.sends) {
      world_.post.send(self, other, tag, letter(t, v, gradients));
      continue;
    }
    const std::vector<std::byte> bytes = world_.post.receive(other, self, tag);
    const TensorId id = gradients ? t.frame->gradient(v) : t.frame->value(v);
    PLIMSOLL_ASSERT(id != kNoTensor);
    Tensor& to = tensors_.at(id);
    PLIMSOLL_ASSERT(to.bytes == static_cast<std::int64_t>(bytes.size()));
    std::memcpy(to.at, bytes.data(), bytes.size());
    to.written = true;
  }
}

void HostDevice::exchange(const Exchange& e) {
  switch (e.kind) {
    case Exchange::gather_weights:
      return states_.gather_weights(e.at.segment);
    case Exchange::release_weights:
      return states_.release_weights(e.at.segment);
    case Exchange::reduce_gradients:
      return states_.reduce_gradients(e.at.segment);
    case Exchange::clip:
      return states_.clip(e.at.step);
    case Exchange::gather_updated:
      return states_.gather_updated();
  }
}

void HostDevice::update(int step) { states_.update(step); }

}  // namespace plimsoll::runtime::host
