// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/version.hpp"
#include "lang/units.hpp"
#include "planner/smt_version.hpp"
#include "runtime/cuda/gpus.hpp"
#include "runtime/machine.hpp"

namespace plimsoll::cli {

namespace {

/// `plimsoll.doctor/1` (docs/schemas/doctor.schema.json).
std::string as_json(const runtime::Machine& machine, const std::string& why_no_gpu) {
  using Json = nlohmann::ordered_json;
  const auto known = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  Json out;
  out["schema"] = "plimsoll.doctor/1";
  out["version"] = version_number();
  out["build"] = {
      {"compiler", compiler_text()}, {"type", build_type()}, {"cuda", known(cuda_toolkit())}};
  out["z3"] = {{"built", z3_built()}, {"running", smt::version()}};
  out["cpus"] = machine.cpus;
  out["memory_bytes"] = machine.memory_bytes;
  out["driver"] = known(machine.driver);
  out["driver_cuda"] = known(machine.driver_cuda);
  out["gpus"] = Json::array();
  for (const runtime::MachineGpu& gpu : machine.gpus)
    out["gpus"].push_back({{"name", gpu.name},
                           {"known_as", known(gpu.known_as)},
                           {"memory_bytes", gpu.memory_bytes},
                           {"used_bytes", gpu.used_bytes},
                           {"sm", gpu.sm}});
  out["device_cuda"] = why_no_gpu.empty();
  out["why_not"] = known(why_no_gpu);
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

std::string as_text(const runtime::Machine& machine, const std::string& why_no_gpu) {
  std::string out;
  const auto line = [&](const char* name, const std::string& value) {
    out += fmt::format("{:<13} {}\n", name, value);
  };
  line("plimsoll",
       fmt::format("{}, {}, {} build", version_number(), compiler_text(), build_type()));
  line("Z3", z3_built() == smt::version()
                 ? smt::version()
                 : fmt::format("{}; built with {}", smt::version(), z3_built()));
  line("CUDA toolkit", cuda_toolkit().empty() ? "none: built without one" : cuda_toolkit());
  line("machine", fmt::format("{} CPU{}, {} of memory", grouped(machine.cpus),
                              machine.cpus == 1 ? "" : "s", human_bytes(machine.memory_bytes)));
  line("NVIDIA driver",
       machine.driver.empty()
           ? "none found: " + machine.why_no_driver
           : machine.driver + (machine.driver_cuda.empty()
                                   ? ""
                                   : fmt::format(", runs CUDA up to {}", machine.driver_cuda)));
  if (machine.gpus.empty()) line("GPUs", "none found");
  for (const runtime::MachineGpu& gpu : machine.gpus)
    line("GPU",
         fmt::format("{}, {}, {} in use{}{}", gpu.name, human_bytes(gpu.memory_bytes),
                     human_bytes(gpu.used_bytes), gpu.sm > 0 ? fmt::format(", sm {}", gpu.sm) : "",
                     gpu.known_as.empty() ? "; no GPU of the prelude: declare it"
                                          : fmt::format("; gpu = {}", gpu.known_as)));
  out += "\nplan, bill, explain, timeline, verify on dry and host: ready\n";
  out += why_no_gpu.empty() ? "verify --device cuda: ready\n"
                            : fmt::format("verify --device cuda: not here: {}\n", why_no_gpu);
  return out;
}

}  // namespace

Outcome doctor(const Options& options, const Terminal&) {
  const runtime::Machine machine = runtime::look_at_machine();
  const std::string why = runtime::cuda::why_no_gpu();
  return {kDone, options.json ? as_json(machine, why) : as_text(machine, why), ""};
}

}  // namespace plimsoll::cli
