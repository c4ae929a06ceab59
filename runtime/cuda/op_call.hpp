// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "lang/diagnostics.hpp"
#include "runtime/cuda/peers.hpp"
#include "runtime/cuda/rank_world.hpp"
#include "runtime/cuda/scratch.hpp"

/// One op on the device, forward or backward: kernels, products and the rank's collectives. The
/// same order of things as in runtime/host/ops_*.cpp, which it is tested against.
namespace plimsoll::runtime::cuda {

/// Where an experts op's rows go (runtime/host/op_call.hpp): known on the CPU, since tokens go by
/// turns; the lists that kernels read lie on the device.
struct Routes {
  Counts sent, received;  ///< rows by rank of the ep group
  Counts of_expert;       ///< rows by expert of this rank
  std::int64_t rows_sent = 0, rows = 0;
  Room token_of;                 ///< by row sent: its token
  Room sent_of;                  ///< by token and turn: its row sent
  Room place_of;                 ///< by row as it comes in: its row in the buffer
  Room source_of;                ///< by row in the buffer: the row as it comes in
  Room number_of;                ///< by row sent: token * experts + expert
  Room scores, score_gradients;  ///< by row in the buffer, fp32
};

/// A gradient that an op makes: put by the first that writes it, added to by the others.
struct Target {
  Array to;
  bool add = false;
  explicit operator bool() const { return to.there(); }
};

/// What an op may read and write. In backward only what is saved is there.
struct OpCall {
  const RankWorld& world;
  Machine& machine;
  Scratch& scratch;
  Peers& peers;
  OpId op = kNone;
  std::int64_t first_sequence = 0, step = 1;

  std::vector<Array> inputs;
  Array output, output_gradient;
  std::function<Array(std::size_t)> w;   ///< weight by its place in the op; empty: none
  std::function<Array(std::size_t)> dw;  ///< is added to; empty: not wanted
  /// Marks the gradient of an input as written: to be asked once for each time it is written.
  /// Empty: not wanted.
  std::function<Target(std::size_t)> dx;
  std::function<Array(std::string_view part)> part;  ///< what the op keeps, where it has memory
  /// Memory of a temporary of the op where the run counts one of at least so many bytes.
  std::function<void*(std::string_view temporary, std::int64_t bytes)> temporary;
  bool transposed = false;
  Routes* routes = nullptr;
  double* loss = nullptr;
  Number number = Number::fp32;  ///< of activations

  const Program& program() const { return *world.problem.program; }
  const RankShapes& shapes() const { return world.shapes; }
  const Op& what() const { return program().ops[op]; }
  const ValueShape& in(std::size_t i = 0) const { return shapes().values[what().inputs[i]]; }
  const ValueShape& out() const { return shapes().values[what().output]; }
  const WeightShape& weight(std::size_t i = 0) const { return shapes().weights[what().weights[i]]; }
  Circle& circle(Bond b) { return peers.circle(b); }
  template <class T>
  T* part_as(std::string_view name) const {
    return static_cast<T*>(part(name).at);
  }
};

/// An array in scratch, or a temporary that the run counts.
class Buffer {
 public:
  Buffer(OpCall& c, std::int64_t count, std::optional<Number> number = {},
         std::string_view temporary = "")
      : number_(number.value_or(c.number)) {
    const std::int64_t bytes = count * bytes_of(number_);
    if (!temporary.empty()) at_ = c.temporary(temporary, bytes);
    if (at_) return;
    room_ = Room(c.scratch, bytes);
    at_ = room_.at();
  }
  Array array() const { return {at_, number_}; }
  operator Array() const { return array(); }  // NOLINT: it is one

 private:
  Room room_;
  void* at_ = nullptr;
  Number number_;
};

/// Backward found no sufficient set of saved values.
[[noreturn]] inline void saved_too_little(const OpCall& c) {
  throw InternalError(std::string("nothing that is saved is enough for the backward of ") +
                      std::string(name(c.what().kind)));
}

/// to = from, or is added to it.
inline void put(OpCall& c, Array from, const Target& to, std::int64_t count) {
  if (to && (to.add || to.to.at != from.at)) c.machine.launch(Scale{from, to.to, count, 1, to.add});
}

/// A product whose operands may be of different kinds of number: the fp32 one is then cast.
void multiply(OpCall&, Product);

void run_forward(OpCall&);
void run_backward(OpCall&);

#define PLIMSOLL_CUDA_OP(name)  \
  void name##_forward(OpCall&); \
  void name##_backward(OpCall&);
PLIMSOLL_CUDA_OP(embedding)
PLIMSOLL_CUDA_OP(positions)
PLIMSOLL_CUDA_OP(linear)
PLIMSOLL_CUDA_OP(norm)
PLIMSOLL_CUDA_OP(unary)
PLIMSOLL_CUDA_OP(add)
PLIMSOLL_CUDA_OP(mul)
PLIMSOLL_CUDA_OP(glu)
PLIMSOLL_CUDA_OP(rope)
PLIMSOLL_CUDA_OP(concat)
PLIMSOLL_CUDA_OP(dropout)
PLIMSOLL_CUDA_OP(attention)
PLIMSOLL_CUDA_OP(experts)
PLIMSOLL_CUDA_OP(combine)
PLIMSOLL_CUDA_OP(cross_entropy)
PLIMSOLL_CUDA_OP(input)
PLIMSOLL_CUDA_OP(merge)
PLIMSOLL_CUDA_OP(mamba)
#undef PLIMSOLL_CUDA_OP

}  // namespace plimsoll::runtime::cuda
