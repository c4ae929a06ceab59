// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <stdexcept>
#include <string>

namespace plimsoll::runtime::cuda {

/// A call to CUDA, cuBLASLt or NCCL failed, or one of their libraries is not on this machine.
class GpuError : public std::runtime_error {
 public:
  explicit GpuError(const std::string& what) : std::runtime_error(what) {}
  GpuError(const std::string& why, const char* call, const char* file, int line)
      : std::runtime_error(why + ": " + call + " (" + file + ':' + std::to_string(line) + ')') {}
};

}  // namespace plimsoll::runtime::cuda
