// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "runtime/host/collectives.hpp"
#include "runtime/host/rank_shapes.hpp"

/// One op on one rank, forward or backward: the kernels with the rank's collectives around them.
namespace plimsoll::runtime::host {

/// The rank's groups.
struct Groups {
  Group tp, cp, ep, etp;
};

/// What the job decides once for the whole run.
struct RunFacts {
  double dropout = 0, attention_dropout = 0;
  bool flash = true;      ///< false: unfused attention
  bool balanced = true;   ///< routing by turns, so that experts get equal shares; false: top k
  bool ring = true;       ///< context parallelism passes k and v around; false: exchanges heads
  double loss_scale = 1;  ///< of a token's loss in the gradient: 1 / tokens of a step
  std::uint64_t seed = 1;
};

/// Where the rows of an experts op go, from its forward to its combine's, and back. Rows are in the
/// order of the experts they visit.
template <class T>
struct Routing {
  std::vector<std::int64_t> token_of, expert_of;  ///< by row sent
  std::vector<std::int64_t> sent, received;       ///< rows by rank of the ep group
  std::vector<std::int64_t> place_of;   ///< of a row as it comes in: its row in the buffer
  std::vector<std::int64_t> of_expert;  ///< rows by expert of this rank
  std::vector<T> scores;                ///< by row in the buffer
  std::vector<T> score_gradients;       ///< likewise, in backward

  std::int64_t rows() const { return static_cast<std::int64_t>(place_of.size()); }
};

/// What an op may read and write. In backward only what is saved is there, the rest is nullptr.
template <class T>
struct OpCall {
  const RankShapes* shapes = nullptr;
  const Groups* groups = nullptr;
  const RunFacts* facts = nullptr;
  OpId op = kNone;
  std::int64_t first_sequence = 0;  ///< of the micro-batch, among all of a step
  std::int64_t step = 1;

  std::vector<T*> inputs;
  T* output = nullptr;
  std::vector<const T*> weights;
  /// What the op keeps as `part`, where it has memory: of any type.
  std::function<void*(std::string_view part)> own;
  /// Memory of a temporary of the op, which must hold `count` elements; nullptr: the stack has
  /// none.
  std::function<T*(std::string_view temporary, std::int64_t count)> room;
  bool transposed = false;  ///< a head that is tied to an embedding: its weight lies cols x rows
  Routing<T>* routing = nullptr;  ///< of the experts op that this is, is in or ends
  double* loss = nullptr;         ///< cross_entropy adds to it

  const T* output_gradient = nullptr;
  std::vector<T*> input_gradients;   ///< are added to; nullptr: not wanted
  std::vector<T*> weight_gradients;  ///< likewise

  const Op& what() const { return shapes->program->ops[op]; }
  const ValueShape& in(std::size_t i = 0) const { return shapes->values[what().inputs[i]]; }
  const ValueShape& out() const { return shapes->values[what().output]; }
  const WeightShape& weight(std::size_t i = 0) const { return shapes->weights[what().weights[i]]; }
  const T* w(std::size_t i) const { return i < weights.size() ? weights[i] : nullptr; }
  T* dw(std::size_t i) const { return i < weight_gradients.size() ? weight_gradients[i] : nullptr; }
  T* dx(std::size_t i = 0) const {
    return i < input_gradients.size() ? input_gradients[i] : nullptr;
  }
  template <class U = T>
  U* part(std::string_view name) const {
    return static_cast<U*>(own ? own(name) : nullptr);
  }
};

/// Makes the output, and the parts that have memory.
template <class T>
void run_forward(OpCall<T>&);
/// Adds to the gradients of inputs and weights. Throws InternalError where no sufficient set of the
/// op's rule is there.
template <class T>
void run_backward(OpCall<T>&);

/// Token at a place of a sequence of the training data: the same whatever the layout. `stream`
/// tells an encoder's text from a decoder's. The token to predict at a position is the one after
/// it.
std::int64_t token(std::uint64_t seed, std::int64_t stream, std::int64_t sequence,
                   std::int64_t position, std::int64_t vocab);

}  // namespace plimsoll::runtime::host
