// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/cuda/kernels_attention.hpp"

/// Attention by a library in place of this program's kernels: cuDNN's, through its graph API. Only
/// where PLIMSOLL_ATTENTION=cudnn asks for it, since its workspace is not in any prediction.
namespace plimsoll::runtime::cuda {

/// Memory for the time of one call.
using Space = std::function<void*(std::int64_t bytes)>;

class LibraryAttention {
 public:
  virtual ~LibraryAttention() = default;

  /// Output and \a sums (sequences, heads, queries), one after the other: logs of sums of
  /// exponentials. Of bf16, causal or not, over positions without gaps. False: the library cannot.
  virtual bool forward(const Attention&, Array output, float* sums, const Space&) = 0;
  /// dq, dk and dv are put, not added to.
  virtual bool backward(const Attention&, Array output, Array doutput, const float* sums, Array dq,
                        Array dk, Array dv, const Space&) = 0;
};

/// cuDNN's on a stream of CUDA's. Throws GpuError where this build or this machine has none.
std::unique_ptr<LibraryAttention> cudnn_attention(void* stream);

}  // namespace plimsoll::runtime::cuda
