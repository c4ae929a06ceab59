// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lang/module.hpp"
#include "planner/enumerate.hpp"

/// `plan --on`: the same file planned on other GPUs. Each is the whole file with the cluster's GPU
/// replaced, compiled and planned again; what else the cluster says (its nodes, links that it
/// overrides) stays as it is.
namespace plimsoll {

struct OnGpu {
  std::string gpu;
  bool own = false;  ///< the file's
  PlanResult::Status status = PlanResult::unknown;
  std::optional<Priced> best;      ///< without its unmet preferences
  std::optional<Priced> tightest;  ///< where none fits
  std::string layout;              ///< describe() of either
  std::vector<std::string> unmet;  ///< preferences that the best does not meet
  bool priced = false;             ///< the GPU has a price
  std::string why;        ///< why it was not planned: "gpu 'x' has no peak_bf16"; "" where it was
  std::string plan_text;  ///< the whole file with the change made
};

/// A row a GPU, the file's own first with \a own as its result, the others in their order, each
/// once. Every name of \a gpus must be declared, and the cluster be of one kind of GPU.
std::vector<OnGpu> plan_on(const Problem&, const PlanResult& own,
                           const std::vector<std::string>& gpus, const PlanOptions&,
                           const CompileOptions& = {});

/// Is the cluster's GPU one that plan_on() can replace?
bool has_one_gpu(const Cluster&);

}  // namespace plimsoll
