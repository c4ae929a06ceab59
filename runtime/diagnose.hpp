// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/memory_log.hpp"
#include "planner/peak.hpp"
#include "runtime/requests.hpp"

/// A log set beside the bill of the job that wrote it: what ran out, when, and what would have
/// fitted.
namespace plimsoll::runtime {

enum class Cause : std::uint8_t {
  billed,      ///< the bill says that the layout does not fit, and the log is no more than it says
  more,        ///< the run held more than the bill says: the file does not tell what ran
  fragmented,  ///< there was memory, but in pieces
  others,      ///< other processes held what was lacking
  outside,     ///< context, communicators and libraries took more than the bill counts
  smaller,     ///< the GPU has less memory than the file says
  narrow,      ///< the bill has it fit, by less than the bill's own error
  agrees,      ///< no failure; the counters are those of the bill
  less,        ///< no failure; the run held less than the bill says
  server,      ///< an inference server's account
};
std::string_view name(Cause);

/// One figure of the log beside the bill's.
struct Beside {
  std::string what;
  std::optional<std::int64_t> seen, billed;
};

/// A change of the file under which the bill would be what the log says.
struct Explanation {
  std::string change;
  std::int64_t allocated = 0;  ///< that the bill then has at that moment
};

/// A single change that would have fitted, what the log has over the bill added.
struct Fix {
  std::string change;
  std::int64_t peak = 0;
  std::optional<double> slower;  ///< share of a step; negative: shorter
  std::string layout;            ///< describe() of it; "" where it stays
};

struct Diagnosis {
  Cause cause = Cause::narrow;
  std::string verdict;
  std::string from;  ///< "line 12: rank 3, GPU 3, in the backward"
  std::int64_t stage = 0;
  std::vector<Beside> figures;
  std::optional<logs::Seen> segment;  ///< of the request that failed
  bool telling = false;               ///< its size tells tensors apart
  std::vector<Request> requests;      ///< most likely first
  std::int64_t over = 0;              ///< bytes that the log has over the bill
  bool tried = false;                 ///< to explain what the log has over the bill, or under it
  std::vector<Explanation> explanations;
  std::vector<Fix> fixes;
  std::vector<std::string> notes;
};

/// \a stage: that the log is of; nullopt: the one of the rank it names, else the one that explains
/// it best. The log is not empty.
Diagnosis diagnose(const Problem&, const Bill&, const logs::MemoryLog&,
                   std::optional<std::int64_t> stage);

/// Single changes of a layout (and of the job where only it can change) that bring its peak, with
/// \a extra bytes added, under the memory: the shortest steps first.
std::vector<Fix> nearest_fixes(const Problem&, const Layout&, std::int64_t extra);

/// A request that could not be met.
struct Shortage {
  std::optional<logs::Seen> segment;
  std::int64_t limit = 0;  ///< bytes that PyTorch's allocator could have
};

/// Single changes of the file, each tried in it, that account for the bytes that the log had in
/// use; nearest first. With a shortage: under which the steps, played in its memory, first run out
/// at that segment and at those bytes; else under which they are the bill's peak.
std::vector<Explanation> explain_difference(const Problem&, const Layout&, std::int64_t stage,
                                            std::int64_t allocated, const std::optional<Shortage>&);

/// A log without a failure: the most of each counter beside the bill.
Diagnosis diagnose_counters(const Problem&, const Bill&, const logs::MemoryLog&,
                            std::optional<std::int64_t> stage);

/// Context, communicators and libraries in a stage's bill.
std::int64_t outside_bytes(const Problem&, const StageBill&);
/// Share by which a bill may be off, whatever it is of.
double error_margin(const Problem&);

/// A server's log beside its bill.
Diagnosis diagnose_server(const Problem&, const Bill&, const logs::Server&);

}  // namespace plimsoll::runtime
