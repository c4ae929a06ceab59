// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/verify.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "lang/diagnostics.hpp"
#include "planner/segments.hpp"
#include "runtime/executor.hpp"
#include "runtime/replay.hpp"
#include "runtime/timeline.hpp"

namespace plimsoll::runtime {

namespace {

using Sums = std::map<std::pair<Category, std::string>, std::pair<std::int64_t, std::int64_t>>;

constexpr const char* kShared = "values that several layers read";

void add_predicted(Sums& sums, const Problem& p, const StageBill& b) {
  for (const BillLine& line : b.lines) {
    const bool row = line.item != kNone;
    if (row ? p.inventory.items[line.item].outside : line.category == Category::fragmentation)
      continue;
    sums[{line.category, line.name}].first += static_cast<std::int64_t>(line.bytes);
  }
}

void add_observed(Sums& sums, const Problem& p, const LivePeak& peak) {
  for (std::size_t row = 0; row < peak.rows.size(); ++row) {
    if (peak.rows[row] == 0) continue;
    const bool shared = row + 1 == peak.rows.size();
    const Category category = shared ? Category::activations : p.inventory.items[row].category;
    sums[{category, shared ? kShared : p.inventory.items[row].name}].second += peak.rows[row];
  }
}

void find_differences(RankCheck& check, const Problem& p, const StageBill& b,
                      const LivePeak& peak) {
  Sums sums;
  add_predicted(sums, p, b);
  add_observed(sums, p, peak);
  std::map<Category, Difference> categories;
  for (const auto& [key, bytes] : sums) {
    Difference& c = categories[key.first];
    c.name = name(key.first);
    c.category = key.first;
    c.predicted += bytes.first;
    c.observed += bytes.second;
    if (bytes.first != bytes.second)
      check.items.push_back({key.second, key.first, bytes.first, bytes.second});
  }
  for (const auto& [category, difference] : categories)
    if (difference.predicted != difference.observed) check.categories.push_back(difference);
  std::stable_sort(check.items.begin(), check.items.end(),
                   [](const Difference& x, const Difference& y) {
                     return std::abs(x.observed - x.predicted) > std::abs(y.observed - y.predicted);
                   });
}

}  // namespace

std::vector<std::int64_t> chosen_ranks(const Bill& bill, const RankChoice& choice) {
  if (choice.kind == RankChoice::one) return {choice.rank};
  if (choice.kind == RankChoice::worst) return {rank_in_stage(bill.layout, 0, bill.peak_stage)};
  std::vector<std::int64_t> ranks;
  for (std::int64_t r = 0; r < rank_count(bill.layout); ++r) ranks.push_back(r);
  return ranks;
}

Verification compare(const Problem& p, const Bill& bill, std::string device,
                     const std::vector<Observation>& observations) {
  Verification v;
  v.device = std::move(device);
  for (const Observation& o : observations) {
    RankCheck check;
    check.rank = o.rank;
    check.stage = place_of(bill.layout, o.rank).stage;
    const StageBill& b = bill.stages.at(static_cast<std::size_t>(check.stage));
    check.predicted = static_cast<std::int64_t>(b.live_bytes);
    check.observed = o.peak.bytes;
    check.reserved = o.reserved;
    check.bill_reserved = replays(p) ? std::max(p.segments->reserved(p, bill.layout, check.stage),
                                                static_cast<std::int64_t>(b.allocated_bytes))
                                     : static_cast<std::int64_t>(b.reserved_bytes);
    check.predicted_moment = b.peak_moment;
    check.observed_moment = point_name(p, o.peak.at);
    if (check.difference() != 0) find_differences(check, p, b, o.peak);
    if (std::abs(check.difference()) > std::abs(v.worst_difference))
      v.worst_difference = check.difference();
    v.ranks.push_back(std::move(check));
  }
  v.agrees = v.worst_difference == 0;
  return v;
}

namespace {

/// One rank's steps; a failure instead where the memory ends.
std::optional<VerifyFailure> play(const StagePlan& plan, std::optional<std::int64_t> limit,
                                  Observation& seen) {
  const Gpu& gpu = plan.problem.cluster->pools.front().gpu;
  CountingBacking backing(static_cast<std::int64_t>(gpu.memory),
                          limit.value_or(CountingBacking::kNoLimit));
  Allocator allocator(backing, allocator_options(plan.problem));
  DryDevice device(plan, &allocator);
  Executor executor(plan, device);
  try {
    executor.start();
    executor.step();
    executor.step();
  } catch (const OutOfMemory& out) {
    VerifyFailure f{plan.place.rank, out.tensor,   out.info.bytes,     executor.at(),
                    device.live(),   out.reserved, device.categories()};
    executor.finish();
    PLIMSOLL_ASSERT(device.tensors() == 0);
    return f;
  }
  seen.peak = device.peak();
  // What counts no blocks has no segments either.
  seen.reserved =
      plan.problem.inventory.counts_blocks ? allocator.stats().reserved.peak : device.most_live();
  executor.finish();
  PLIMSOLL_ASSERT(device.tensors() == 0);
  return std::nullopt;
}

}  // namespace

Verification verify_dry(const Problem& p, const Bill& bill, const std::vector<std::int64_t>& ranks,
                        std::optional<std::int64_t> limit) {
  std::map<std::pair<std::int64_t, std::int64_t>, Observation> played;  // by stage and shard
  std::vector<Observation> seen;
  std::optional<VerifyFailure> failure;
  for (const std::int64_t rank : ranks) {
    const RankPlace place = place_of(bill.layout, rank);
    const auto [at, is_new] = played.try_emplace({place.stage, place.shard});
    if (is_new) {
      const StagePlan plan(p, bill.layout, rank);
      failure = play(plan, limit, at->second);
      if (failure) break;
    }
    at->second.rank = rank;
    seen.push_back(at->second);
  }
  Verification v = compare(p, bill, "dry", seen);
  if (failure) {
    v.failure = std::move(failure);
    v.agrees = false;
  }
  return v;
}

}  // namespace plimsoll::runtime
