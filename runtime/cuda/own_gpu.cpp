// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/gpu_error.hpp"
#include "runtime/cuda/gpus.hpp"
#include "runtime/wire.hpp"

namespace plimsoll::runtime::cuda {

std::unique_ptr<Machine> open_own_gpu() {
  if (const std::string why = why_no_gpu(); !why.empty()) throw GpuError(why);
  return open_gpu(local_rank() % gpu_count());
}

}  // namespace plimsoll::runtime::cuda
