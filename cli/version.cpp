// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "cli/version.hpp"

#include <fmt/format.h>

#include <string_view>

namespace plimsoll::cli {
namespace {

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

}  // namespace

std::string version_text() {
  const std::string_view z3 = PLIMSOLL_Z3;
  const std::string_view cuda = PLIMSOLL_CUDA, mpi = PLIMSOLL_MPI;
  return fmt::format(
      "plimsoll {}\n"
      "compiler {}, {} build\n"
      "{{fmt}}    {}.{}.{}\n"
      "Z3       {}\n"
      "CUDA     {}\n"
      "MPI      {}\n",
      PLIMSOLL_VERSION, compiler(), PLIMSOLL_BUILD_TYPE, FMT_VERSION / 10000,
      FMT_VERSION / 100 % 100, FMT_VERSION % 100, z3.empty() ? "not found" : z3,
      cuda == "none" ? "none: built without a CUDA toolkit" : cuda,
      mpi == "none" ? "none: built without it" : mpi);
}

std::string version_number() { return PLIMSOLL_VERSION; }
std::string compiler_text() { return compiler(); }
std::string build_type() { return PLIMSOLL_BUILD_TYPE; }
std::string z3_built() { return PLIMSOLL_Z3; }
std::string cuda_toolkit() {
  const std::string_view cuda = PLIMSOLL_CUDA;
  return cuda == "none" ? "" : std::string(cuda);
}

}  // namespace plimsoll::cli
