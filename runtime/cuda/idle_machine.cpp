// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/idle_machine.hpp"

#include <cstring>

namespace plimsoll::runtime::cuda {

std::unique_ptr<Backing> IdleMachine::backing(std::int64_t capacity) {
  return std::make_unique<CountingBacking>(kMemory, capacity);
}

void IdleMachine::download(void* to, const void*, std::int64_t bytes) {
  std::memset(to, 0, static_cast<std::size_t>(bytes));
}

}  // namespace plimsoll::runtime::cuda
