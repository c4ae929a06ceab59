// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/nccl_peers.hpp"

#include <cstring>
#include <numeric>

#include "runtime/cuda/gpu_error.hpp"
#include "runtime/cuda/library.hpp"

namespace plimsoll::runtime::cuda {

namespace {

// What is used of NCCL 2's C interface, declared here so that its header is not needed to build.
extern "C" {
struct ncclComm;
struct ncclUniqueId {
  char internal[128];
};
}
using Comm = ncclComm*;
using Result = int;  // ncclResult_t; 0: success
enum Type : int { kFloat32 = 7, kFloat64 = 8, kBfloat16 = 9 };
enum Op : int { kSum = 0, kMax = 2 };

struct Nccl {
  Nccl() : library({"libnccl.so.2", "libnccl.so"}) {
    library.get(unique_id, "ncclGetUniqueId");
    library.get(init, "ncclCommInitRank");
    library.get(destroy, "ncclCommDestroy");
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
    if (answer != 0) throw GpuError(std::string("NCCL: ") + error(answer), call, __FILE__, line);
  }
  Library library;
  Result (*unique_id)(ncclUniqueId*) = nullptr;
  Result (*init)(Comm*, int, ncclUniqueId, int) = nullptr;
  Result (*destroy)(Comm) = nullptr;
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

class NcclCircle final : public Circle {
 public:
  /// \a ranks: the group's, by their numbers among all; \a name tells it from the rank's others.
  NcclCircle(const Nccl& nccl, Machine& machine, Wire& wire, const std::vector<std::int64_t>& ranks,
             std::int64_t name)
      : nccl_(nccl), machine_(machine), size_(static_cast<int>(ranks.size())) {
    while (ranks[static_cast<std::size_t>(rank_)] != wire.rank()) ++rank_;
    if (size_ == 1) return;
    ncclUniqueId id{};
    if (rank_ == 0) {
      PLIMSOLL_NCCL_CHECK(unique_id(&id));
      for (int r = 1; r < size_; ++r)
        wire.send(static_cast<int>(ranks[static_cast<std::size_t>(r)]), Channel::meetings, name,
                  &id, sizeof id);
    } else {
      std::vector<std::byte> letter;
      if (!wire.receive(static_cast<int>(ranks[0]), Channel::meetings, name, letter) ||
          letter.size() != sizeof id)
        throw GpuError("another rank stopped before NCCL began");
      std::memcpy(&id, letter.data(), sizeof id);
    }
    PLIMSOLL_NCCL_CHECK(init(&comm_, size_, id, rank_));
  }
  ~NcclCircle() override {
    if (comm_) nccl_.destroy(comm_);
  }
  int size() const override { return size_; }
  int rank() const override { return rank_; }

  void all_gather(Array mine, std::int64_t count, Array out) override {
    if (size_ == 1) return move(mine, out, count);
    PLIMSOLL_NCCL_CHECK(
        all_gather(mine.at, out.at, size_of(count), type_of(mine), comm_, machine_.stream()));
  }
  void reduce_scatter(Array all, std::int64_t count, Array out) override {
    if (size_ == 1) return move(all, out, count);
    PLIMSOLL_NCCL_CHECK(reduce_scatter(all.at, out.at, size_of(count), type_of(all), kSum, comm_,
                                       machine_.stream()));
  }
  void all_reduce(Array data, std::int64_t count, bool largest) override {
    if (size_ == 1) return;
    PLIMSOLL_NCCL_CHECK(all_reduce(data.at, data.at, size_of(count), type_of(data),
                                   largest ? kMax : kSum, comm_, machine_.stream()));
  }
  void all_reduce(double* data, std::int64_t count) override {
    if (size_ == 1) return;
    PLIMSOLL_NCCL_CHECK(
        all_reduce(data, data, size_of(count), kFloat64, kSum, comm_, machine_.stream()));
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
  }
  void pass_on(Array mine, std::int64_t count, Array out) override {
    if (size_ == 1) return move(mine, out, count);
    PLIMSOLL_NCCL_CHECK(begin());
    give(mine, count, (rank_ + 1) % size_);
    take(out, count, (rank_ + size_ - 1) % size_);
    PLIMSOLL_NCCL_CHECK(end());
  }
  void broadcast(Array data, std::int64_t count, int root, bool /*fresh*/) override {
    if (size_ == 1) return;
    PLIMSOLL_NCCL_CHECK(
        broadcast(data.at, data.at, size_of(count), type_of(data), root, comm_, machine_.stream()));
  }
  void give(Array data, std::int64_t count, int to) {
    PLIMSOLL_NCCL_CHECK(send(data.at, size_of(count), type_of(data), to, comm_, machine_.stream()));
  }
  void take(Array data, std::int64_t count, int from) {
    PLIMSOLL_NCCL_CHECK(
        receive(data.at, size_of(count), type_of(data), from, comm_, machine_.stream()));
  }

 private:
  void move(Array from, Array to, std::int64_t count) {
    if (from.at != to.at) machine_.copy(to.at, from.at, count * bytes_of(from.number));
  }
  const Nccl& nccl_;
  Machine& machine_;
  int size_, rank_ = 0;
  Comm comm_ = nullptr;
};

class NcclPeers final : public Peers {
 public:
  NcclPeers(Machine& machine, Wire& wire, const Layout& l, std::int64_t expert_shard) {
    const std::vector<std::vector<std::int64_t>> groups = members(l, wire.rank(), expert_shard);
    for (std::size_t b = 0; b < groups.size(); ++b)
      circles_.push_back(
          std::make_unique<NcclCircle>(nccl_, machine, wire, groups[b],
                                       static_cast<std::int64_t>(b + 1) << 40 | groups[b].front()));
  }
  Circle& circle(Bond b) override { return *circles_[static_cast<std::size_t>(b)]; }
  void send(Array data, std::int64_t count, std::int64_t rank, std::int64_t) override {
    all().give(data, count, static_cast<int>(rank));
  }
  void receive(Array data, std::int64_t count, std::int64_t rank, std::int64_t) override {
    all().take(data, count, static_cast<int>(rank));
  }

 private:
  NcclCircle& all() { return *circles_[static_cast<std::size_t>(Bond::all)]; }
  Nccl nccl_;
  std::vector<std::unique_ptr<NcclCircle>> circles_;
};

}  // namespace

std::unique_ptr<Peers> nccl_peers(Machine& machine, Wire& wire, const Layout& l,
                                  std::int64_t expert_shard) {
  return std::make_unique<NcclPeers>(machine, wire, l, expert_shard);
}

}  // namespace plimsoll::runtime::cuda
