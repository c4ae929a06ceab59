// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// The device `cuda` in a build that found no toolkit.

#ifndef PLIMSOLL_HAS_CUDA

#include "runtime/cuda/gpu_error.hpp"
#include "runtime/cuda/gpus.hpp"

namespace plimsoll::runtime::cuda {

std::string why_no_gpu() {
  return "this build has no device 'cuda': no CUDA toolkit of version 12 or later was found when "
         "it "
         "was configured";
}

std::unique_ptr<Machine> open_gpu(int) { throw GpuError(why_no_gpu()); }

int gpu_count() { return 0; }

double peer_bandwidth(int, int) { throw GpuError(why_no_gpu()); }

}  // namespace plimsoll::runtime::cuda

#endif
