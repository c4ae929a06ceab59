// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <numeric>

#include "runtime/cuda/peers.hpp"
#include "runtime/ranks.hpp"

namespace plimsoll::runtime::cuda {

namespace {

/// Deviation of what stages would send.
constexpr float kNoise = 0.02f;

class StandIn final : public Circle {
 public:
  StandIn(Machine& machine, int size, int rank) : machine_(machine), size_(size), rank_(rank) {}
  int size() const override { return size_; }
  int rank() const override { return rank_; }

  void all_gather(Array mine, std::int64_t count, Array out) override {
    for (int r = 0; r < size_; ++r) move(mine, out.from(r * count), count);
  }
  void reduce_scatter(Array all, std::int64_t count, Array out) override {
    move(all.from(rank_ * count), out, count);
  }
  void all_reduce(Array, std::int64_t, bool) override {}
  void all_reduce(double*, std::int64_t) override {}
  void all_to_all(Array send, const Counts& sent, Array received, const Counts& expected) override {
    const std::int64_t have = std::accumulate(sent.begin(), sent.end(), std::int64_t{0});
    std::int64_t wanted = std::accumulate(expected.begin(), expected.end(), std::int64_t{0});
    for (std::int64_t at = 0; have > 0 && at < wanted; at += have)
      move(send, received.from(at), std::min(have, wanted - at));
  }
  void pass_on(Array mine, std::int64_t count, Array out) override { move(mine, out, count); }
  void broadcast(Array data, std::int64_t count, int root, bool fresh) override {
    if (fresh && root != rank_) machine_.launch(Noise{data, count, 0, 1, kNoise});
  }

 private:
  void move(Array from, Array to, std::int64_t count) {
    if (from.at != to.at) machine_.copy(to.at, from.at, count * bytes_of(from.number));
  }
  Machine& machine_;
  int size_, rank_;
};

class StandIns final : public Peers {
 public:
  StandIns(Machine& machine, const Places& p) : machine_(machine) {
    for (int b = 0; b < kBondCount; ++b) circles_.emplace_back(machine, p.size[b], p.rank[b]);
  }
  Circle& circle(Bond b) override { return circles_[static_cast<std::size_t>(b)]; }
  void send(Array, std::int64_t, std::int64_t, std::int64_t) override {}
  void receive(Array data, std::int64_t count, std::int64_t, std::int64_t tag) override {
    machine_.launch(Noise{data, count, 0, static_cast<std::uint64_t>(tag), kNoise});
  }

 private:
  Machine& machine_;
  std::vector<StandIn> circles_;
};

}  // namespace

std::vector<std::vector<std::int64_t>> members(const Layout& l, std::int64_t rank,
                                               std::int64_t expert_shard) {
  std::vector<std::int64_t> stages;
  for (std::int64_t s = 0; s < l.pp; ++s) stages.push_back(rank_in_stage(l, rank, s));
  const std::vector<std::int64_t> all = group(l, RankGroup::edp, rank);
  const auto mine = std::find(all.begin(), all.end(), rank) - all.begin();
  const auto first = all.begin() + mine / expert_shard * expert_shard;
  return {group(l, RankGroup::tp, rank),
          group(l, RankGroup::cp, rank),
          group(l, RankGroup::ep, rank),
          group(l, RankGroup::etp, rank),
          group(l, RankGroup::dp_cp, rank),
          group(l, RankGroup::edp, rank),
          group(l, RankGroup::shard, rank),
          {first, first + expert_shard},
          stages,
          group(l, RankGroup::all, rank)};
}

Places places(const Layout& l, std::int64_t rank, std::int64_t expert_shard) {
  Places p{};
  const auto groups = members(l, rank, expert_shard);
  for (std::size_t b = 0; b < groups.size(); ++b) {
    const std::vector<std::int64_t>& ranks = groups[b];
    p.size[b] = static_cast<int>(ranks.size());
    p.rank[b] = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  }
  return p;
}

std::unique_ptr<Peers> stand_ins(Machine& machine, const Places& p) {
  return std::make_unique<StandIns>(machine, p);
}

}  // namespace plimsoll::runtime::cuda
