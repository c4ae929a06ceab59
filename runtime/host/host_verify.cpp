// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/host/host_verify.hpp"

#include <unistd.h>

#include "lang/units.hpp"
#include "runtime/replay.hpp"

namespace plimsoll::runtime::host {

namespace {

/// Threads beyond this many would mostly wait for each other.
constexpr std::int64_t kMostRanks = 64;

std::int64_t half_of_memory() {
  return static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE) / 2;
}

}  // namespace

std::variant<Verification, std::string> verify_host(const Problem& p, const Bill& bill,
                                                    const std::vector<std::int64_t>& ranks,
                                                    std::optional<std::int64_t> limit, int steps,
                                                    Wire* wire) {
  const Layout& l = bill.layout;
  if (std::string why = why_not_on_host(p, l); !why.empty()) return why;
  if (wire && wire->size() != rank_count(l))
    return fmt::format("it was started as {} processes; this layout has {} ranks", wire->size(),
                       rank_count(l));
  if (!wire && rank_count(l) > kMostRanks)
    return fmt::format("the host runs every rank as a thread, at most {}; this layout has {}",
                       kMostRanks, rank_count(l));
  const std::int64_t most = limit.value_or(half_of_memory());
  if (const Int128 wanted = bytes_on_host(p, l); wanted > most)
    return fmt::format(
        "{} would hold {} of tensors{}; the limit is {}",
        rank_count(l) == 1 ? "its one rank" : fmt::format("its {} ranks", rank_count(l)),
        human_bytes(wanted), rank_count(l) == 1 ? "" : " together", human_bytes(most));
  HostOptions options;
  options.steps = steps;
  options.same_text = true;
  options.allocator = allocator_options(p);
  options.total_capacity = most;
  const HostRun run = run_on_host(p, l, options, wire);
  if (wire && wire->rank() != 0) return Verification{};
  Verification result;
  if (run.failure) {
    const HostFailure& f = *run.failure;
    result.device = "host";
    result.agrees = false;
    result.failure =
        VerifyFailure{f.rank, f.tensor, f.bytes, f.at, f.live, f.reserved, f.categories};
    return result;
  }
  std::vector<Observation> seen;
  for (const std::int64_t rank : ranks) {
    const HostRankResult& r = run.ranks.at(static_cast<std::size_t>(rank));
    seen.push_back({rank, r.peak, r.allocator.reserved.peak});
  }
  result = compare(p, bill, "host", seen);
  result.losses = run.losses;
  return result;
}

}  // namespace plimsoll::runtime::host
