// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <map>

#include "runtime/cuda/peers.hpp"
#include "runtime/host/host_world.hpp"

/// What one rank's run on the device `cuda` knows. Unlike on the host the ranks of a run share
/// nothing: each may be a process of its own.
namespace plimsoll::runtime::cuda {

using host::RankShapes;
using host::RunFacts;
using host::ValueShape;
using host::WeightShape;

struct RunOptions {
  int steps = 2;
  std::uint64_t seed = 1;
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
  double clip_norm = 0;    ///< 0: not clipped
  bool same_text = false;  ///< every step reads the first step's text
  bool times = false;      ///< how long each op takes is wanted
};

struct RankWorld {
  /// \a problem and \a layout outlive it.
  RankWorld(const Problem& problem, const Layout& layout, std::int64_t rank, const RunOptions&);

  const Problem& problem;
  const Layout& layout;
  RunOptions options;
  RunFacts facts;
  StagePlan plan;
  RankShapes shapes;
  std::int64_t expert_shard = 1;
  /// Stored weights that several stages have, and whether this one does.
  std::map<WeightId, bool> ties;
};

/// Why the device `cuda` cannot do this job's arithmetic, in words; "" where it can.
std::string why_not_on_cuda(const Problem&, const Layout&);

/// Numbers in few runs; throws InternalError where they are too many (why_not_on_cuda() asks
/// first).
Runs runs_of(const std::vector<std::int64_t>& numbers);

}  // namespace plimsoll::runtime::cuda
