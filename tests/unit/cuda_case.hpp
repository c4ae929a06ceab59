// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <thread>

#include "runtime/cuda/cuda_run.hpp"
#include "runtime/cuda/emulated_machine.hpp"
#include "runtime/replay.hpp"
#include "tests/unit/host_case.hpp"

/// The device `cuda` over a GPU played on the CPU, held against the host: the same orders and the
/// same kernels' arithmetic as on a GPU, with real numbers.
namespace plimsoll::testing {

/// Of a gradient's norm: kernels sum in fp32, the host in double.
inline constexpr double kCudaTolerance = 5e-5;

/// Ranks that are threads, as peers: memory that is theirs is read by the others.
class ThreadCircle final : public cuda::Circle {
 public:
  explicit ThreadCircle(Group group) : group_(group) {}
  int size() const override { return group_.size(); }
  int rank() const override { return group_.rank; }
  void all_gather(cuda::Array mine, std::int64_t count, cuda::Array out) override {
    gather(mine, count,
           [&](int r, cuda::Array theirs) { copy(theirs, out.from(r * count), count); });
  }
  void reduce_scatter(cuda::Array all, std::int64_t count, cuda::Array out) override {
    std::vector<float> sum(static_cast<std::size_t>(count));
    gather(all, count, [&](int, cuda::Array theirs) {
      for (std::int64_t i = 0; i < count; ++i)
        sum[static_cast<std::size_t>(i)] += theirs.get(rank() * count + i);
    });
    put(sum, out);
  }
  void all_reduce(cuda::Array data, std::int64_t count, bool largest) override {
    std::vector<float> sum(static_cast<std::size_t>(count), largest ? -INFINITY : 0.0f);
    gather(data, count, [&](int, cuda::Array theirs) {
      for (std::int64_t i = 0; i < count; ++i) {
        float& x = sum[static_cast<std::size_t>(i)];
        x = largest ? std::max(x, theirs.get(i)) : x + theirs.get(i);
      }
    });
    put(sum, data);
  }
  void all_reduce(double* data, std::int64_t count) override { group_.all_reduce(data, count); }
  void all_to_all(cuda::Array send, const cuda::Counts& sent, cuda::Array received,
                  const cuda::Counts& expected) override {
    struct Parcel {
      cuda::Array data;
      const cuda::Counts* counts;
    } mine{send, &sent};
    if (size() == 1) return copy(send, received, sent[0]);
    const Meeting::Table table(*group_.meeting, rank(), &mine, sizeof mine);
    for (int r = 0; r < size(); ++r) {
      const Parcel& parcel = *table.of<Parcel>(r);
      std::int64_t offset = 0;
      for (int k = 0; k < rank(); ++k) offset += (*parcel.counts)[static_cast<std::size_t>(k)];
      const std::int64_t n = (*parcel.counts)[static_cast<std::size_t>(rank())];
      PLIMSOLL_ASSERT(n == expected[static_cast<std::size_t>(r)]);
      copy(parcel.data.from(offset), received, n);
      received = received.from(n);
    }
  }
  void pass_on(cuda::Array mine, std::int64_t count, cuda::Array out) override {
    gather(mine, count, [&](int r, cuda::Array theirs) {
      if (r == (rank() + size() - 1) % size()) copy(theirs, out, count);
    });
  }
  void broadcast(cuda::Array data, std::int64_t count, int root, bool) override {
    gather(data, count, [&](int r, cuda::Array theirs) {
      if (r == root && r != rank()) copy(theirs, data, count);
    });
  }

 private:
  template <class F>
  void gather(cuda::Array mine, std::int64_t, F f) {
    if (size() == 1) return f(0, mine);
    const Meeting::Table table(*group_.meeting, rank(), &mine, sizeof mine);
    for (int r = 0; r < size(); ++r) f(r, *table.of<cuda::Array>(r));
  }
  static void copy(cuda::Array from, cuda::Array to, std::int64_t count) {
    if (count > 0 && from.at != to.at)
      std::memcpy(to.at, from.at, static_cast<std::size_t>(count * cuda::bytes_of(from.number)));
  }
  static void put(const std::vector<float>& from, cuda::Array to) {
    for (std::size_t i = 0; i < from.size(); ++i) to.put(static_cast<std::int64_t>(i), from[i]);
  }
  Group group_;
};

class ThreadPeers final : public cuda::Peers {
 public:
  ThreadPeers(HostWorld& world, std::int64_t rank) : world_(world), rank_(rank) {
    const Groups g = world.groups(rank);
    for (const Group& group :
         {g.tp, g.cp, g.ep, g.etp, world.group(RankGroup::dp_cp, rank),
          world.group(RankGroup::edp, rank), world.group(RankGroup::shard, rank),
          world.expert_shard(rank), world.stages(rank), world.group(RankGroup::all, rank)})
      circles_.emplace_back(group);
  }
  cuda::Circle& circle(cuda::Bond b) override { return circles_[static_cast<std::size_t>(b)]; }
  void send(cuda::Array data, std::int64_t count, std::int64_t to, std::int64_t tag) override {
    const auto* at = static_cast<const std::byte*>(data.at);
    world_.post.send(static_cast<int>(rank_), static_cast<int>(to), tag,
                     {at, at + count * cuda::bytes_of(data.number)});
  }
  void receive(cuda::Array data, std::int64_t count, std::int64_t from, std::int64_t tag) override {
    const auto letter = world_.post.receive(static_cast<int>(from), static_cast<int>(rank_), tag);
    PLIMSOLL_ASSERT(static_cast<std::int64_t>(letter.size()) ==
                    count * cuda::bytes_of(data.number));
    std::memcpy(data.at, letter.data(), letter.size());
  }

 private:
  HostWorld& world_;
  std::int64_t rank_;
  std::vector<ThreadCircle> circles_;
};

/// All ranks of a layout on emulated GPUs, as a host's run. \a prepare: what each is given.
inline HostRun run_emulated(const Priced& p, const HostOptions& o = options(),
                            const std::function<void(cuda::EmulatedMachine&)>& prepare = {}) {
  REQUIRE(cuda::why_not_on_cuda(*p.problem, p.layout) == "");
  HostWorld world(*p.problem, p.layout, o);  // for its meetings
  HostRun run;
  run.gradients = world.gradients;
  run.parameters = world.parameters;
  run.losses.resize(static_cast<std::size_t>(o.steps));
  run.ranks.resize(static_cast<std::size_t>(world.ranks()));
  std::vector<std::thread> threads;
  std::vector<std::string> errors(run.ranks.size());
  for (std::int64_t rank = 0; rank < world.ranks(); ++rank)
    threads.emplace_back([&, rank] {
      const auto index = static_cast<std::size_t>(rank);
      try {
        cuda::RunOptions c;
        c.steps = o.steps;
        c.seed = o.seed;
        c.learning_rate = o.learning_rate;
        c.epsilon = o.epsilon;
        c.clip_norm = o.clip_norm;
        const cuda::RankWorld mine(*p.problem, p.layout, rank, c);
        cuda::EmulatedMachine machine;
        if (prepare) prepare(machine);
        ThreadPeers peers(world, rank);
        cuda::Looks looks;
        const auto note = [&](std::vector<WholeTensors>& all) {
          return [&](int step, WeightId w, std::int64_t place, float x) {
            const std::lock_guard lock(world.mutex);
            all[static_cast<std::size_t>(step) - 1][w][static_cast<std::size_t>(place)] = x;
          };
        };
        if (o.keep_tensors) {
          looks.gradient = note(run.gradients);
          looks.parameter = note(run.parameters);
        }
        const cuda::RankRun r = cuda::run_rank(mine, machine, peers, CountingBacking::kNoLimit,
                                               allocator_options(*p.problem), looks);
        const std::lock_guard lock(world.mutex);
        run.ranks[index].peak = r.peak;
        run.ranks[index].allocator = r.allocator;
        for (std::size_t s = 0; s < run.losses.size(); ++s) run.losses[s] += r.losses.at(s);
        if (r.failure) errors[index] = "ran out of memory";
      } catch (const Stopped&) {
      } catch (const std::exception& e) {
        errors[index] = e.what();
        world.post.stop();
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& e : errors) CHECK(e == "");
  return run;
}

/// Segments are those of the replay over memory that is only counted.
inline void check_reserved(const Priced& p, const HostRun& found) {
  for (std::size_t rank = 0; rank < found.ranks.size(); ++rank) {
    const StagePlan plan(*p.problem, p.layout, static_cast<std::int64_t>(rank));
    const ReplayResult r = replay(plan, allocator_options(*p.problem));
    INFO("rank " << rank);
    CHECK(found.ranks[rank].allocator.reserved.peak == r.peak_reserved);
    CHECK(found.ranks[rank].allocator.segments.peak == r.stats.segments.peak);
  }
}

/// The layouts on emulated GPUs against one rank on the host, numbers and bytes.
inline void check_on_cuda(const Case& c, const std::vector<std::pair<int, std::string>>& layouts) {
  const HostRun expected = run(price(plan_text(c, 1, "")));
  for (const auto& [gpus, layout] : layouts) {
    INFO(gpus << " GPUs, " << layout);
    const Priced p = price(plan_text(c, gpus, layout));
    const HostRun found = run_emulated(p);
    check_equal(p, expected, found, kCudaTolerance);
    check_memory(p, found);
    check_reserved(p, found);
  }
}

}  // namespace plimsoll::testing
