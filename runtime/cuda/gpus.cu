// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include <cuda_runtime.h>

#include "runtime/cuda/gpus.hpp"

namespace plimsoll::runtime::cuda {

namespace {

std::string version(int number) {
  return std::to_string(number / 1000) + '.' + std::to_string(number % 1000 / 10);
}

}  // namespace

std::string why_no_gpu() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    return std::string(
        "this machine has no NVIDIA driver (libcuda.so.1), which the device 'cuda' "
        "needs; this build was made with CUDA " PLIMSOLL_CUDA_TOOLKIT);
  int count = 0;
  const cudaError_t answer = cudaGetDeviceCount(&count);
  if (answer == cudaErrorInsufficientDriver)
    return "the NVIDIA driver of this machine is for CUDA " + version(driver) +
           " at most; this build was made with CUDA " PLIMSOLL_CUDA_TOOLKIT;
  if (answer != cudaSuccess)
    return "the NVIDIA driver (for CUDA " + version(driver) +
           ") finds no usable GPU: " + cudaGetErrorString(answer);
  return count > 0 ? "" : "the NVIDIA driver finds no GPU";
}

}  // namespace plimsoll::runtime::cuda
