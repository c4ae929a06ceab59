// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cuda_runtime.h>

#include "runtime/cuda/kernel.hpp"

namespace plimsoll::runtime::cuda {

void launch_on(cudaStream_t, const Kernel&, const LaunchShape&);

}  // namespace plimsoll::runtime::cuda
