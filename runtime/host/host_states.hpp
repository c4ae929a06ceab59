// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "runtime/device.hpp"
#include "runtime/host/half.hpp"
#include "runtime/host/host_world.hpp"
#include "runtime/host/weight_rows.hpp"

/// A rank's weights, gradients and optimizer states, in the memory that the executor asked for.
///
/// The weights of a stage lie in rows (weight_rows.hpp). ZeRO gives a rank a piece of each row.
/// What a framework's bill does not count (whole gradients before ZeRO 2 divides them, gathered
/// weights of ZeRO 3) lies in scratch.
namespace plimsoll::runtime::host {

/// A piece of memory that the run counts.
struct Piece {
  TensorId tensor = kNoTensor;
  std::byte* at = nullptr;
  std::int64_t bytes = 0;
};

class HostStates {
 public:
  HostStates(HostWorld& world, std::int64_t rank);

  /// A state's memory came, or goes.
  void add(const TensorInfo&, const Piece&);
  void remove(TensorId);
  void shrink(TensorId, std::int64_t bytes);

  /// Fills the weights: each element by its place in the whole model.
  void start();
  void begin_step();
  /// A weight's part on this rank as the ops read it: that of the weight it is tied to, if any.
  const float* weight(WeightId);
  /// What its gradient is added to; nullptr where it is frozen.
  float* gradient(WeightId);
  bool transposed(WeightId w) const { return stored_transposed(*world_.problem.program, w); }

  void gather_weights(std::uint32_t segment);
  void release_weights(std::uint32_t segment);
  /// Over the replicas: of one segment, or (kNone) of all.
  void reduce_gradients(std::uint32_t segment);
  /// Adds up the gradients of tied weights over stages; divides (ZeRO 1) and scales them.
  void clip(int step);
  void update(int step);
  void gather_updated();
  /// For who wants to see them (HostOptions::keep_tensors).
  void publish_parameters(int step);

 private:
  struct Entry : WeightEntry {
    std::vector<float> gradient;  ///< whole, where the state has no room for it
  };
  struct State {
    Storage storage = Storage::fp32;
    std::vector<Piece> pieces;
    std::vector<float> beyond;  ///< elements that the pieces have no room for as a whole
  };
  struct Family {
    std::vector<Entry> entries;
    std::int64_t count = 0, trained = 0;
    Group shard, replicas;
    std::map<std::string, State> states;  ///< "weights", "gradients", "master weights", "m" …
    /// Weights as ops read them, where ZeRO 3 divides them or they are stored as halves.
    std::vector<float> compute;
    std::vector<float> share;  ///< this rank's part of the gradients, summed up
  };
  struct Range {
    std::int64_t first = 0, count = 0;
  };

  Range part(const Family&, std::int64_t count, int rank, int from_zero) const;
  Range mine(const Family& f, std::int64_t count, int from_zero) const {
    return part(f, count, f.shard.rank, from_zero);
  }
  std::vector<float> read(Family&, const std::string& state, std::int64_t count);
  void write(Family&, const std::string& state, const std::vector<float>&);
  float* whole(Family&, const std::string& state, std::int64_t count);
  float* gradient_of(Family&, Entry&);
  float* weights_of(Family&);
  bool has(const Family& f, const std::string& state) const { return f.states.count(state) > 0; }
  /// Calls f(entry, element of it, place in the range) for what of the trained (or all) lies in it.
  template <class F>
  void for_each(const Family& family, const Range& range, bool trained, F f) const {
    for (const Entry& e : family.entries) {
      const std::int64_t offset = trained ? e.trained : e.offset;
      if (offset < 0) continue;
      const std::int64_t last = std::min(offset + e.count, range.first + range.count);
      for (std::int64_t i = std::max(offset, range.first); i < last; ++i)
        f(e, i - offset, static_cast<std::size_t>(i - range.first));
    }
  }
  void sum_replicas(Family&, Entry&);
  void sum_ties();
  void add_to_share(Family&, Entry&);
  void store_gradients(Family&);
  void store_weights();
  void step(Family&, int step);
  float initial(const Entry&, std::int64_t element) const;
  void publish(std::vector<WholeTensors>&, int step, const Entry&, std::int64_t element, float);

  HostWorld& world_;
  std::int64_t rank_;
  const StagePlan& plan_;
  const RankShapes& shapes_;
  Groups groups_;
  std::map<WeightId, bool> ties_;  ///< owners that several stages have, and whether this one does
  WeightRows<Family> families_;
};

}  // namespace plimsoll::runtime::host
