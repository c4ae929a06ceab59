// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/cuda_verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lang/units.hpp"
#include "planner/time.hpp"
#include "planner/time_classes.hpp"
#include "runtime/cuda/gpu_error.hpp"
#include "runtime/cuda/idle_machine.hpp"
#include "runtime/cuda/nccl_peers.hpp"
#include "runtime/host/collectives.hpp"
#include "runtime/replay.hpp"
#include "runtime/timeline.hpp"
#include "runtime/verify_parcel.hpp"

namespace plimsoll::runtime::cuda {

namespace {

/// Free memory beyond segments and scratch that a run is not begun without: libraries.
constexpr std::int64_t kBeside = std::int64_t{512} << 20;

/// What a rank's allocator may have, and why its steps are not begun ("": they are).
struct Wish {
  std::int64_t replayed = 0, capacity = 0, scratch = 0;
  std::string refused;
};

/// What the driver counts beside segments: the context, and among peers their communicators.
std::int64_t context_bytes(const Problem& p, const Bill& bill, std::int64_t stage, bool alone) {
  const auto index = static_cast<std::size_t>(stage);
  const std::vector<std::uint32_t>& pools = bill.layout.stage_pool;
  const Pool& pool = p.cluster->pools.at(pools.empty() ? 0 : pools.at(index));
  const StageBill& b = bill.stages.at(index);
  return static_cast<std::int64_t>(alone ? pool.gpu.reserved : b.peak_bytes - b.reserved_bytes);
}

GpuSeen seen_of(const Machine& machine, const Problem& p, const Bill& bill, const RankRun& run,
                std::int64_t stage, const Wish& w, bool alone) {
  GpuSeen g;
  g.gpu = machine.name();
  g.driver = machine.driver();
  g.predicted_reserved = w.replayed;
  g.predicted_context = context_bytes(p, bill, stage, alone);
  g.predicted_scratch = w.scratch;
  g.predicted_used = g.predicted_context + g.predicted_reserved + g.predicted_scratch;
  g.reserved = run.allocator.reserved.now;
  g.used = run.driver.most;
  g.used_before = run.driver.before;
  g.libraries = run.driver.libraries;
  g.scratch = run.scratch;
  g.seconds = run.seconds;
  const StepTime time = Clock(p).step(bill.layout);
  std::map<std::pair<std::string, bool>, double> predicted;
  for (const ClassTime& t : time_by_class(p, bill.layout, stage))
    if (t.seconds > 0 || !alone) predicted[{t.name, t.backward}] = t.seconds + (alone ? 0 : t.sent);
  g.predicted_seconds = static_cast<double>(time.nanoseconds) * 1e-9 * (1 - time.bubble_share);
  for (const auto& [kind, t] : run.times) {
    const auto at = predicted.find(kind);
    g.kinds.push_back({kind.first, kind.second, t.runs, t.seconds,
                       at == predicted.end() ? std::nullopt : std::optional(at->second)});
  }
  std::stable_sort(g.kinds.begin(), g.kinds.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return g;
}

RunOptions run_options(int steps) {
  RunOptions options;
  options.steps = steps;
  options.same_text = true;
  options.times = true;
  return options;
}

/// What kernels will need beside the tensors: the same steps on a GPU that does nothing.
std::int64_t scratch_of(const Machine& machine, const RankWorld& world) {
  IdleMachine idle(machine.facts());
  const auto nobody =
      stand_ins(idle, places(world.layout, world.plan.place.rank, world.expert_shard));
  return run_rank(world, idle, *nobody, CountingBacking::kNoLimit, allocator_options(world.problem))
      .scratch;
}

Wish wish(Machine& machine, const RankWorld& world, std::optional<std::int64_t> limit) {
  Wish w;
  w.replayed =
      replay(world.plan, allocator_options(world.problem), world.options.steps).peak_reserved;
  w.capacity = std::min(limit.value_or(w.replayed), w.replayed);
  w.scratch = scratch_of(machine, world);
  const MemoryFacts memory = machine.memory();
  const std::int64_t beside = kBeside + w.scratch;
  if (w.capacity + beside > memory.free)
    w.refused = fmt::format(
        "rank {} needs {} of segments and some {} beside them; the driver says that {} of {} are "
        "free on the {}",
        world.plan.place.rank, human_bytes(w.capacity), human_bytes(beside),
        human_bytes(memory.free), human_bytes(memory.total), machine.name());
  return w;
}

/// A rank's steps with \a peers.
Verification verify_with(Machine& machine, Peers& peers, const RankWorld& world, const Bill& bill,
                         const Wish& w, bool alone) {
  const Problem& p = world.problem;
  const std::int64_t rank = world.plan.place.rank;
  const std::int64_t capacity = w.capacity;
  const AllocatorOptions allocator = allocator_options(p);
  const RankRun run = run_rank(world, machine, peers, capacity, allocator);
  const std::int64_t stage = world.plan.place.stage;
  Verification v;
  if (run.stopped) {
    v.device = "cuda";
    v.agrees = false;
    v.stopped = true;
  } else if (run.failure) {
    v.device = "cuda";
    v.agrees = false;
    v.failure = run.failure;
    // What the bill has at that moment, where it is one of its own.
    const std::string when = point_name(p, run.failure->at);
    for (const auto& [name, bytes] : bill.stages.at(static_cast<std::size_t>(stage)).moments)
      if (name == when) v.failure->predicted_live = static_cast<std::int64_t>(bytes);
  } else {
    v = compare(p, bill, "cuda", {{rank, run.peak, run.allocator.reserved.peak}});
    v.peak = run.peak;
    v.losses = run.losses;
  }
  v.gpu = seen_of(machine, p, bill, run, stage, w, alone);
  return v;
}

/// How a rank ended, as rank 0 is told: its peak and segments, its losses, or what went wrong.
struct Ending {
  Observation seen;
  std::vector<double> losses;
  std::optional<VerifyFailure> failure;
  std::string trouble;   ///< other than want of memory, in words
  bool stopped = false;  ///< another rank went no further
};

Parcel told(const Ending& e) {
  Parcel p;
  p.put_all(e.trouble);
  p.put(e.stopped);
  put(p, e.seen.peak);
  p.put(e.seen.reserved);
  p.put_all(e.losses);
  put(p, e.failure);
  return p;
}

Ending heard(Parcel p, std::int64_t rank) {
  Ending e;
  e.seen.rank = rank;
  p.take_all(e.trouble);
  p.take(e.stopped);
  take(p, e.seen.peak);
  p.take(e.seen.reserved);
  p.take_all(e.losses);
  take(p, e.failure);
  return e;
}

/// This rank's part of a run of all; whatever ends it, the others are told.
Ending run_mine(Machine& machine, Wire& wire, const RankWorld& world, const Bill& bill,
                const Wish& w, Verification& v) {
  Ending e;
  e.seen.rank = wire.rank();
  try {
    const auto peers = nccl_peers(machine, wire, world.layout, world.expert_shard);
    v = verify_with(machine, *peers, world, bill, w, false);
    e.stopped = v.stopped;
    e.failure = v.failure;
    e.losses = v.losses;
    if (v.peak) e.seen = {wire.rank(), *v.peak, v.ranks.front().reserved};
  } catch (const host::Stopped&) {
    e.stopped = true;
  } catch (const std::exception& error) {
    e.trouble = error.what();
    wire.stop();
  }
  return e;
}

/// What all ranks came to, on rank 0: want of memory before other troubles, ranks in order.
std::variant<Verification, std::string> bring_together(Wire& wire, const Problem& p,
                                                       const Bill& bill,
                                                       const std::vector<std::int64_t>& ranks,
                                                       const Ending& mine,
                                                       const std::optional<GpuSeen>& gpu) {
  std::vector<Ending> all = {mine};
  std::string trouble;
  for (int r = 1; r < wire.size(); ++r) {
    std::vector<std::byte> bytes;
    if (wire.receive(r, Channel::results, 0, bytes))
      all.push_back(heard(Parcel(std::move(bytes)), r));
    else if (trouble.empty())
      trouble = silent(wire, r);
  }
  bool stopped = false;
  for (const Ending& e : all) {
    stopped = stopped || e.stopped;
    if (!e.failure) continue;
    Verification v;
    v.device = "cuda";
    v.agrees = false;
    v.failure = e.failure;
    v.gpu = gpu;
    return v;
  }
  for (const Ending& e : all)
    if (!e.trouble.empty()) return fmt::format("rank {} failed: {}", e.seen.rank, e.trouble);
  if (!trouble.empty()) return trouble;
  if (stopped) return "a rank was stopped, and none says why";
  std::vector<Observation> seen;
  std::vector<double> losses(mine.losses.size());
  for (const Ending& e : all) {
    for (std::size_t i = 0; i < std::min(e.losses.size(), losses.size()); ++i)
      losses[i] += e.losses[i];
    if (std::find(ranks.begin(), ranks.end(), e.seen.rank) != ranks.end()) seen.push_back(e.seen);
  }
  Verification v = compare(p, bill, "cuda", seen);
  v.losses = losses;
  v.gpu = gpu;
  return v;
}

}  // namespace

std::variant<Verification, std::string> verify_on(Machine& machine, const Problem& p,
                                                  const Bill& bill, std::int64_t rank,
                                                  std::optional<std::int64_t> limit, int steps) {
  if (std::string why = why_not_on_cuda(p, bill.layout); !why.empty()) return why;
  const RankWorld world(p, bill.layout, rank, run_options(steps));
  const Wish w = wish(machine, world, limit);
  if (!w.refused.empty()) return w.refused;
  const auto peers = stand_ins(machine, places(bill.layout, rank, world.expert_shard));
  return verify_with(machine, *peers, world, bill, w, true);
}

std::variant<Verification, std::string> verify_together(const OpenMachine& open, Wire& wire,
                                                        const Problem& p, const Bill& bill,
                                                        const std::vector<std::int64_t>& ranks,
                                                        std::optional<std::int64_t> limit,
                                                        int steps) {
  const Layout& l = bill.layout;
  if (std::string why = why_not_on_cuda(p, l); !why.empty()) return why;
  if (wire.size() != rank_count(l))
    return fmt::format("it was started as {} processes; this layout has {} ranks", wire.size(),
                       rank_count(l));
  const RankWorld world(p, l, wire.rank(), run_options(steps));
  std::unique_ptr<Machine> opened;
  Wish w;
  try {
    opened = open();
    w = wish(*opened, world, limit);
  } catch (const GpuError& e) {
    w.refused = fmt::format("rank {}: {}", wire.rank(), e.what());
  }
  if (std::string refused = first_word(wire, w.refused); !refused.empty()) return refused;
  Machine& machine = *opened;
  Verification v;
  const Ending mine = run_mine(machine, wire, world, bill, w, v);
  if (wire.rank() == 0) return bring_together(wire, p, bill, ranks, mine, v.gpu);
  const Parcel parcel = told(mine);
  wire.send(0, Channel::results, 0, parcel.bytes().data(), parcel.bytes().size());
  if (wire.gone() == 0) return silent(wire, 0);
  return v;
}

}  // namespace plimsoll::runtime::cuda
