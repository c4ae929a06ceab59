// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <memory>
#include <string>

#include "runtime/cuda/machine.hpp"

/// What this build and this machine have for the device `cuda`. Without a toolkit the answers are
/// those of without_toolkit.cpp.
namespace plimsoll::runtime::cuda {

/// Why no GPU can be used, in words that name what is missing (the toolkit in the build, the driver
/// or a GPU on the machine); "" where one can.
std::string why_no_gpu();

/// The GPU of that number, made this thread's; asked for where why_no_gpu() is "". Throws GpuError.
std::unique_ptr<Machine> open_gpu(int number);

/// A process's own among those that it sees, by its number on the machine: srun may show it one
/// alone. Throws GpuError, also with why_no_gpu().
std::unique_ptr<Machine> open_own_gpu();

int gpu_count();
/// Bytes a second of a copy from one GPU's memory to another's. Throws GpuError.
double peer_bandwidth(int from, int to);

}  // namespace plimsoll::runtime::cuda
