// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// What this machine has: asked of the system and of NVIDIA's management library, which is looked
/// for when the program runs. Needs no CUDA toolkit.
namespace plimsoll::runtime {

struct MachineGpu {
  std::string name;  ///< as the driver calls it: "NVIDIA H100 80GB HBM3"
  std::int64_t memory_bytes = 0, used_bytes = 0;
  int sm = 0;            ///< 90; 0: not known
  std::string known_as;  ///< the prelude's name of it, "" where it has none
};

struct Machine {
  std::int64_t cpus = 0, memory_bytes = 0;
  std::string driver;         ///< version of NVIDIA's driver, "" without one
  std::string driver_cuda;    ///< the newest CUDA that it runs, "13.0"
  std::string why_no_driver;  ///< in words, where there is none
  std::vector<MachineGpu> gpus;
};

Machine look_at_machine();

/// The prelude's name of a GPU by the driver's; "" where none is meant.
std::string known_gpu(const std::string& driver_name);

}  // namespace plimsoll::runtime
