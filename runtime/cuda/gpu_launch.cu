// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// The kernels as the GPU runs them: one instance of each.

#include "runtime/cuda/block.cuh"
#include "runtime/cuda/check.cuh"
#include "runtime/cuda/gpu_launch.cuh"

namespace plimsoll::runtime::cuda {

void launch_on(cudaStream_t stream, const Kernel& kernel, const LaunchShape& shape) {
  if (shape.blocks == 0) return;
  std::visit(
      [&](const auto& k) {
        using K = std::decay_t<decltype(k)>;
        const auto blocks = static_cast<unsigned>(shape.blocks);
        const auto threads = static_cast<unsigned>(shape.threads);
        const auto shared = static_cast<std::size_t>(shape.shared_bytes);
        if constexpr (ForTeams<K>) {
          if (shape.shared_bytes > 48 * 1024)
            PLIMSOLL_CUDA_CHECK(cudaFuncSetAttribute(run_teams<K>,
                                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                     static_cast<int>(shape.shared_bytes)));
          run_teams<K><<<blocks, threads, shared, stream>>>(k);
        } else {
          run_elements<K><<<blocks, threads, shared, stream>>>(k);
        }
        PLIMSOLL_CUDA_CHECK(cudaGetLastError());
      },
      kernel);
}

}  // namespace plimsoll::runtime::cuda
