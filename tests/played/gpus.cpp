// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// In place of the library's own: a machine with a GPU that is played. With it the program and the
// GPU tests run as they would on a GPU, which is how tests/gpu/run.sh is rehearsed. Idle: the
// ladder's runs at full size, without numbers; emulated: numbers, of toy models.

#include "runtime/cuda/gpus.hpp"

#include "runtime/cuda/emulated_machine.hpp"
#include "runtime/cuda/idle_machine.hpp"

namespace plimsoll::runtime::cuda {

std::string why_no_gpu() { return ""; }

std::unique_ptr<Machine> open_gpu(int) { return std::make_unique<PLIMSOLL_PLAYED_MACHINE>(); }

int gpu_count() { return 1; }

double peer_bandwidth(int, int) { return 1e11; }

}  // namespace plimsoll::runtime::cuda
