// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/calibrate.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <ctime>

#include "cli/command.hpp"
#include "runtime/cuda/gpu_error.hpp"
#include "runtime/cuda/gpus.hpp"

namespace plimsoll::cli {

namespace {

namespace cuda = runtime::cuda;

constexpr const char* kHelp = "the prelude's GPUs are declared from data sheets: name one of them";

Outcome printed(const cuda::Calibration& measured) {
  const std::string date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  return {kDone, cuda::declarations(measured, date), ""};
}

/// One of the processes that were started, each with a GPU of its own; rank 0 speaks for all.
Outcome calibrate_as_one_of_many() {
  auto opened = runtime::open_wire();
  if (const auto* why = std::get_if<std::string>(&opened))
    return user_error(*why, "start it without mpirun: one GPU is measured then");
  const auto wire = std::get<std::unique_ptr<runtime::Wire>>(std::move(opened));
  char machine[256] = "";
  ::gethostname(machine, sizeof machine - 1);
  const auto ran = cuda::calibrate_together(cuda::open_own_gpu, *wire, machine);
  if (wire->rank() != 0 && wire->gone() != 0) return {kDone, "", ""};
  if (const auto* why = std::get_if<std::string>(&ran)) return user_error(*why, kHelp);
  return printed(std::get<cuda::Calibration>(ran));
}

}  // namespace

Outcome calibrate(const Options&, const Terminal&) {
  if (runtime::processes_started() > 1) return calibrate_as_one_of_many();
  if (const std::string why = cuda::why_no_gpu(); !why.empty()) return user_error(why, kHelp);
  try {
    const auto machine = cuda::open_gpu(0);
    cuda::Calibration measured = cuda::calibrate(*machine);
    measured.gpus = cuda::gpu_count();
    if (measured.gpus > 1) measured.nvlink = cuda::peer_bandwidth(0, 1);
    return printed(measured);
  } catch (const cuda::GpuError& e) {
    return user_error(e.what(), kHelp);
  }
}

}  // namespace plimsoll::cli
