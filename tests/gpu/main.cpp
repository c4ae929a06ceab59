// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#define CATCH_CONFIG_RUNNER
#include <cstdio>

#include "runtime/cuda/gpus.hpp"
#include "tests/catch.hpp"

int main(int argc, char** argv) {
  if (const std::string why = plimsoll::runtime::cuda::why_no_gpu(); !why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return 77;
  }
  return Catch::Session().run(argc, argv);
}
