// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Which lines of a file leave no layout at all.

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "lang/diagnostics.hpp"
#include "planner/edits.hpp"
#include "planner/enumerate.hpp"
#include "planner/questions.hpp"

namespace plimsoll {
namespace {

constexpr std::int64_t kMoreLayers = 64;  ///< times as many
constexpr std::int64_t kMostNodes = 8;    ///< likewise

/// Is a layout possible, whatever it needs?
bool possible(const Problem& problem) {
  PlanOptions none;
  none.top = 1;
  none.budget = 0;
  Diagnostics said;
  return plan(problem, none, said).space > 0;
}

bool possible(const Problem& problem, const Job& job) {
  Problem same = problem;
  same.job = &job;
  return possible(same);
}

/// A job with a batch that every number of its GPUs divides.
bool possible_with_another_batch(const Problem& problem) {
  if (problem.job->serve || problem.job->batch.is_zero()) return false;
  Job job = *problem.job;
  job.batch = job.batch * Rational(problem.cluster->gpus());
  if (job.batch_in_tokens)
    job.batch = job.seq.is_zero() ? job.batch : job.seq * Rational(problem.cluster->gpus());
  job.layout.erase("batch");
  return possible(problem, job);
}

bool possible_with_more_nodes(const Problem& problem) {
  if (problem.cluster->pools.size() != 1 || problem.cluster->nodes_are_free()) return false;
  Cluster cluster = *problem.cluster;
  Problem same = problem;
  same.cluster = &cluster;
  const std::int64_t now = cluster.pools.front().nodes.front();
  for (std::int64_t times = 2; times <= kMostNodes; ++times) {
    cluster.pools.front().nodes = {now * times};
    if (possible(same)) return true;
  }
  return false;
}

/// All of its GPUs in one pool.
bool possible_with_one_pool(const Problem& problem) {
  if (problem.cluster->pools.size() < 2) return false;
  Cluster cluster = *problem.cluster;
  cluster.pools.resize(1);
  cluster.pools.front().nodes = {1};
  cluster.pools.front().gpus_per_node = problem.cluster->gpus();
  Problem same = problem;
  same.cluster = &cluster;
  Job job = *problem.job;
  job.layout.erase("stage_pool");
  return possible(same, job);
}

bool possible_with_more_layers(const Problem& problem) {
  Program program = *problem.program;
  program.layer_count *= kMoreLayers;
  Problem same = problem;
  same.program = &program;
  return possible(same);
}

CoreItem placed(const Sources& sources, std::string text, std::optional<Span> span) {
  if (!span) return {std::move(text), "", 0, {}};
  return {std::move(text),
          sources[span->file].name(),
          static_cast<std::int64_t>(sources[span->file].position(span->begin).line),
          {}};
}

}  // namespace

std::vector<CoreItem> find_conflict(const Problem& problem) {
  const Sources& sources = problem.module->sources();
  Job job = *problem.job;
  std::vector<CoreItem> core;
  // Leaving one out makes it possible: it stays, and is part of what clashes.
  for (const auto& [variable, choice] : problem.job->layout) {
    if (variable == "seq" || variable == "batch" || variable == "sequences") continue;
    Job without = job;
    without.layout.erase(variable);
    if (!possible(problem, without)) {
      job = std::move(without);
      continue;
    }
    std::string text(sources.text(choice.span));
    if (!text.starts_with(variable)) text = variable + " in " + text;
    core.push_back(placed(sources, std::move(text), choice.span));
  }
  for (std::size_t i = 0; i < job.require.size();) {
    Job without = job;
    without.require.erase(without.require.begin() + static_cast<std::ptrdiff_t>(i));
    if (!possible(problem, without)) {
      job = std::move(without);
      continue;
    }
    core.push_back(placed(sources, job.require[i].name, job.require[i].span));
    ++i;
  }
  // So are the numbers of the job, its cluster and its model, where another one makes it possible.
  Problem rest = problem;
  rest.job = &job;
  const Edits edits(problem);
  if (possible_with_another_batch(rest)) {
    const auto at = edits.job_field_span("batch");
    core.push_back(placed(
        sources, at ? std::string(sources.text(*at)) : fmt::format("batch = {}", job.batch.str()),
        at));
  }
  if (possible_with_more_nodes(rest))
    core.push_back(placed(
        sources, fmt::format("the {} GPUs of '{}'", problem.cluster->gpus(), problem.cluster->name),
        problem.cluster->span));
  if (possible_with_one_pool(rest))
    core.push_back(placed(sources, fmt::format("the pools of '{}'", problem.cluster->name),
                          problem.cluster->span));
  if (possible_with_more_layers(rest)) {
    const std::uint32_t layers = problem.program->layer_count;
    core.push_back(placed(
        sources, fmt::format("the {} layer{} of '{}'", layers, layers == 1 ? "" : "s", job.model),
        edits.declaration_span("model", job.model)));
  }
  return core;
}

}  // namespace plimsoll
