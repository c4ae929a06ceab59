// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// What people paste when memory runs out, in numbers. Every tool read here prints powers of two,
/// also where it writes "GB" or "MB" (Megatron-LM, DeepSpeed and SGLang divide by 1024).
namespace plimsoll::logs {

/// A size as it was printed: the true one lies within `slack` of `bytes`.
struct Seen {
  std::int64_t bytes = 0;
  std::int64_t slack = 0;  ///< half a unit of the last digit printed

  friend bool operator==(const Seen&, const Seen&) = default;
};

/// Where in a run a traceback says that it ended.
enum class Where : std::uint8_t { unknown, construction, forward, backward, update };

/// PyTorch's message (c10/cuda/CUDACachingAllocator.cpp), of any version.
struct Failure {
  std::int64_t line = 0;
  std::optional<std::int64_t> rank, gpu;
  bool outside = false;  ///< CUDA, cuBLAS or NCCL could not allocate: no request of the allocator
  /// The new segment that it asked the driver for, not the tensor: 2 MiB, 20 MiB, or from 10 MiB on
  /// the tensor rounded up to 2 MiB.
  std::optional<Seen> segment;
  std::optional<Seen> capacity, free, allowed;
  std::optional<Seen> in_use;       ///< by this process, as the driver counts
  std::optional<Seen> allocated;    ///< blocks in use
  std::optional<Seen> unallocated;  ///< reserved and in no use
  std::optional<Seen> graphs;       ///< allocated in private pools
  std::optional<Seen> others;       ///< all other processes that it names
  Where where = Where::unknown;
};

/// A line of counters of PyTorch's allocator, as a training stack prints it.
struct Counters {
  std::string tool;  ///< "Megatron-LM", "DeepSpeed", "torchtitan", "PyTorch"
  std::int64_t line = 0;
  std::optional<std::int64_t> rank;
  std::optional<Seen> allocated, most_allocated, reserved, most_reserved;
};

/// A GPU as the driver sees it.
struct Device {
  std::int64_t line = 0;
  std::optional<std::int64_t> gpu;
  Seen used;
  std::optional<Seen> total;
};

/// What an inference server says while it starts.
struct Server {
  std::string tool;  ///< "vLLM", "SGLang"
  std::int64_t line = 0;
  std::optional<Seen> total, share, weights, activations, outside, graphs, cache;
  std::optional<Seen> cache_needed;  ///< one sequence of full length, where that was too much
  std::optional<Seen> left;          ///< free after the cache was made
  /// Free before it took anything, where that was less than its share: others held the rest.
  std::optional<Seen> free_at_start;
  std::optional<double> utilization;
  std::optional<std::int64_t> cache_tokens, blocks, context;
  bool no_room = false;  ///< it stopped since nothing, or too little, was left for the cache
};

struct MemoryLog {
  std::vector<Failure> failures;
  std::vector<Counters> counters;
  std::vector<Device> devices;
  std::optional<Server> server;

  bool empty() const { return failures.empty() && counters.empty() && devices.empty() && !server; }
};

/// Reads a log; what it does not know it passes over. Never fails.
MemoryLog read_memory_log(std::string_view text);

// --- for the readers of single tools

/// A number with its unit at the start of \a text, blanks before it allowed: "1.50 GiB", "12345.6"
/// (in \a unit), "70000MiB", "512 bytes".
std::optional<Seen> size_at(std::string_view text, std::string_view unit = "");
/// The size behind the first \a phrase of \a text.
std::optional<Seen> size_after(std::string_view text, std::string_view phrase,
                               std::string_view unit = "");
/// The size before the first \a phrase of \a text.
std::optional<Seen> size_before(std::string_view text, std::string_view phrase);
/// A whole number, with or without commas, at the start of \a text or behind a phrase of it.
std::optional<std::int64_t> count_at(std::string_view text);
std::optional<std::int64_t> count_after(std::string_view text, std::string_view phrase);

/// One line of a server's log; false where it says nothing of memory.
bool read_server_line(std::string_view line, std::int64_t number, std::optional<Server>&);

}  // namespace plimsoll::logs
