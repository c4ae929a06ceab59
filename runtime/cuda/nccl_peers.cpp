// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/nccl_peers.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "planner/stages.hpp"
#include "runtime/cuda/gpu_error.hpp"
#include "runtime/cuda/library.hpp"
#include "runtime/cuda/scratch.hpp"
#include "runtime/host/collectives.hpp"
#include "runtime/ranks.hpp"

namespace plimsoll::runtime::cuda {

namespace {

// What is used of NCCL 2's C interface, declared here so that its header is not needed to build.
extern "C" {
struct ncclComm;
struct ncclUniqueId {
  char internal[128];
};
/// Of version 2.14: what later ones have besides stays as they would have it.
struct ncclConfig {
  std::size_t size = sizeof(ncclConfig);
  unsigned magic = 0xcafebeef, version = 21400;
  int blocking = 0;
};
}
using Comm = ncclComm*;
using Result = int;  // ncclResult_t
constexpr Result kSuccess = 0, kInProgress = 7;
enum Type : int { kFloat32 = 7, kFloat64 = 8, kBfloat16 = 9 };
enum Op : int { kSum = 0, kMax = 2 };

struct Nccl {
  Nccl() : library({"libnccl.so.2", "libnccl.so"}) {
    library.get(unique_id, "ncclGetUniqueId");
    library.get(init, "ncclCommInitRankConfig");
    library.get(destroy, "ncclCommDestroy");
    library.get(abort, "ncclCommAbort");
    library.get(state, "ncclCommGetAsyncError");
    library.get(all_gather, "ncclAllGather");
    library.get(reduce_scatter, "ncclReduceScatter");
    library.get(all_reduce, "ncclAllReduce");
    library.get(broadcast, "ncclBroadcast");
    library.get(send, "ncclSend");
    library.get(receive, "ncclRecv");
    library.get(begin, "ncclGroupStart");
    library.get(end, "ncclGroupEnd");
    library.get(error, "ncclGetErrorString");
  }
  void check(Result answer, const char* call, int line) const {
    if (answer != kSuccess && answer != kInProgress)
      throw GpuError(std::string("NCCL: ") + error(answer), call, __FILE__, line);
  }
  Library library;
  Result (*unique_id)(ncclUniqueId*) = nullptr;
  Result (*init)(Comm*, int, ncclUniqueId, int, ncclConfig*) = nullptr;
  Result (*destroy)(Comm) = nullptr;
  Result (*abort)(Comm) = nullptr;
  Result (*state)(Comm, Result*) = nullptr;
  Result (*all_gather)(const void*, void*, std::size_t, int, Comm, void*) = nullptr;
  Result (*reduce_scatter)(const void*, void*, std::size_t, int, int, Comm, void*) = nullptr;
  Result (*all_reduce)(const void*, void*, std::size_t, int, int, Comm, void*) = nullptr;
  Result (*broadcast)(const void*, void*, std::size_t, int, int, Comm, void*) = nullptr;
  Result (*send)(const void*, std::size_t, int, int, Comm, void*) = nullptr;
  Result (*receive)(void*, std::size_t, int, int, Comm, void*) = nullptr;
  Result (*begin)() = nullptr;
  Result (*end)() = nullptr;
  const char* (*error)(Result) = nullptr;
};
#define PLIMSOLL_NCCL_CHECK(call) nccl_.check(nccl_.call, #call, __LINE__)

Type type_of(Array a) { return a.number == Number::bf16 ? kBfloat16 : kFloat32; }
std::size_t size_of(std::int64_t count) { return static_cast<std::size_t>(count); }

/// What the rank's communicators share. None of their calls blocks: whoever waits looks whether the
/// run was stopped, and then ends them all.
class Ties {
 public:
  Ties(Machine& machine, Wire& wire) : machine_(machine), wire_(wire) {
    machine_.while_waiting([this] { look(); });
  }
  ~Ties() { machine_.while_waiting(nullptr); }
  Ties(const Ties&) = delete;
  Ties& operator=(const Ties&) = delete;

  const Nccl& nccl() const { return nccl_; }
  Machine& machine() { return machine_; }
  Wire& wire() { return wire_; }

  /// Joins the others of \a ranks, in the same order on each. \a name tells it from other groups.
  Comm join(const std::vector<std::int64_t>& ranks, int rank, std::int64_t name) {
    ncclUniqueId id{};
    if (rank == 0) {
      PLIMSOLL_NCCL_CHECK(unique_id(&id));
      for (std::size_t r = 1; r < ranks.size(); ++r)
        wire_.send(static_cast<int>(ranks[r]), Channel::meetings, name, &id, sizeof id);
    } else {
      std::vector<std::byte> letter;
      if (!wire_.receive(static_cast<int>(ranks[0]), Channel::meetings, name, letter) ||
          letter.size() != sizeof id)
        throw host::Stopped();
      std::memcpy(&id, letter.data(), sizeof id);
    }
    Comm comm = nullptr;
    ncclConfig config;
    PLIMSOLL_NCCL_CHECK(init(&comm, static_cast<int>(ranks.size()), id, rank, &config));
    comms_.push_back(comm);
    settle(comm);
    return comm;
  }
  /// Until the communicator's last call has been taken up. Not until its work is done.
  void settle(Comm comm) {
    for (;;) {
      Result now = kSuccess;
      PLIMSOLL_NCCL_CHECK(state(comm, &now));
      if (now == kSuccess) return;
      if (now != kInProgress) fail(now);
      if (wire_.stopped()) give_up();
      std::this_thread::yield();
    }
  }
  /// Of whoever waits for the GPU.
  void look() {
    if (aborted_ || wire_.stopped()) give_up();
    for (const Comm comm : comms_) {
      Result now = kSuccess;
      PLIMSOLL_NCCL_CHECK(state(comm, &now));
      if (now != kSuccess && now != kInProgress) fail(now);
    }
  }
  /// All at once: the kernels of one may stand in the stream before those of another.
  void abort() {
    std::vector<std::thread> threads;
    for (const Comm comm : std::exchange(comms_, {}))
      threads.emplace_back([this, comm] { nccl_.abort(comm); });
    for (std::thread& t : threads) t.join();
    aborted_ = true;
  }
  void destroy() {
    for (const Comm comm : std::exchange(comms_, {})) nccl_.destroy(comm);
  }

 private:
  [[noreturn]] void give_up() {
    abort();
    throw host::Stopped();
  }
  /// A peer that ended may be seen by NCCL before its word comes by the wire.
  [[noreturn]] void fail(Result why) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (std::chrono::steady_clock::now() < until) {
      if (wire_.stopped()) give_up();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    nccl_.check(why, "a communicator's work", __LINE__);
    throw GpuError("NCCL failed");
  }
  Nccl nccl_;
  Machine& machine_;
  Wire& wire_;
  std::vector<Comm> comms_;
  bool aborted_ = false;
};

class NcclCircle final : public Circle {
 public:
  /// \a comm: of its \a size ranks; nullptr: it has one.
  NcclCircle(Ties& ties, Comm comm, int size, int rank)
      : ties_(ties),
        nccl_(ties.nccl()),
        machine_(ties.machine()),
        size_(size),
        rank_(rank),
        comm_(comm) {}
  int size() const override { return size_; }
  int rank() const override { return rank_; }

  void all_gather(Array mine, std::int64_t count, Array out) override {
    if (size_ == 1) return move(mine, out, count);
    PLIMSOLL_NCCL_CHECK(
        all_gather(mine.at, out.at, size_of(count), type_of(mine), comm_, machine_.stream()));
    ties_.settle(comm_);
  }
  void reduce_scatter(Array all, std::int64_t count, Array out) override {
    if (size_ == 1) return move(all, out, count);
    PLIMSOLL_NCCL_CHECK(reduce_scatter(all.at, out.at, size_of(count), type_of(all), kSum, comm_,
                                       machine_.stream()));
    ties_.settle(comm_);
  }
  void all_reduce(Array data, std::int64_t count, bool largest) override {
    if (size_ == 1) return;
    PLIMSOLL_NCCL_CHECK(all_reduce(data.at, data.at, size_of(count), type_of(data),
                                   largest ? kMax : kSum, comm_, machine_.stream()));
    ties_.settle(comm_);
  }
  void all_reduce(double* data, std::int64_t count) override {
    if (size_ == 1) return;
    PLIMSOLL_NCCL_CHECK(
        all_reduce(data, data, size_of(count), kFloat64, kSum, comm_, machine_.stream()));
    ties_.settle(comm_);
  }
  void all_to_all(Array send, const Counts& sent, Array received, const Counts& expected) override {
    if (size_ == 1) return move(send, received, sent[0]);
    PLIMSOLL_NCCL_CHECK(begin());
    for (int r = 0; r < size_; ++r) {
      const auto peer = static_cast<std::size_t>(r);
      if (sent[peer] > 0) give(send, sent[peer], r);
      if (expected[peer] > 0) take(received, expected[peer], r);
      send = send.from(sent[peer]);
      received = received.from(expected[peer]);
    }
    PLIMSOLL_NCCL_CHECK(end());
    ties_.settle(comm_);
  }
  void pass_on(Array mine, std::int64_t count, Array out) override {
    if (size_ == 1) return move(mine, out, count);
    PLIMSOLL_NCCL_CHECK(begin());
    give(mine, count, (rank_ + 1) % size_);
    take(out, count, (rank_ + size_ - 1) % size_);
    PLIMSOLL_NCCL_CHECK(end());
    ties_.settle(comm_);
  }
  void broadcast(Array data, std::int64_t count, int root, bool /*fresh*/) override {
    if (size_ == 1) return;
    PLIMSOLL_NCCL_CHECK(
        broadcast(data.at, data.at, size_of(count), type_of(data), root, comm_, machine_.stream()));
    ties_.settle(comm_);
  }

 private:
  void give(Array data, std::int64_t count, int to) {
    PLIMSOLL_NCCL_CHECK(send(data.at, size_of(count), type_of(data), to, comm_, machine_.stream()));
  }
  void take(Array data, std::int64_t count, int from) {
    PLIMSOLL_NCCL_CHECK(
        receive(data.at, size_of(count), type_of(data), from, comm_, machine_.stream()));
  }
  void move(Array from, Array to, std::int64_t count) {
    if (from.at != to.at) machine_.copy(to.at, from.at, count * bytes_of(from.number));
  }
  Ties& ties_;
  const Nccl& nccl_;
  Machine& machine_;
  int size_, rank_;
  Comm comm_;
};

/// From one rank to another. A send waits on the GPU for its receiver: were it in the stream of
/// work, two stages that send to each other would wait forever. So a copy is sent beside it.
class NcclLane {
 public:
  NcclLane(Ties& ties, Scratch& scratch, Comm comm, int side)
      : ties_(ties),
        nccl_(ties.nccl()),
        machine_(ties.machine()),
        scratch_(scratch),
        comm_(comm),
        side_(side) {}
  void send(Array data, std::int64_t count) {
    while (!on_way_.empty() && on_way_.front().arrived()) on_way_.pop_front();
    const std::int64_t bytes = count * bytes_of(data.number);
    Room room(scratch_, bytes);
    machine_.copy(room.at(), data.at, bytes);
    machine_.side_follows(side_);
    PLIMSOLL_NCCL_CHECK(
        send(room.at(), size_of(count), type_of(data), 1, comm_, machine_.side_stream(side_)));
    ties_.settle(comm_);
    on_way_.push_back({std::move(room), machine_.side_mark(side_)});
  }
  void receive(Array data, std::int64_t count) {
    PLIMSOLL_NCCL_CHECK(
        receive(data.at, size_of(count), type_of(data), 0, comm_, machine_.stream()));
    ties_.settle(comm_);
  }

 private:
  struct Letter {
    Room room;
    std::function<bool()> arrived;
  };
  Ties& ties_;
  const Nccl& nccl_;
  Machine& machine_;
  Scratch& scratch_;
  Comm comm_;
  int side_;
  std::deque<Letter> on_way_;
};

/// Pairs of stages, from and to, between which something passes: where pieces of the model meet.
std::set<std::pair<std::int64_t, std::int64_t>> ways(const Layout& l) {
  std::set<std::pair<std::int64_t, std::int64_t>> all;
  const std::int64_t pieces =
      folded(l.schedule) ? 2 * l.pp : l.pp * std::max<std::int64_t>(l.vpp, 1);
  for (std::int64_t piece = 0; piece + 1 < pieces; ++piece) {
    const std::int64_t a = stage_of_piece(l, piece), b = stage_of_piece(l, piece + 1);
    if (a == b) continue;
    all.insert({a, b});
    all.insert({b, a});
  }
  return all;
}

class NcclPeers final : public Peers {
 public:
  NcclPeers(Machine& machine, Wire& wire, const Layout& l, std::int64_t expert_shard)
      : ties_(machine, wire), scratch_(machine, CountingBacking::kNoLimit) {
    // Groups of the same ranks share a communicator: each takes memory of the GPU's.
    std::map<std::vector<std::int64_t>, Comm> joined;
    std::int64_t name = 0;
    for (const std::vector<std::int64_t>& ranks : members(l, wire.rank(), expert_shard)) {
      const int place =
          static_cast<int>(std::find(ranks.begin(), ranks.end(), wire.rank()) - ranks.begin());
      const auto [at, is_new] = joined.try_emplace(ranks, nullptr);
      ++name;
      if (is_new && ranks.size() > 1) at->second = ties_.join(ranks, place, name << 40);
      circles_.emplace_back(ties_, at->second, static_cast<int>(ranks.size()), place);
    }
    int side = 0;
    for (const auto& [from, to] : ways(l)) {
      const std::int64_t a = rank_in_stage(l, wire.rank(), from);
      const std::int64_t b = rank_in_stage(l, wire.rank(), to);
      ++name;
      if (a != wire.rank() && b != wire.rank()) continue;
      const Comm comm = ties_.join({a, b}, b == wire.rank(), name << 40);
      lanes_.try_emplace({a, b}, ties_, scratch_, comm, a == wire.rank() ? side++ : 0);
    }
    self_ = wire.rank();
  }
  ~NcclPeers() override { ties_.destroy(); }
  Circle& circle(Bond b) override { return circles_[static_cast<std::size_t>(b)]; }
  void send(Array data, std::int64_t count, std::int64_t rank, std::int64_t) override {
    lanes_.at({self_, rank}).send(data, count);
  }
  void receive(Array data, std::int64_t count, std::int64_t rank, std::int64_t) override {
    lanes_.at({rank, self_}).receive(data, count);
  }
  void stop() override {
    ties_.wire().stop();
    ties_.abort();
  }
  std::int64_t scratch() const override { return scratch_.stats().reserved.peak; }

 private:
  Ties ties_;
  Scratch scratch_;
  std::vector<NcclCircle> circles_;
  std::map<std::pair<std::int64_t, std::int64_t>, NcclLane> lanes_;  ///< by sender and receiver
  std::int64_t self_ = 0;
};

class NcclCircles final : public Circles {
 public:
  NcclCircles(Machine& machine, Wire& wire,
              const std::vector<std::vector<std::vector<std::int64_t>>>& lists)
      : ties_(machine, wire) {
    std::int64_t name = 0;
    for (const auto& groups : lists) {
      ++name;
      circles_.emplace_back();
      for (const std::vector<std::int64_t>& ranks : groups) {
        const auto mine = std::find(ranks.begin(), ranks.end(), wire.rank());
        if (mine == ranks.end() || ranks.size() < 2) continue;
        const int place = static_cast<int>(mine - ranks.begin());
        const Comm comm = ties_.join(ranks, place, name << 40);
        circles_.back().emplace(ties_, comm, static_cast<int>(ranks.size()), place);
      }
    }
  }
  ~NcclCircles() override { ties_.destroy(); }
  Circle* circle(std::size_t i) override { return circles_[i] ? &*circles_[i] : nullptr; }
  void stop() override {
    ties_.wire().stop();
    ties_.abort();
  }

 private:
  Ties ties_;
  std::deque<std::optional<NcclCircle>> circles_;
};

}  // namespace

std::unique_ptr<Circles> nccl_circles(
    Machine& machine, Wire& wire,
    const std::vector<std::vector<std::vector<std::int64_t>>>& groups) {
  return std::make_unique<NcclCircles>(machine, wire, groups);
}

std::unique_ptr<Peers> nccl_peers(Machine& machine, Wire& wire, const Layout& l,
                                  std::int64_t expert_shard) {
  return std::make_unique<NcclPeers>(machine, wire, l, expert_shard);
}

}  // namespace plimsoll::runtime::cuda
