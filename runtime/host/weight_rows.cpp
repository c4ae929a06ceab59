// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/host/weight_rows.hpp"

#include <cmath>

namespace plimsoll::runtime::host {

std::set<WeightId> weights_on(const Program& p, const StagePlan& plan) {
  std::set<WeightId> weights;
  for (const PlannedChunk& chunk : plan.chunks)
    for (const PlannedSegment& s : chunk.segments) {
      const Segment& segment = p.segments[s.segment];
      for (OpId o = segment.first_op; o < segment.first_op + segment.op_count; ++o)
        weights.insert(p.ops[o].weights.begin(), p.ops[o].weights.end());
    }
  return weights;
}

WeightId stored_as(const Program& p, WeightId w) {
  while (p.weights[w].tied_to != kNone) w = p.weights[w].tied_to;
  return w;
}

bool stored_transposed(const Program& p, WeightId w) {
  return p.weights[w].role != Role::embedding && p.weights[stored_as(p, w)].role == Role::embedding;
}

std::map<WeightId, bool> tied_across(const Program& p, const std::vector<const StagePlan*>& stages,
                                     std::int64_t stage) {
  std::map<WeightId, std::set<std::int64_t>> on_stages;
  for (std::size_t s = 0; s < stages.size(); ++s)
    for (const WeightId w : weights_on(p, *stages[s]))
      on_stages[stored_as(p, w)].insert(static_cast<std::int64_t>(s));
  std::map<WeightId, bool> ties;
  for (const auto& [w, on] : on_stages)
    if (on.size() > 1) ties[w] = on.count(stage) > 0;
  return ties;
}

/// A copy where the owner is on another stage, one for all who are tied to it.
std::vector<StoredWeight> stored_weights(const Problem& problem, const StagePlan& plan) {
  const Program& p = *problem.program;
  const std::set<WeightId> here = weights_on(p, plan);
  std::set<WeightId> known;
  std::vector<StoredWeight> stored;
  for (const PlannedChunk& chunk : plan.chunks)
    for (const PlannedSegment& s : chunk.segments) {
      const Segment& segment = p.segments[s.segment];
      for (OpId o = segment.first_op; o < segment.first_op + segment.op_count; ++o)
        for (const WeightId w : p.ops[o].weights) {
          const WeightId owner = stored_as(p, w);
          if ((w != owner && here.count(owner)) || !known.insert(owner).second) continue;
          const WeightFamily family = w != owner                          ? tied
                                      : p.weights[owner].experts != kNone ? experts
                                                                          : dense;
          stored.push_back({owner, family, s.segment, problem.inventory.facts.trained[w]});
        }
    }
  return stored;
}

StateName state_name(const Problem& problem, const Item& item) {
  StateName name{dense, item.name};
  std::string& state = name.state;
  const std::string of_experts = "experts' ", of_copy = " of the tied copy";
  if (state.starts_with(of_experts)) {
    name.family = experts;
    state.erase(0, of_experts.size());
  } else if (state.size() > of_copy.size() && state.ends_with(of_copy)) {
    name.family = tied;
    state.erase(state.size() - of_copy.size());
  }
  const std::string& optimizer = problem.job->optimizer;
  if (item.category == Category::moments && state.starts_with(optimizer + " "))
    state.erase(0, optimizer.size() + 1);
  else if (state != "weights" && state != "gradients" && state != "master weights")
    state.clear();
  return name;
}

std::int64_t whole_place(const Program& p, const RankShapes& shapes, WeightId w,
                         std::int64_t element) {
  const WeightShape& s = shapes.weights[w];
  const Weight& weight = p.weights[w];
  const std::int64_t copy = s.first_copy + element / (s.rows * s.cols);
  const std::int64_t row = s.row_of[static_cast<std::size_t>(element / s.cols % s.rows)];
  const std::int64_t col = s.col_of[static_cast<std::size_t>(element % s.cols)];
  if (row >= weight.rows || col >= weight.cols) return -1;
  return (copy * weight.rows + row) * weight.cols + col;
}

InitialLaw initial_law(const Program& p, WeightId id) {
  const Weight& w = p.weights[id];
  if (w.role == Role::norm) {
    bool plus_one = false;
    for (const Op& op : p.ops)
      plus_one = plus_one || (!op.weights.empty() && op.weights[0] == id && op.plus_one);
    return {0.1, plus_one ? 0.0 : 1.0, 1};
  }
  if (w.name == "D") return {0.1, 1, 1};  // mamba2's
  if (w.role == Role::embedding) return {1, 0, std::sqrt(static_cast<double>(w.cols))};
  if (w.dims < 2) return {0.1, 0, 1};
  return {1, 0, std::sqrt(static_cast<double>(w.rows))};
}

}  // namespace plimsoll::runtime::host
