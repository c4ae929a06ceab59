// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/cuda/machine.hpp"

/// What this machine's GPU reaches, as declarations of the language that the planner uses in place
/// of the prelude's.
namespace plimsoll::runtime::cuda {

struct Rate {
  std::string what;  ///< "8192 x 8192 x 8192"
  double per_second = 0;
};

struct Calibration {
  std::string gpu, driver;
  int sm = 0, multiprocessors = 0, gpus = 1;
  std::int64_t memory = 0;      ///< all of it, by the driver
  std::int64_t reserved = 0;    ///< in use with a context and libraries and nothing else
  double bandwidth = 0;         ///< bytes read and written a second by a copy
  std::vector<Rate> products;   ///< FLOP/s of bf16 products
  std::vector<Rate> attention;  ///< FLOP/s of this program's attention, forward
  double nvlink = 0;            ///< bytes a second to another GPU; 0: none was there
};

/// How much work to measure with.
struct CalibrationSizes {
  std::int64_t copy_bytes = std::int64_t{2} << 30;
  std::vector<std::int64_t> tokens = {4096, 8192};
  /// Of a linear: inputs and outputs, as on a rank of models that are trained (Llama 3 8B, 70B).
  std::vector<std::pair<std::int64_t, std::int64_t>> linears = {
      {4096, 6144}, {4096, 28672}, {14336, 4096}, {8192, 8192}, {8192, 57344}, {28672, 8192}};
  std::int64_t heads = 32, width = 128;
  std::vector<std::int64_t> sequences = {4096, 8192};
  int turns = 10;
};

/// Measures. Throws GpuError where the machine fails or has not the memory.
Calibration calibrate(Machine&, const CalibrationSizes& = {});

/// A `gpu` and a `cluster` declaration; \a date: "2026-11-30".
std::string declarations(const Calibration&, const std::string& date);

}  // namespace plimsoll::runtime::cuda
