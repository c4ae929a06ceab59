// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/on.hpp"

#include <algorithm>
#include <utility>

#include "planner/edits.hpp"

namespace plimsoll {
namespace {

OnGpu row(const Problem& problem, PlanResult result) {
  OnGpu out;
  out.gpu = problem.cluster->pools.front().gpu.name;
  out.priced = problem.cluster->pools.front().gpu.price.sign() > 0;
  out.status = result.status;
  out.best = std::move(result.best);
  out.tightest = std::move(result.tightest);
  if (!out.best && !out.tightest) out.why = result.why;
  if (out.best) {
    out.layout = describe(problem, out.best->layout);
    for (const Condition* c : out.best->unmet) out.unmet.push_back(c->name);
    // Conditions end with the file that they stand in.
    out.best->unmet.clear();
  } else if (out.tightest) {
    out.layout = describe(problem, out.tightest->layout);
    out.tightest->unmet.clear();
  }
  return out;
}

/// The first error, without its place: the file is one that nobody has seen.
std::string first_error(const Diagnostics& diags) {
  for (const Diagnostic* d : diags.sorted())
    if (d->severity == Severity::error) return d->message;
  return "it cannot be planned";
}

OnGpu planned(const Edits& edits, const std::string& gpu, const PlanOptions& options) {
  OnGpu failed;
  failed.gpu = gpu;
  const auto text = edits.usable() ? edits.cluster_field("gpu", gpu) : std::nullopt;
  if (!text) {
    failed.why = "the file's cluster cannot be changed";
    return failed;
  }
  Diagnostics diags;
  const auto variant = edits.compiled(*text, diags);
  if (variant != nullptr) {
    PlanResult result = plan(*variant->problem, options, diags);
    if (!diags.has_errors()) {
      OnGpu out = row(*variant->problem, std::move(result));
      out.plan_text = *text;
      return out;
    }
  }
  failed.why = first_error(diags);
  return failed;
}

}  // namespace

bool has_one_gpu(const Cluster& cluster) {
  return cluster.pools.size() == 1 && cluster.pools.front().name.empty();
}

std::vector<OnGpu> plan_on(const Problem& problem, const PlanResult& own,
                           const std::vector<std::string>& gpus, const PlanOptions& options,
                           const CompileOptions& compile_options) {
  PlanOptions one = options;
  one.top = 1;
  one.proof = false;
  std::vector<OnGpu> out = {row(problem, own)};
  out.front().own = true;
  out.front().plan_text = problem.module->sources()[problem.job->span.file].text();
  const Edits edits(problem, compile_options);
  for (const std::string& gpu : gpus) {
    const bool there =
        std::any_of(out.begin(), out.end(), [&](const OnGpu& o) { return o.gpu == gpu; });
    if (!there) out.push_back(planned(edits, gpu, one));
  }
  return out;
}

}  // namespace plimsoll
