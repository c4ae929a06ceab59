// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/cuda_verify.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lang/units.hpp"
#include "planner/time.hpp"
#include "runtime/cuda/nccl_peers.hpp"
#include "runtime/parcel.hpp"
#include "runtime/replay.hpp"
#include "runtime/timeline.hpp"

namespace plimsoll::runtime::cuda {

namespace {

/// Free memory beyond the segments that a run is not begun without: libraries and kernels' scratch.
constexpr std::int64_t kBeside = std::int64_t{512} << 20;

GpuSeen seen_of(const Machine& machine, const Problem& p, const Bill& bill, const RankRun& run,
                std::int64_t stage, std::int64_t replayed) {
  GpuSeen g;
  g.gpu = machine.name();
  g.driver = machine.driver();
  g.predicted_reserved = replayed;
  g.predicted_used =
      static_cast<std::int64_t>(bill.stages.at(static_cast<std::size_t>(stage)).peak_bytes);
  g.used = run.driver.most;
  g.used_before = run.driver.before;
  g.libraries = run.driver.libraries;
  g.scratch = run.scratch;
  g.seconds = run.seconds;
  const StepTime time = Clock(p).step(bill.layout);
  g.predicted_seconds = static_cast<double>(time.nanoseconds) * 1e-9 * (1 - time.bubble_share);
  for (const auto& [kind, t] : run.times)
    g.kinds.push_back({kind.first, kind.second, t.runs, t.seconds});
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

/// What a rank's allocator may have, and why its steps are not begun ("": they are).
struct Wish {
  std::int64_t replayed = 0, capacity = 0;
  std::string refused;
};
Wish wish(Machine& machine, const RankWorld& world, std::optional<std::int64_t> limit) {
  Wish w;
  w.replayed =
      replay(world.plan, allocator_options(world.problem), world.options.steps).peak_reserved;
  w.capacity = std::min(limit.value_or(w.replayed), w.replayed);
  const MemoryFacts memory = machine.memory();
  if (w.capacity + kBeside > memory.free)
    w.refused = fmt::format(
        "rank {} needs {} of segments and some {} beside them; the driver says that {} of {} are "
        "free on the {}",
        world.plan.place.rank, human_bytes(w.capacity), human_bytes(kBeside),
        human_bytes(memory.free), human_bytes(memory.total), machine.name());
  return w;
}

/// All ranks begin, or none does: the first refusal of any of them.
std::string first_refusal(Wire& wire, const std::string& mine) {
  constexpr std::int64_t kAsks = 1, kAnswer = 2;
  const auto say = [&](int to, std::int64_t tag, const std::string& words) {
    wire.send(to, Channel::results, tag, words.data(), words.size());
  };
  const auto hear = [&](int from, std::int64_t tag) {
    std::vector<std::byte> letter;
    if (!wire.receive(from, Channel::results, tag, letter))
      return std::string("a rank went away without a word");
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

/// A rank's steps with \a peers.
Verification verify_with(Machine& machine, Peers& peers, const RankWorld& world, const Bill& bill,
                         const Wish& w) {
  const Problem& p = world.problem;
  const std::int64_t rank = world.plan.place.rank, replayed = w.replayed;
  const std::int64_t capacity = w.capacity;
  const AllocatorOptions allocator = allocator_options(p);
  const RankRun run = run_rank(world, machine, peers, capacity, allocator);
  const std::int64_t stage = world.plan.place.stage;
  Verification v;
  if (run.failure) {
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
  v.gpu = seen_of(machine, p, bill, run, stage, replayed);
  return v;
}

/// What rank 0 is told of another rank: its peak and segments, its losses, and how it ended.
Parcel told(const std::variant<Verification, std::string>& ran, const Observation& seen) {
  Parcel p;
  const auto* why = std::get_if<std::string>(&ran);
  const auto* v = std::get_if<Verification>(&ran);
  std::string words = why ? *why : "";
  if (v && v->failure)
    words = fmt::format("rank {} could not have {} for '{}'", v->failure->rank,
                        human_bytes(v->failure->bytes), v->failure->tensor);
  p.put_all(words);
  p.put(seen.peak.bytes);
  p.put(seen.peak.at);
  p.put(seen.peak.categories);
  p.put_all(seen.peak.rows);
  p.put(seen.reserved);
  p.put_all(v ? v->losses : std::vector<double>());
  return p;
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
  return verify_with(machine, *peers, world, bill, w);
}

std::variant<Verification, std::string> verify_together(Machine& machine, Wire& wire,
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
  const Wish w = wish(machine, world, limit);
  if (std::string refused = first_refusal(wire, w.refused); !refused.empty()) return refused;
  const auto peers = nccl_peers(machine, wire, l, world.expert_shard);
  std::variant<Verification, std::string> ran = verify_with(machine, *peers, world, bill, w);
  auto* v = std::get_if<Verification>(&ran);
  Observation mine{wire.rank(), {}, 0};
  if (v && v->peak) mine = {wire.rank(), *v->peak, v->ranks.front().reserved};
  if (wire.rank() != 0) {
    const Parcel parcel = told(ran, mine);
    wire.send(0, Channel::results, 0, parcel.bytes().data(), parcel.bytes().size());
    return ran;
  }
  std::vector<Observation> seen = {mine};
  std::string trouble;
  std::vector<double> losses = v ? v->losses : std::vector<double>();
  for (int r = 1; r < wire.size(); ++r) {
    std::vector<std::byte> bytes;
    if (!wire.receive(r, Channel::results, 0, bytes)) return "a rank went away without a word";
    Parcel parcel(std::move(bytes));
    Observation theirs{r, {}, 0};
    std::string words;
    std::vector<double> parts;
    parcel.take_all(words);
    parcel.take(theirs.peak.bytes);
    parcel.take(theirs.peak.at);
    parcel.take(theirs.peak.categories);
    parcel.take_all(theirs.peak.rows);
    parcel.take(theirs.reserved);
    parcel.take_all(parts);
    for (std::size_t i = 0; i < std::min(parts.size(), losses.size()); ++i) losses[i] += parts[i];
    if (!words.empty() && trouble.empty()) trouble = words;
    seen.push_back(std::move(theirs));
  }
  if (!v || v->failure) return ran;
  if (!trouble.empty()) return trouble;
  std::erase_if(seen, [&](const Observation& o) {
    return std::find(ranks.begin(), ranks.end(), o.rank) == ranks.end();
  });
  Verification all = compare(p, bill, "cuda", seen);
  all.losses = losses;
  all.gpu = v->gpu;
  return all;
}

}  // namespace plimsoll::runtime::cuda
