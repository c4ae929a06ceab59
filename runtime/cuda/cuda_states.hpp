// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/cuda/rank_world.hpp"
#include "runtime/cuda/scratch.hpp"
#include "runtime/device.hpp"
#include "runtime/host/weight_rows.hpp"

/// A rank's weights, gradients and optimizer states, in the memory that the executor asked for:
/// laid out as runtime/host/host_states.hpp does, one family's elements after the other, and never
/// moved to be computed with. What a framework's bill does not count (whole gradients before ZeRO 2
/// divides them, gathered weights of ZeRO 3) lies in scratch.
namespace plimsoll::runtime::cuda {

class CudaStates {
 public:
  CudaStates(const RankWorld&, Machine&, Scratch&, Peers&);

  /// A state's memory came, or goes.
  void add(const TensorInfo&, TensorId, void* at);
  void remove(TensorId);
  /// Its memory lies elsewhere now, and is shorter.
  void move(TensorId, void* at, std::int64_t bytes);

  void start();
  void begin_step();
  /// As it is stored; tied ones are the weight that they are tied to. May be put together in \a
  /// rooms where it does not lie in one piece.
  Array weight(WeightId, std::vector<Room>& rooms);
  /// What the weight's gradient is added to; empty where it is frozen.
  Array gradient(WeightId);
  bool transposed(WeightId w) const { return host::stored_transposed(*world_.problem.program, w); }

  void gather_weights(std::uint32_t segment);
  void release_weights() { gathered_.clear(); }
  void reduce_gradients(std::uint32_t segment);
  void clip();
  void update(int step);
  void gather_updated();

  /// Calls f(weight, place in the whole weight, value) for this rank's part of all gradients (after
  /// clip()), or parameters. For tests: it copies number by number.
  using Look = std::function<void(WeightId, std::int64_t place, float)>;
  void look_at_gradients(const Look&);
  void look_at_parameters(const Look&);

 private:
  struct Entry : host::WeightEntry {
    std::int64_t in_segment = -1;       ///< as `trained`, among its segment's
    std::int64_t share_at = 0;          ///< of this rank's share: where it lies in the state
    std::int64_t share_in_segment = 0;  ///< and among its segment's
    Room gradient;                      ///< whole, where the state has no room for it
    Room share;                         ///< this rank's part of it, likewise
  };
  struct Piece {
    TensorId tensor = kNoTensor;
    char* at = nullptr;
    std::int64_t bytes = 0;
    std::uint32_t segment = kNone;  ///< gradients that a segment's first backward makes
  };
  struct State {
    Number number = Number::fp32;
    std::vector<Piece> pieces;
    Room beyond;  ///< elements that the pieces have no room for as a whole
    std::int64_t beyond_count = 0;
  };
  struct Family {
    std::vector<Entry> entries;
    std::int64_t count = 0, trained = 0;
    Bond shard = Bond::shard, replicas = Bond::replicas;
    std::map<std::string, State> states;
  };
  /// Elements of a weight.
  struct Range {
    std::int64_t first = 0, count = 0;
  };

  Circle& circle(Bond b) { return peers_.circle(b); }
  /// What of a weight's states a rank has: under ZeRO 1 and 2 a range of the family's trained
  /// elements lies on each, under ZeRO 3 a part of every weight (as FSDP2 divides them).
  Range share(const Family&, const Entry&, int rank);
  Range share(const Family& f, const Entry& e) { return share(f, e, circle(f.shard).rank()); }
  /// What of the weight itself this rank keeps.
  Range kept(const Family& f, const Entry& e) {
    return world_.layout.zero >= 3 ? share(f, e) : Range{0, e.count};
  }
  std::int64_t share_count(const Family& f);
  bool has(const Family& f, const char* state) const { return f.states.count(state) > 0; }
  /// Element \a i of a state that has \a total of them; \a count becomes how many lie there in a
  /// row at most.
  Array at(State&, std::int64_t total, std::int64_t i, std::int64_t& count);
  /// The weight's element \a i (of those that this rank keeps), and of its share of gradients.
  Array weights_at(Family&, Entry&, std::int64_t i, std::int64_t& count);
  Array gradient_of(Family&, Entry&);
  Array gradient_share(Family&, Entry&, std::int64_t i, std::int64_t& count);
  Array state_share(Family&, Entry&, const char* state, std::int64_t i, std::int64_t& count);
  /// Calls f(i, n, arrays…) for stretches of elements that lie in one piece in each of \a where.
  template <class F, class... Where>
  static void in_stretches(const Range& r, F run, Where... where) {
    for (std::int64_t i = r.first, n = 0; i < r.first + r.count; i += n) {
      n = r.first + r.count - i;
      (static_cast<void>(where(i, n)), ...);  // each makes n smaller
      const std::int64_t all = n;
      run(i, all, where(i, n)...);
    }
  }
  void sum_replicas(Family&, Entry&);
  void add_to_share(Family&, Entry&);
  void sum_ties();
  void fill(const Entry&, Array to, std::int64_t first, std::int64_t count);
  void look(Array from, std::int64_t count, const Entry&, std::int64_t first, const Look&);

  const RankWorld& world_;
  Machine& machine_;
  Scratch& scratch_;
  Peers& peers_;
  host::WeightRows<Family> families_;
  std::map<WeightId, Room> gathered_;  ///< ZeRO 3
  Room square_;                        ///< of the gradients' norm, and its parts
};

}  // namespace plimsoll::runtime::cuda
