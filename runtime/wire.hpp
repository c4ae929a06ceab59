// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

/// Messages between ranks that are processes. Started by mpirun they go by MPI, which is in a
/// library of its own beside the program (libplimsoll_mpi.so): a program that runs alone never
/// loads it.
namespace plimsoll::runtime {

/// Who is told apart from whom: letters between stages, meetings of groups, results.
enum class Channel : std::int32_t { letters, meetings, results, stop };

class Wire {
 public:
  virtual ~Wire() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Never waits for the reader.
  virtual void send(int to, Channel, std::int64_t tag, const void* data, std::size_t bytes) = 0;
  /// The oldest message of that kind; waits for it. Returns false where another rank stopped the
  /// run instead (results are still waited for, kPatience seconds from then on), or where the
  /// sender's process ended without a word.
  virtual bool receive(int from, Channel, std::int64_t tag, std::vector<std::byte>& message) = 0;
  /// Tells all that the run is over: whoever waits for anything but results is woken.
  virtual void stop() = 0;
  /// Is it over? Looks at what has come since; for whoever waits for something else.
  virtual bool stopped() = 0;
  /// A rank whose process ended without a word, which stops the run; -1: none is known. (Of ranks
  /// that mpirun started none is: it ends them all.)
  virtual int gone() const { return -1; }
  /// Seconds that a stopped run waits for what others have to say of it, and for their farewell.
  static constexpr int kPatience = 15;
};

/// How many processes this program was started as, by what mpirun, torchrun or srun leave in the
/// environment: 1 where it was started alone.
int processes_started();
/// This process's number on its machine: which GPU is its own.
int local_rank();

/// The first rank's words that are not "", told to all: what each has to say before they begin
/// together, or do not.
std::string first_word(Wire&, const std::string& mine);

/// Why nothing came from \a rank, in words: its process ended, another's did, or it hangs.
std::string silent(const Wire&, int rank);

/// Joins them; or why that cannot be.
std::variant<std::unique_ptr<Wire>, std::string> open_wire();

}  // namespace plimsoll::runtime
