// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/kernel.hpp"

#include <algorithm>

#include "lang/diagnostics.hpp"

namespace plimsoll::runtime::cuda {

namespace {

constexpr int kThreads = 256;
/// Blocks of a grid a multiprocessor: enough that all are busy, and few enough that threads walk
/// over several items.
constexpr std::int64_t kBlocksEach = 16;

}  // namespace

LaunchShape launch_shape(const Kernel& kernel, const GpuFacts& gpu) {
  return std::visit(
      [&](const auto& k) {
        using K = std::decay_t<decltype(k)>;
        LaunchShape s;
        const std::int64_t items = k.items();
        if (items <= 0) return s;
        s.threads = kThreads;
        s.shared_bytes = shared_bytes(k);
        if (s.shared_bytes > gpu.shared_bytes)
          throw InternalError(fmt::format("a kernel asks for {} B of shared memory of {}",
                                          s.shared_bytes, gpu.shared_bytes));
        if constexpr (ForTeams<K>) {
          s.blocks = std::min<std::int64_t>(items, std::int64_t{1} << 30);
        } else {
          s.blocks = std::min<std::int64_t>((items + kThreads - 1) / kThreads,
                                            gpu.multiprocessors * kBlocksEach);
        }
        return s;
      },
      kernel);
}

}  // namespace plimsoll::runtime::cuda
