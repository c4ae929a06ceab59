// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lang/diagnostics.hpp"
#include "runtime/host/rank_shapes.hpp"
#include "runtime/stage_plan.hpp"

/// A stage's weights as devices that compute store them: one after the other, in a row for each
/// family (dense, experts', and copies of weights whose owner is on another stage).
namespace plimsoll::runtime::host {

enum WeightFamily : std::uint8_t { dense, experts, tied, family_count };

/// Weights that a stage's ops read, as the program numbers them.
std::set<WeightId> weights_on(const Program&, const StagePlan&);
/// The weight whose storage \a w is.
WeightId stored_as(const Program&, WeightId w);
/// Is a head stored as the embedding that it is tied to, the other way around?
bool stored_transposed(const Program&, WeightId);
/// Stored weights that several stages have, and whether this stage is one of them. \a stages: the
/// plans of the rank's places on all stages.
std::map<WeightId, bool> tied_across(const Program&, const std::vector<const StagePlan*>& stages,
                                     std::int64_t stage);

/// A weight of the stage, to be stored once: \a weight names its storage.
struct StoredWeight {
  WeightId weight = kNone;
  WeightFamily family = dense;
  std::uint32_t segment = 0;  ///< the first that reads it
  bool trained = true;
};
std::vector<StoredWeight> stored_weights(const Problem&, const StagePlan&);

/// What a row of the inventory holds, by the name that lowering gives it (lower_states.cpp):
/// "weights", "gradients", "master weights", or a moment ("m"); "" where it is another thing.
struct StateName {
  WeightFamily family = dense;
  std::string state;
};
StateName state_name(const Problem&, const Item&);

/// The place in the whole weight of an element of this rank's part; -1: padding.
std::int64_t whole_place(const Program&, const RankShapes&, WeightId, std::int64_t element);

/// How a weight begins: shift + scale x / divisor, with x normal by its place.
struct InitialLaw {
  double scale = 1, shift = 0, divisor = 1;
};
InitialLaw initial_law(const Program&, WeightId);

/// Where a weight lies in its family's row. Devices add what they keep with it.
struct WeightEntry {
  WeightId weight = kNone;  ///< as it is stored: the owner of a tied one
  std::uint32_t segment = 0;
  std::int64_t offset = 0, count = 0;  ///< in its family's row
  std::int64_t trained = -1;           ///< offset among the trained; -1: frozen
  bool tied_across = false;            ///< other stages have it too
};

/// The rows of all families. Family has `entries` (of WeightEntry or more), `count` and `trained`.
template <class Family>
class WeightRows {
 public:
  using Entry = typename decltype(Family::entries)::value_type;

  WeightRows(const Problem& problem, const StagePlan& plan, const RankShapes& shapes,
             const std::map<WeightId, bool>& ties)
      : program_(*problem.program) {
    for (const StoredWeight& w : stored_weights(problem, plan)) {
      Family& f = families_[w.family];
      Entry e;
      e.weight = w.weight;
      e.segment = w.segment;
      e.offset = f.count;
      e.count = shapes.weights[w.weight].count();
      e.tied_across = ties.count(w.weight) > 0;
      f.count += e.count;
      if (w.trained) {
        e.trained = f.trained;
        f.trained += e.count;
      }
      place_[w.weight] = {w.family, f.entries.size()};
      f.entries.push_back(std::move(e));
    }
  }
  Family& operator[](WeightFamily f) { return families_[f]; }
  auto begin() { return families_.begin(); }
  auto end() { return families_.end(); }
  bool has(WeightId stored) const { return place_.count(stored) > 0; }
  Family& family_of(WeightId w) { return families_[place_.at(stored_as(program_, w)).first]; }
  Entry& find(WeightId w) {
    const auto at = place_.find(stored_as(program_, w));
    PLIMSOLL_ASSERT(at != place_.end());
    return families_[at->second.first].entries[at->second.second];
  }

 private:
  const Program& program_;
  std::array<Family, family_count> families_;
  std::map<WeightId, std::pair<WeightFamily, std::size_t>> place_;  ///< by stored weight
};

}  // namespace plimsoll::runtime::host
