// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <variant>

#include "runtime/cuda/kernels_attention_backward.hpp"
#include "runtime/cuda/kernels_elements.hpp"
#include "runtime/cuda/kernels_mamba.hpp"
#include "runtime/cuda/kernels_rows.hpp"

/// All kernels, and how each is launched. There is one instance of each for the GPU: whether
/// numbers are bf16 or fp32 is told at run time, but for the tiles of attention.
namespace plimsoll::runtime::cuda {

using Kernel =
    std::variant<Scale, Pair, AddBias, Noise, WeightNoise, Pixels, Unary, UnaryBackward, Glu,
                 GluBackward, Rope, Dropout, DropoutBackward, Move, SumGroups, TakeRows, SumRows,
                 PositionRows, TakeNumbers, PutNumbers, ScoreLogits, Update, NormForward, RowSums,
                 FinishSums, NormBackward, NormWeights, ColumnSums, Embed, LossRows, LossShare,
                 LossTotal, LossBackward, Squares, SumParts, Route, RouteBackward, ScaleRows,
                 ScaleRowsBackward, RowDots, MergeBlocks, MambaConvolve, MambaGate,
                 MambaGateBackward, ScaleColumns, MambaScan, MambaScanBackward, MambaSlopes,
                 MambaConvolveBackward, MambaConvolveWeights, Softmax, SoftmaxBackward,
                 FlashForward<float>, FlashForward<Bf16>, FlashBackwardQueries<float>,
                 FlashBackwardQueries<Bf16>, FlashBackwardKeys<float>, FlashBackwardKeys<Bf16>>;

/// Does a team of threads have each item, and not one thread?
template <class K>
concept ForTeams = !requires(const K& k) {
  k.at(std::int64_t{0});
};

/// Bytes of a block's shared memory that the kernel asks for.
template <class K>
std::int64_t shared_bytes(const K& k) {
  if constexpr (requires { k.shared_bytes(); })
    return k.shared_bytes();
  else
    return 0;
}

/// What of a GPU a launch depends on.
struct GpuFacts {
  int multiprocessors = 1;
  std::int64_t shared_bytes = 48 * 1024;  ///< most that a block can have
  int sm = 0;                             ///< compute capability: 90
};

struct LaunchShape {
  std::int64_t blocks = 0;  ///< 0: there is nothing to do
  int threads = 0;
  std::int64_t shared_bytes = 0;
};

/// Threads beyond the items of a grid would do nothing; blocks beyond what the GPU holds at once
/// walk on in steps of the grid. Throws InternalError where a block cannot have the shared memory.
LaunchShape launch_shape(const Kernel&, const GpuFacts&);

/// The largest tiles that fit a block's shared memory, by what `bytes` says tiles need.
template <class Bytes>
TileSizes fitting_tiles(const GpuFacts& gpu, Bytes bytes) {
  constexpr TileSizes kSizes[] = {{64, 64}, {64, 32}, {32, 32}, {16, 32}, {16, 16}};
  for (const TileSizes s : kSizes)
    if (bytes(s) <= gpu.shared_bytes) return s;
  return {0, 0};
}

}  // namespace plimsoll::runtime::cuda
