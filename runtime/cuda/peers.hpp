// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "planner/layout.hpp"
#include "runtime/cuda/machine.hpp"

/// Collectives on the device's memory, in the order of the rank's work. Who is on the other side:
/// nobody (StandIns), other GPUs (nccl_peers.hpp), or in the unit tests threads.
namespace plimsoll::runtime::cuda {

/// The groups that a rank is in.
enum class Bond : std::uint8_t {
  tp,
  cp,
  ep,
  etp,
  replicas,         ///< of dense weights
  expert_replicas,  ///< of experts' weights
  shard,            ///< who divide states
  expert_shard,
  stages,  ///< the ranks at this one's place in all stages
  all,
};
inline constexpr int kBondCount = 10;

using Counts = std::vector<std::int64_t>;

/// A rank's place in a group, and the group's collectives. Every rank calls the same ones in the
/// same order; counts are elements.
class Circle {
 public:
  virtual ~Circle() = default;
  virtual int size() const = 0;
  virtual int rank() const = 0;

  /// out (size * count) = what each rank gave.
  virtual void all_gather(Array mine, std::int64_t count, Array out) = 0;
  /// out (count) = the sum over ranks of their part for this one; \a all is size * count.
  virtual void reduce_scatter(Array all, std::int64_t count, Array out) = 0;
  virtual void all_reduce(Array data, std::int64_t count, bool largest = false) = 0;
  virtual void all_reduce(double* data, std::int64_t count) = 0;
  virtual void all_to_all(Array send, const Counts& sent, Array received,
                          const Counts& expected) = 0;
  /// out = what the rank before gave.
  virtual void pass_on(Array mine, std::int64_t count, Array out) = 0;
  /// From rank \a root to all, in place; `fresh`: what lies there elsewhere is worth nothing.
  virtual void broadcast(Array data, std::int64_t count, int root, bool fresh) = 0;
};

class Peers {
 public:
  virtual ~Peers() = default;
  virtual Circle& circle(Bond) = 0;
  /// To and from a rank by its number in the layout; in the order in which they are sent.
  virtual void send(Array data, std::int64_t count, std::int64_t rank, std::int64_t tag) = 0;
  virtual void receive(Array data, std::int64_t count, std::int64_t rank, std::int64_t tag) = 0;
  /// This rank goes no further: whoever waits for it, now or later, is let go (host::Stopped), and
  /// what this one's GPU still waits for ends.
  virtual void stop() {}
  /// Bytes reserved at most for what is on its way.
  virtual std::int64_t scratch() const { return 0; }
};

/// The ranks of each of a rank's groups, by Bond.
std::vector<std::vector<std::int64_t>> members(const Layout&, std::int64_t rank,
                                               std::int64_t expert_shard);

/// Sizes of a rank's groups and its place in each, by Bond.
struct Places {
  int size[kBondCount], rank[kBondCount];
};
Places places(const Layout&, std::int64_t rank, std::int64_t expert_shard);

/// Nobody is there: data of the right size moves within the rank's own memory. What should come
/// from others is its own again (gathers), its own part (sums), or noise (sends between stages);
/// the numbers mean nothing, the memory and the work around them are a rank's.
std::unique_ptr<Peers> stand_ins(Machine&, const Places&);

}  // namespace plimsoll::runtime::cuda
