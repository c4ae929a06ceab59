// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "planner/domains.hpp"
#include "planner/judge.hpp"

/// The outer layouts of a job, in two steps: first the variables that say how a model is cut over
/// GPUs (a core: nodes … mbs), then those that say how each rank keeps and orders what it has (a
/// leaf: sp … offload, and where pools lie). A search looks into a core only where its bound is
/// good enough.
namespace plimsoll {

/// A core or a leaf, small enough to keep by the million.
struct Point {
  std::int64_t seq = 0, batch = 0, mbs = 0;
  std::int32_t tp = 1, pp = 1, cp = 1, ep = 1, etp = 1, vpp = 1, dp = 1, nodes = 0, shard = 0;
  std::int16_t offload = 0;  ///< thousandths
  std::int8_t zero = 0, recompute = 0, schedule = 0, sp = 0;
  std::uint16_t pools = 0;  ///< which order of the pools, or which pinned stage_pool
};

class Space {
 public:
  Space(const Problem&, Judge&);

  /// Every core that is possible and meets the requirements on its variables. \a env has its
  /// variables.
  void cores(const std::function<void(const Layout&, Env& env)>& each);
  /// Every leaf of a core likewise; the lists of the layout are empty but stage_pool.
  void leaves(const Point& core, const std::function<void(const Layout&, Env& env)>& each);
  /// Of the cores that differ in nothing but the micro-batch, those with the smallest one.
  void thrifty_cores(const std::function<void(const Layout&, Env& env)>& each);
  /// Of a core's leaves those that hold the least: the highest ZeRO stage, of those the largest
  /// shard group, of those full recomputation, of those the most offloaded.
  std::vector<Layout> thriftiest(const Point& core);
  /// Leaves of a core, whatever requirements say of them.
  std::int64_t leaf_count(const Point& core);

  Point point(const Layout&) const;
  Layout layout(const Point&) const;
  const Domains& domains() const { return domains_; }
  Env& env() { return env_; }
  void set_env(const Layout&);
  /// The variables that a core decides.
  static std::uint64_t core_variables();

  /// Of the combinations that came furthest, what turned away the most; "" where nothing did.
  std::string most_frequent_reason() const;

 private:
  void choose(std::size_t knob, std::size_t end, std::uint64_t known);
  void try_value(std::size_t knob, std::size_t end, std::int64_t value, std::uint64_t known);
  /// Degrees must divide what is left of the GPUs, mbs the batch: said before anything is priced.
  std::string why_not(Knob, std::int64_t value) const;
  std::string why_no_value(Knob) const;
  /// Counts a reason why combinations whose first \a depth variables are set are not looked at.
  void turn_away(std::size_t depth, const std::string& why);
  void reach(std::size_t end);
  void choose_thriftiest(std::size_t knob, std::size_t end, std::vector<std::int64_t> values,
                         std::uint64_t known);
  std::int64_t count_leaves(Layout core);
  /// The orders in which unlike pools can hold the stages; one empty list where pools are alike.
  std::vector<std::vector<std::uint32_t>> pool_orders(const Layout&) const;

  const Problem& problem_;
  Judge& judge_;
  Domains domains_;
  bool settles_late_, unlike_pools_;
  bool usual_leaves_ = true;  ///< the job gives no variable of a leaf any values
  std::map<std::array<std::int64_t, 4>, std::int64_t> leaf_counts_;  ///< where those are usual
  bool thrifty_ = false;      ///< only the thriftiest are wanted
  std::int64_t reached_ = 0;  ///< cores or leaves so far
  Layout layout_;             ///< as far as it is chosen
  Env env_;
  std::int64_t gpus_ = 0;
  const std::function<void(const Layout&, Env&)>* each_ = nullptr;
  std::size_t deepest_ = 0;  ///< variables that were set where reasons_ arose
  std::map<std::string, std::int64_t> reasons_;
};

}  // namespace plimsoll
