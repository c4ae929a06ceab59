// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/library.hpp"

#include <dlfcn.h>

#include "runtime/cuda/gpu_error.hpp"

namespace plimsoll::runtime::cuda {

Library::Library(const std::vector<std::string>& names) {
  std::string asked;
  for (const std::string& name : names) {
    asked += (asked.empty() ? "" : ", ") + name;
    for (const char* folder : {"", "/usr/local/cuda/lib64/"}) {
      if (handle_) break;
      handle_ = ::dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL);
      name_ = folder + name;
    }
  }
  if (!handle_)
    throw GpuError("none of these libraries is on this machine: " + asked +
                   " (LD_LIBRARY_PATH says where else to look)");
}

Library::~Library() { ::dlclose(handle_); }

void* Library::symbol(const char* name) const {
  void* at = ::dlsym(handle_, name);
  if (!at) throw GpuError(name_ + " has no function " + name);
  return at;
}

}  // namespace plimsoll::runtime::cuda
