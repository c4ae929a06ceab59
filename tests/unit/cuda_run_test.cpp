// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// The device cuda, but for the GPU: its orders and the arithmetic of its kernels give the host's
// loss, gradients and parameters, in the memory that the bill says.

#include "tests/unit/cuda_case.hpp"

using namespace plimsoll;
using namespace plimsoll::testing;

TEST_CASE("cuda run: one rank", "[cuda]") { check_on_cuda(kLlama, {{1, ""}}); }
