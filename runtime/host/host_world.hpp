// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/allocator.hpp"
#include "runtime/host/host_backing.hpp"
#include "runtime/host/op_call.hpp"
#include "runtime/ranks.hpp"
#include "runtime/stage_plan.hpp"

/// What the ranks of one run on the host share.
namespace plimsoll::runtime::host {

struct HostOptions {
  int steps = 2;
  std::uint64_t seed = 1;  ///< of weights, text and dropout
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
  double clip_norm = 0;          ///< largest norm of all gradients together; 0: not clipped
  bool balanced_routing = true;  ///< experts by turns, see ops_experts.cpp
  bool ring = true;              ///< context parallelism passes keys and values around
  bool same_text = false;        ///< every step reads the first step's text
  bool keep_tensors = false;     ///< HostRun::gradients and parameters are wanted
  AllocatorOptions allocator;
  std::int64_t capacity = CountingBacking::kNoLimit;  ///< bytes that a rank's allocator can have
  std::vector<std::int64_t> capacities;  ///< by rank, in place of `capacity`; empty: none
  std::int64_t total_capacity = CountingBacking::kNoLimit;  ///< that all ranks' can have together
};

/// Whole tensors of the model by weight, put together from the ranks' parts.
using WholeTensors = std::vector<std::vector<float>>;

/// Tokens of a step that have a target.
double loss_tokens(const Problem&, const Layout&);

class HostWorld {
 public:
  /// \a problem and \a layout outlive it. Throws InternalError where the job asks for arithmetic
  /// that the host does not do.
  /// \a wire: to the other ranks where they are processes.
  HostWorld(const Problem& problem, const Layout& layout, const HostOptions&, Wire* wire = nullptr);

  const Problem& problem;
  const Layout& layout;
  const HostOptions options;
  RunFacts facts;
  Post post;
  HostBudget budget;

  std::int64_t ranks() const { return static_cast<std::int64_t>(plans_.size()); }
  const StagePlan& plan(std::int64_t rank) const { return *plans_.at(at(rank)); }
  const RankShapes& shapes(std::int64_t rank) const { return *shapes_.at(at(rank)); }
  Groups groups(std::int64_t rank);
  Group group(RankGroup, std::int64_t rank);
  /// The ranks that divide the experts' states with this one.
  Group expert_shard(std::int64_t rank);
  /// The ranks at this one's place in all stages.
  Group stages(std::int64_t rank);

  /// Calls f with the world's tensors locked: by step, gradients (before they are clipped) and
  /// parameters (after the update).
  std::mutex mutex;
  std::vector<WholeTensors> gradients, parameters;

 private:
  static std::size_t at(std::int64_t rank) { return static_cast<std::size_t>(rank); }
  Group meet(int kind, const std::vector<std::int64_t>& ranks, std::int64_t rank);

  std::vector<std::unique_ptr<StagePlan>> plans_;
  std::vector<std::unique_ptr<RankShapes>> shapes_;
  std::map<std::pair<int, std::int64_t>, std::unique_ptr<Meeting>> meetings_;  ///< by first rank
};

}  // namespace plimsoll::runtime::host
