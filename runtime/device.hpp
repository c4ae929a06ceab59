// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "lang/inventory.hpp"
#include "runtime/allocator.hpp"

/// What the executor asks of the machine that a rank runs on: memory, kernels and traffic. One
/// executor, several devices: `dry` counts, `host` computes, `cuda` does both on a GPU.
///
/// Ops, values and segments are always the program's own numbers; a trace that stands for a whole
/// class of layers is translated by the executor. Values are named by their storage: a value that
/// an op hands on unchanged (dropout that is off) has the number of what it hands on.
namespace plimsoll::runtime {

/// A tensor that is allocated. Numbers are the device's; one may come back after its free.
using TensorId = std::uint32_t;
inline constexpr TensorId kNoTensor = ~0u;

enum class StepPart : std::uint8_t { forward, backward, update, between };
std::string_view name(StepPart);  ///< "forward", "backward", "optimizer step", "between steps"

/// Where in its step a rank is.
struct StepPoint {
  int step = 0;  ///< from 1; 0: before the first
  StepPart part = StepPart::between;
  std::int32_t chunk = 0;         ///< of the stage
  std::int64_t micro_batch = -1;  ///< from 0, of the replica's; -1 outside passes
  std::uint32_t segment = kNone;  ///< of the program
  OpId op = kNone;                ///< that runs or ran last in the segment; kNone: none has yet
  bool recomputing = false;       ///< a forward inside a backward
};

/// What a tensor is.
struct TensorInfo {
  enum Kind : std::uint8_t {
    trace,            ///< `tensor` of a segment's trace
    shared_value,     ///< `value`, which several segments read; of `micro_batch`
    shared_gradient,  ///< its gradient, while a backward runs
    state,            ///< a row outside the traces: weights, gradients, moments, buffers
    neighbour,        ///< a layer's row that stays or comes early while its neighbour runs
  } kind = trace;
  std::int64_t bytes = 0;     ///< above 0
  std::uint32_t row = kNone;  ///< of the inventory; kNone: values that several segments read
  Category category = Category::activations;
  StreamId stream = 0;                  ///< the allocator's pool, by Item::stream
  const TraceTensor* tensor = nullptr;  ///< its role, part and dtype; ids in it are its class's
  ValueId value = kNone;
  OpId op = kNone;                ///< whose it is: saved, temporary, item of an op
  std::uint32_t segment = kNone;  ///< of a trace, or whose backward makes it (state that grows)
  std::int64_t micro_batch = -1;
  /// A state comes in pieces where the stack makes a tensor a parameter (state_pieces.hpp), or
  /// where each segment's first backward makes its own.
  std::size_t piece = 0, pieces = 1;
};

/// The tensors of one segment for one micro-batch. Lookups give kNoTensor where nothing is live.
class Frame {
 public:
  virtual ~Frame() = default;
  /// Where value \a v, or its gradient, is: in the segment, or held by the stage for all.
  virtual TensorId value(ValueId v) const = 0;
  virtual TensorId gradient(ValueId v) const = 0;
  /// A second gradient of \a v that the running op makes; it is to be added to gradient(v).
  virtual TensorId partial(ValueId v) const = 0;
  /// Does partial(v) take gradient(v)'s place? Then that is added to it, and not the reverse: it is
  /// still another value's gradient.
  virtual bool succeeds(ValueId v) const = 0;
  /// What \a op keeps of its own as \a part ("lse", "stats").
  virtual TensorId saved(OpId op, std::string_view part) const = 0;
  /// What is kept of \a v in another dtype than its own (the input in fp32), for whichever ops.
  virtual TensorId saved_copy(ValueId v) const = 0;
  virtual TensorId temporary(OpId op, std::string_view part) const = 0;
  /// A framework's line item of \a op (kNone: of the segment) in the inventory's \a row.
  virtual TensorId item(OpId op, std::uint32_t row) const = 0;
};

/// One op's kernel, forward (a second time where `at.recomputing`) or backward by `at.part`.
struct OpRun {
  StepPoint at;
  bool backward = false;  ///< the op's gradient; false: its forward, wherever it stands
  const Frame* frame = nullptr;
  OpId op() const { return at.op; }
};

/// What crosses a cut between two pieces of the model (piece_of() says which chunk each is).
struct Transfer {
  StepPoint at;
  bool sends = false;  ///< false: receives
  std::int64_t piece = 0, other = 0;
  /// Values, or in a backward their gradients, in ascending order on both sides. A sender that has
  /// no tensor of one (a gradient that nobody made) sends zeros.
  std::vector<ValueId> values;
  const Frame* frame = nullptr;
};

/// Traffic that belongs to no op. What an op's rule says of tp, cp, ep is the op's own.
struct Exchange {
  enum Kind : std::uint8_t {
    gather_weights,    ///< of `segment`, before its pass (zero 3)
    release_weights,   ///< after it
    reduce_gradients,  ///< over the replicas: of `segment` after each backward of it (zero 2, 3),
                       ///< or of all (kNone) after the last one of the step; tied weights too
    clip,              ///< the gradients' norm, over all ranks
    gather_updated,    ///< of the whole stage, after the update (zero 1, 2)
  } kind = clip;
  StepPoint at;
};

/// A tensor could not be had. The device stays as it was before the request.
class OutOfMemory : public std::runtime_error {
 public:
  OutOfMemory(const TensorInfo& what, std::string tensor_name, std::int64_t live_bytes,
              std::int64_t reserved_bytes);
  TensorInfo info;
  std::string tensor;  ///< its name
  std::int64_t live = 0, reserved = 0;
};

/// One rank's device. Called from one thread.
class Device {
 public:
  virtual ~Device() = default;

  virtual TensorId allocate(const TensorInfo&) = 0;  ///< throws OutOfMemory
  virtual void free(TensorId) = 0;
  /// The two at once: a tensor that is gone before anything else happens.
  virtual void touch(const TensorInfo& info) { free(allocate(info)); }
  /// The tensor's last \a bytes are not needed after all.
  virtual void shrink(TensorId, std::int64_t bytes) = 0;
  /// The tensor lives on under another description: what one segment hands to the next.
  virtual void hand_on(TensorId, const TensorInfo&) {}

  /// Runs an op. Everything that it reads and writes is allocated, except that
  /// - an op that accounts for all that lives while it runs (cross_entropy, experts under some
  ///   frameworks) finds an input already freed, see about_to_free(), and makes its input's
  ///   gradient after it ran (the next allocate() of that gradient);
  /// - values inside such an experts op have no tensors at all.
  /// The bytes that are live now count: moments of the bill are these and moment().
  virtual void run(const OpRun&) = 0;
  /// \a input is freed before the op that reads it last has run: whoever computes takes a copy.
  virtual void about_to_free(const OpRun& /*next*/, ValueId /*input*/, TensorId) {}
  /// A moment outside ops: the optimizer step, or between steps.
  virtual void moment(const StepPoint&) = 0;

  virtual void begin_step(int /*step*/) {}
  virtual void transfer(const Transfer&) {}
  virtual void exchange(const Exchange&) {}
  /// The optimizer's arithmetic; its states are allocated.
  virtual void update(int /*step*/) {}
  /// Devices that only count are not told of copies, transfers and early frees.
  virtual bool computes() const { return true; }
  /// Devices that only serve need no more than allocate(), free(), touch() and shrink(), and are
  /// told of nothing else where that is easier.
  virtual bool only_serves() const { return false; }
  /// A value that the next segment keeps for itself while this one keeps it too.
  virtual void copy(TensorId /*from*/, TensorId /*to*/) {}
  /// Host memory keeps a tensor's content under \a key, and gives it back.
  virtual void store(TensorId, std::uint64_t /*key*/) {}
  virtual void fetch(std::uint64_t /*key*/, TensorId) {}
};

}  // namespace plimsoll::runtime
