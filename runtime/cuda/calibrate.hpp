// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "runtime/cuda/machine.hpp"
#include "runtime/wire.hpp"

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
  // Where a process was started for each GPU of a cluster:
  double nic = 0;  ///< bytes a second of a GPU to other nodes; 0: there were none
  int nodes = 1;
  std::vector<Rate> rings;  ///< bytes a second through each GPU's link, as a ring would need
};

/// Which ranks share a machine, by the names that their machines go by.
struct Nodes {
  std::vector<std::vector<std::int64_t>> inside;  ///< ranks of each node
  std::vector<std::vector<std::int64_t>> across;  ///< the first of all nodes, the second …
};
Nodes nodes_of(const std::vector<std::string>& machines);

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
  std::vector<std::int64_t> ring_bytes = {4 << 20, 64 << 20, 256 << 20};  ///< of a rank
};

/// Measures. Throws GpuError where the machine fails or has not the memory.
Calibration calibrate(Machine&, const CalibrationSizes& = {});

/// What the GPU of rank 0 reaches, and the links between all ranks' GPUs, each a process with a GPU
/// of its own (which \a open gives, or throws): all-gathers and all-reduces over NCCL among the
/// ranks of a node, and among those at the same place of all nodes, all groups at once; the slowest
/// rank's time. Or why not, in words. Whole on rank 0 alone.
std::variant<Calibration, std::string> calibrate_together(
    const std::function<std::unique_ptr<Machine>()>& open, Wire&, const std::string& machine_name,
    const CalibrationSizes& = {});

/// A `gpu` and a `cluster` declaration; \a date: "2026-11-30".
std::string declarations(const Calibration&, const std::string& date);

}  // namespace plimsoll::runtime::cuda
