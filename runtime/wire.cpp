// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/wire.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

namespace plimsoll::runtime {

namespace {

/// Folder of the running program, with a slash at its end.
std::string own_folder() {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  const std::string program(path, length > 0 ? static_cast<std::size_t>(length) : 0);
  return program.substr(0, program.rfind('/') + 1);
}

}  // namespace

int processes_started() {
  // Open MPI's mpirun; MPICH's and its relatives'.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* size = std::getenv(name)) return std::atoi(size);
  return 1;
}

std::variant<std::unique_ptr<Wire>, std::string> open_wire() {
  const std::string name = "libplimsoll_mpi.so", folder = own_folder();
  void* module = nullptr;
  for (const std::string& where : {folder, folder + "../", folder + "../lib/plimsoll/"})
    if (!module) module = ::dlopen((where + name).c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!module)
    return "mpirun started this, but " + name +
           " is not beside the program: it is built where MPI is found (Debian's libopenmpi-dev)";
  using Open = Wire*();
  auto* open = reinterpret_cast<Open*>(::dlsym(module, "plimsoll_open_mpi"));  // NOLINT
  if (!open) return name + " is of another version";
  return std::unique_ptr<Wire>(open());
}

}  // namespace plimsoll::runtime
