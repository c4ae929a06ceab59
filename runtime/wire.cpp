// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/wire.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "runtime/tcp_wire.hpp"

namespace plimsoll::runtime {

namespace {

/// Folder of the running program, with a slash at its end.
std::string own_folder() {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  const std::string program(path, length > 0 ? static_cast<std::size_t>(length) : 0);
  return program.substr(0, program.rfind('/') + 1);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}
int number(const char* name, int otherwise) {
  const std::string value = variable(name);
  return value.empty() ? otherwise : std::atoi(value.c_str());
}

/// By torchrun's names, or srun's where somebody says where rank 0 is.
std::optional<TcpPlace> tcp_place() {
  TcpPlace p;
  p.host = variable("MASTER_ADDR");
  p.port = number("MASTER_PORT", 29400);
  if (!variable("WORLD_SIZE").empty() && !variable("RANK").empty()) {
    p.size = number("WORLD_SIZE", 1);
    p.rank = number("RANK", 0);
  } else if (!variable("SLURM_STEP_NUM_TASKS").empty() && !variable("SLURM_PROCID").empty()) {
    p.size = number("SLURM_STEP_NUM_TASKS", 1);
    p.rank = number("SLURM_PROCID", 0);
    if (p.host.empty()) p.host = variable("SLURM_LAUNCH_NODE_IPADDR");
  }
  if (p.size < 2) return std::nullopt;
  if (p.host.empty()) p.host = "localhost";
  return p;
}

bool by_mpi() { return number("OMPI_COMM_WORLD_SIZE", number("PMI_SIZE", 1)) > 1; }

}  // namespace

int processes_started() {
  // Open MPI's mpirun; MPICH's and its relatives'.
  if (by_mpi()) return number("OMPI_COMM_WORLD_SIZE", number("PMI_SIZE", 1));
  const auto place = tcp_place();
  return place ? place->size : 1;
}

int local_rank() {
  for (const char* name :
       {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "LOCAL_RANK", "SLURM_LOCALID"})
    if (!variable(name).empty()) return number(name, 0);
  return 0;
}

std::string first_word(Wire& wire, const std::string& mine) {
  constexpr std::int64_t kAsks = 1, kAnswer = 2;
  const auto say = [&](int to, std::int64_t tag, const std::string& words) {
    wire.send(to, Channel::results, tag, words.data(), words.size());
  };
  const auto hear = [&](int from, std::int64_t tag) {
    std::vector<std::byte> letter;
    if (!wire.receive(from, Channel::results, tag, letter)) return silent(wire, from);
    return std::string(reinterpret_cast<const char*>(letter.data()), letter.size());  // NOLINT
  };
  if (wire.rank() != 0) {
    say(0, kAsks, mine);
    return hear(0, kAnswer);
  }
  std::string first = mine;
  for (int r = 1; r < wire.size(); ++r) {
    const std::string theirs = hear(r, kAsks);
    if (first.empty()) first = theirs;
  }
  for (int r = 1; r < wire.size(); ++r) say(r, kAnswer, first);
  return first;
}

std::string silent(const Wire& wire, int rank) {
  if (wire.gone() >= 0)
    return "the process of rank " + std::to_string(wire.gone()) +
           " ended without a word; the other ranks were stopped";
  return "rank " + std::to_string(rank) + " did not answer within " +
         std::to_string(Wire::kPatience) + " seconds after the run was stopped";
}

std::variant<std::unique_ptr<Wire>, std::string> open_wire() {
  if (!by_mpi()) {
    const auto place = tcp_place();
    return open_tcp(place.value_or(TcpPlace{}));
  }
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
