// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <string>

#include "runtime/cuda/gpu_error.hpp"

/// Every call to CUDA goes through one of these: a failure names the call, the file and the line.
#define PLIMSOLL_CUDA_CHECK(call) \
  ::plimsoll::runtime::cuda::check((call), #call, __FILE__, __LINE__)

namespace plimsoll::runtime::cuda {

inline void check(cudaError_t answer, const char* call, const char* file, int line) {
  if (answer != cudaSuccess) throw GpuError(cudaGetErrorString(answer), call, file, line);
}
inline void check(CUresult answer, const char* call, const char* file, int line) {
  if (answer != CUDA_SUCCESS)
    throw GpuError("driver error " + std::to_string(static_cast<int>(answer)), call, file, line);
}

}  // namespace plimsoll::runtime::cuda
