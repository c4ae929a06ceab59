// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/machine.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <memory>

namespace plimsoll::runtime {

namespace {

/// NVML's C interface, as far as it is used (its documentation: nvmlInit_v2 … return 0 where they
/// succeed; names are at most 96 characters).
class Nvml {
 public:
  /// nullptr where the library is not on the machine or cannot begin, with the reason.
  static std::unique_ptr<Nvml> open(std::string& why) {
    void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      why = "no NVIDIA driver (libnvidia-ml.so.1)";
      return nullptr;
    }
    std::unique_ptr<Nvml> nvml(new Nvml(library));
    const auto init = nvml->function<int (*)()>("nvmlInit_v2");
    const int error = init != nullptr ? init() : -1;
    if (error == 0) {
      nvml->begun_ = true;
      return nvml;
    }
    why = fmt::format("NVIDIA's management library does not begin (its error {})", error);
    return nullptr;
  }
  ~Nvml() {
    if (const auto end = function<int (*)()>("nvmlShutdown"); begun_ && end != nullptr) end();
    ::dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::string driver() const {
    const auto ask = function<int (*)(char*, unsigned)>("nvmlSystemGetDriverVersion");
    char text[128] = "";
    return ask != nullptr && ask(text, sizeof text - 1) == 0 ? text : "";
  }
  std::string cuda() const {
    const auto ask = function<int (*)(int*)>("nvmlSystemGetCudaDriverVersion_v2");
    int version = 0;
    if (ask == nullptr || ask(&version) != 0) return "";
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  }
  std::vector<MachineGpu> gpus() const {
    std::vector<MachineGpu> found;
    const auto count = function<int (*)(unsigned*)>("nvmlDeviceGetCount_v2");
    const auto handle = function<int (*)(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2");
    unsigned many = 0;
    if (count == nullptr || handle == nullptr || count(&many) != 0) return found;
    for (unsigned i = 0; i < many; ++i) {
      void* device = nullptr;
      if (handle(i, &device) == 0) found.push_back(look_at(device));
    }
    return found;
  }

 private:
  explicit Nvml(void* library) : library_(library) {}

  template <class Function>
  Function function(const char* name) const {
    return reinterpret_cast<Function>(::dlsym(library_, name));
  }

  MachineGpu look_at(void* device) const {
    struct Memory {
      unsigned long long total = 0, free = 0, used = 0;
    };
    MachineGpu gpu;
    const auto name = function<int (*)(void*, char*, unsigned)>("nvmlDeviceGetName");
    char text[128] = "";
    if (name != nullptr && name(device, text, sizeof text - 1) == 0) gpu.name = text;
    const auto memory = function<int (*)(void*, Memory*)>("nvmlDeviceGetMemoryInfo");
    if (Memory bytes; memory != nullptr && memory(device, &bytes) == 0) {
      gpu.memory_bytes = static_cast<std::int64_t>(bytes.total);
      gpu.used_bytes = static_cast<std::int64_t>(bytes.used);
    }
    const auto sm = function<int (*)(void*, int*, int*)>("nvmlDeviceGetCudaComputeCapability");
    int major = 0, minor = 0;
    if (sm != nullptr && sm(device, &major, &minor) == 0) gpu.sm = major * 10 + minor;
    gpu.known_as = known_gpu(gpu.name);
    return gpu;
  }

  void* library_;
  bool begun_ = false;
};

/// Parts of the driver's names, the longer ones first where one is in another.
struct KnownName {
  const char* part;
  const char* and_part;
  const char* gpu;
};
constexpr KnownName kKnown[] = {
    {"GB200", "", "gb200"},        {"GB300", "", "gb300"},   {"B200", "", "b200"},
    {"B300", "", "b300"},          {"H200", "", "h200"},     {"H100", "PCIe", "h100_pcie"},
    {"H100", "NVL", ""},           {"H100", "", "h100_sxm"}, {"A100", "80GB", "a100_80gb"},
    {"A100", "40GB", "a100_40gb"}, {"L40S", "", "l40s"},     {"RTX 4090", "", "rtx4090"},
    {"RTX 5090", "", "rtx5090"},
};

}  // namespace

std::string known_gpu(const std::string& driver_name) {
  for (const KnownName& row : kKnown)
    if (driver_name.find(row.part) != std::string::npos &&
        driver_name.find(row.and_part) != std::string::npos)
      return row.gpu;
  return "";
}

Machine look_at_machine() {
  Machine machine;
  machine.cpus = ::sysconf(_SC_NPROCESSORS_ONLN);
  machine.memory_bytes =
      static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  const auto nvml = Nvml::open(machine.why_no_driver);
  if (nvml == nullptr) return machine;
  machine.driver = nvml->driver();
  machine.driver_cuda = nvml->cuda();
  machine.gpus = nvml->gpus();
  return machine;
}

}  // namespace plimsoll::runtime
