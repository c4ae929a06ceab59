// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/calibrate.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

#include "cli/command.hpp"
#include "runtime/cuda/gpu_error.hpp"
#include "runtime/cuda/gpus.hpp"

namespace plimsoll::cli {

Outcome calibrate(const Options&, const Terminal&) {
  namespace cuda = runtime::cuda;
  const char* help = "the prelude's GPUs are declared from data sheets: name one of them";
  if (const std::string why = cuda::why_no_gpu(); !why.empty()) return user_error(why, help);
  try {
    const auto machine = cuda::open_gpu(0);
    cuda::Calibration measured = cuda::calibrate(*machine);
    measured.gpus = cuda::gpu_count();
    if (measured.gpus > 1) measured.nvlink = cuda::peer_bandwidth(0, 1);
    const std::string date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
    return {kDone, cuda::declarations(measured, date), ""};
  } catch (const cuda::GpuError& e) {
    return user_error(e.what(), help);
  }
}

}  // namespace plimsoll::cli
