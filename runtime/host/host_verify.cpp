// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/host/host_verify.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "lang/units.hpp"
#include "planner/switches.hpp"
#include "runtime/replay.hpp"

namespace plimsoll::runtime::host {

namespace {

/// Threads beyond this many would mostly wait for each other.
constexpr std::int64_t kMostRanks = 64;

std::int64_t half_of_memory() {
  return static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE) / 2;
}

/// What each rank may have of \a most: by what it would take of a machine without a limit, so that
/// where memory ends follows from the program, and from no race between ranks.
std::vector<std::int64_t> shares(const Problem& p, const Layout& l, const AllocatorOptions& options,
                                 std::int64_t most) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> played;  // by stage and shard
  std::vector<std::int64_t> wanted;
  Int128 sum = 0;
  for (std::int64_t rank = 0; rank < rank_count(l); ++rank) {
    const RankPlace place = place_of(l, rank);
    const auto [at, is_new] = played.try_emplace({place.stage, place.shard});
    if (is_new) at->second = replay(StagePlan(p, l, rank), options).peak_reserved;
    wanted.push_back(at->second);
    sum += at->second;
  }
  for (std::int64_t& bytes : wanted)
    bytes = static_cast<std::int64_t>(Int128{most} * bytes / std::max<Int128>(sum, 1));
  return wanted;
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
  options.ring = switch_of(p, "cp_comm") != "a2a";
  options.allocator = allocator_options(p);
  options.total_capacity = most;
  options.capacities = shares(p, l, options.allocator, most);
  const HostRun run = run_on_host(p, l, options, wire);
  if (wire && wire->rank() != 0) {
    if (wire->gone() == 0) return silent(*wire, 0);
    return Verification{};
  }
  Verification result;
  if (run.failure) {
    result.device = "host";
    result.agrees = false;
    result.failure = run.failure;
    return result;
  }
  if (!run.trouble.empty()) return run.trouble;
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
