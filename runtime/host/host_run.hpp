// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/dry/dry_device.hpp"
#include "runtime/host/host_world.hpp"
#include "runtime/verify.hpp"

/// Optimizer steps of a whole layout on this machine: every rank a thread, real numbers.
namespace plimsoll::runtime::host {

struct HostRankResult {
  LivePeak peak;             ///< of all moments of all steps
  AllocatorStats allocator;  ///< before everything was freed
  std::int64_t left = 0;     ///< tensors that nobody freed: 0, or it is a bug
};

struct HostRun {
  std::vector<double> losses;  ///< mean over the tokens of a step, by step
  std::vector<HostRankResult> ranks;
  std::optional<VerifyFailure> failure;  ///< of the ranks that ran out, the first by number
  /// Where ranks are processes: what went wrong with one of them other than memory, in words; then
  /// the rest is worth nothing.
  std::string trouble;
  /// By step: gradients before they are clipped, and parameters after the update.
  std::vector<WholeTensors> gradients, parameters;
};

/// Why the host cannot do this job's arithmetic, in words; "" where it can.
std::string why_not_on_host(const Problem&, const Layout&);

/// Bytes that all ranks' tensors would take together at their peaks, by the bill.
Int128 bytes_on_host(const Problem&, const Layout&);

/// Throws InternalError where why_not_on_host() has a reason, or a rank fails for another one than
/// memory. In each case the other ranks end as soon as they wait for it.
/// \a wire: this process is one rank, and what comes back is whole on rank 0 alone.
HostRun run_on_host(const Problem&, const Layout&, const HostOptions&, Wire* wire = nullptr);

}  // namespace plimsoll::runtime::host
