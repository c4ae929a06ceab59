// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/emulated_machine.hpp"

#include <cstring>
#include <vector>

namespace plimsoll::runtime::cuda {

EmulatedMachine::EmulatedMachine(std::int64_t memory, const GpuFacts& facts) : facts_(facts) {
  budget_.capacity = memory;
}

MemoryFacts EmulatedMachine::memory() const {
  return {budget_.capacity - budget_.used, budget_.capacity};
}

std::unique_ptr<Backing> EmulatedMachine::backing(std::int64_t capacity) {
  return std::make_unique<host::HostBacking>(capacity, budget_);
}

void EmulatedMachine::launch(const Kernel& kernel) {
  const LaunchShape shape = launch_shape(kernel, facts_);
  ++launches_;
  if (shape.blocks == 0) return;
  // Bytes of NaN: what a kernel reads without having written spoils its result.
  std::vector<char> shared(static_cast<std::size_t>(shape.shared_bytes), '\xff');
  std::visit(
      [&](const auto& k) {
        using K = std::decay_t<decltype(k)>;
        const std::int64_t items = k.items();
        Solo team(shared.data());
        for (std::int64_t i = 0; i < items; ++i) {
          if constexpr (ForTeams<K>)
            k.team(team, i);
          else
            k.at(i);
        }
      },
      kernel);
}

void EmulatedMachine::multiply(const Product& p) {
  const auto or_own = [](std::int64_t stride, std::int64_t own) { return stride ? stride : own; };
  const std::int64_t as = or_own(p.a_stride, p.a_turned ? p.m : p.k);
  const std::int64_t bs = or_own(p.b_stride, p.b_turned ? p.k : p.n);
  const std::int64_t cs = or_own(p.c_stride, p.n);
  for (std::int64_t t = 0; t < p.batch; ++t)
    for (std::int64_t i = 0; i < p.m; ++i)
      for (std::int64_t j = 0; j < p.n; ++j) {
        float sum = 0;
        for (std::int64_t x = 0; x < p.k; ++x)
          sum += p.a.get(t * p.a_step + (p.a_turned ? x * as + i : i * as + x)) *
                 p.b.get(t * p.b_step + (p.b_turned ? j * bs + x : x * bs + j));
        p.c.put(t * p.c_step + i * cs + j, p.scale * sum, p.add);
      }
}

void EmulatedMachine::copy(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0) std::memmove(to, from, static_cast<std::size_t>(bytes));
}

void EmulatedMachine::clear(void* at, std::int64_t bytes) {
  if (bytes > 0) std::memset(at, 0, static_cast<std::size_t>(bytes));
}

}  // namespace plimsoll::runtime::cuda
