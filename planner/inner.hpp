// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "planner/layout.hpp"
#include "planner/stage_cost.hpp"
#include "planner/time.hpp"

/// The inner problem of a search: how many layers, and how many of them recomputed, each stage of
/// one outer layout holds. Every number comes from the evaluator (peak.hpp, time.hpp), so that what
/// is found here is what a bill and a step time say.
///
/// A model of L layers is dealt in `vpp` rounds of L / vpp layers. A stage takes `count` layers of
/// each round, from `offset` of the round on (folded schedules take odd rounds from the other end),
/// so (stage, offset, count) says all that it holds.
namespace plimsoll {

/// A stage with its layers and recomputation decided.
struct StageChoice {
  bool fits = false;
  std::int64_t recomputed = 0;  ///< of its layers (all chunks); 0 unless recompute is full
  std::int64_t pace = 0;        ///< ns of one micro-batch, see StageTime
  std::int64_t tail = 0;        ///< ns
};

class Inner {
 public:
  static constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

  /// \a counted: categories that count as memory; all of them but where a search asks what clashes.
  Inner(const Problem&, Clock&, CategoryMask counted = kEverything);
  ~Inner();

  /// The outer layout, with stage_pool; its other lists are what a job pins, or empty. \a cap:
  /// bytes that a stage's peak may reach, beside the memory of its GPU.
  void set(const Layout& outer, std::int64_t cap = kNoLimit);
  /// The same with \a cap in place of the GPUs' memory.
  void set_beyond_memory(const Layout& outer, std::int64_t cap);

  /// Does it matter that offloaded states fit the ranks' shares of host memory? It does unless a
  /// caller asks what would be if it did not.
  void limit_host(bool);

  std::int64_t stages() const;
  std::int64_t chunks() const;
  std::int64_t round_layers() const;  ///< 0: the layers do not divide over the chunks
  const Composition& composition() const;
  /// Does a stage between the first and the last hold the same at every offset?
  bool uniform() const;
  /// Is `recomputed` free (recompute == full), or 0?
  bool recomputes() const;

  /// The least recomputation with which the stage fits (more is never faster). Where none does,
  /// `fits` is false and the rest says nothing.
  const StageChoice& least(std::int64_t stage, std::int64_t offset, std::int64_t count);
  /// With \a recomputed of its count * chunks() layers.
  StageChoice with(std::int64_t stage, std::int64_t offset, std::int64_t count,
                   std::int64_t recomputed);
  /// Can no stage that holds these layers and more fit, whatever is recomputed?
  bool hopeless(std::int64_t stage, std::int64_t offset, std::int64_t count);
  /// Does what stands (weights, gradients, states …) exceed the stages' memories, however the
  /// layers are dealt?
  bool too_much();
  /// Where uniform(): the most layers a round with which the stage is not hopeless, leaving one to
  /// each other stage.
  std::int64_t most_standing(std::int64_t stage);
  /// Do stages between the first and the last differ in what they must hold?
  bool numbered_stages() const;
  /// Are they on GPUs of unlike pools?
  bool unlike_memories() const;
  /// ns of one micro-batch of it with nothing recomputed.
  std::int64_t least_pace(std::int64_t stage, std::int64_t offset, std::int64_t count);
  /// A stage with these layers, \a recomputed of them, does not fit after all (its segments, that
  /// is, come to more than counted here): until the next set().
  void refuse(std::int64_t stage, std::int64_t offset, std::int64_t count, std::int64_t recomputed);
  /// Peak bytes of it, all that peak() counts.
  std::int64_t bytes(std::int64_t stage, std::int64_t offset, std::int64_t count,
                     std::int64_t recomputed);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The most, up to \a most, of which something holds that holds of fewer too; 0 where of none.
template <class Holds>
std::int64_t most_with(std::int64_t most, const Holds& holds) {
  std::int64_t least = 0;
  while (least < most) {
    const std::int64_t middle = least + (most - least + 1) / 2;
    if (holds(middle))
      least = middle;
    else
      most = middle - 1;
  }
  return least;
}

struct InnerSolution {
  std::vector<std::int64_t> stage_layers, recompute_layers;  ///< the latter empty unless recomputes
  std::int64_t nanoseconds = 0;                              ///< of the step

  friend bool operator==(const InnerSolution&, const InnerSolution&) = default;
};

/// The outer layout with the lists of a solution.
Layout with_lists(Layout outer, const InnerSolution&);

/// The fastest way to deal the layers that fits, exactly, where no condition couples stages:
/// dynamic programming over (stage, offset) with the Pareto front of (slowest pace, sum of paces,
/// worst tail). nullopt where none fits with at most \a cutoff nanoseconds. Of equally fast ones
/// the default split (stages that differ by at most one layer), else the first in the order of
/// (stage_layers, recompute_layers).
std::optional<InnerSolution> solve(Inner&, const Problem&, std::int64_t cutoff = Inner::kNoLimit);

/// The same by trying every list: for tests.
std::optional<InnerSolution> solve_by_trying(Inner&, const Problem&);

/// Is there a way that fits at all?
bool can_fit(Inner&);

/// The least peak, at most \a cap (whatever memory the GPUs have), that any way of dealing the
/// layers of \a outer has, and the fastest of those.
std::optional<InnerSolution> solve_for_peak(Inner&, const Problem&, const Layout& outer,
                                            std::int64_t cap = Inner::kNoLimit);

}  // namespace plimsoll
