// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/suggest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lang/units.hpp"
#include "planner/edits.hpp"

namespace plimsoll {

namespace {

constexpr std::int64_t kMostNodes = 64;    ///< times as many as the file has
constexpr std::int64_t kShortest = 256;    ///< tokens
constexpr std::int64_t kBudget = 400'000;  ///< candidates of one try
constexpr const char* kLargerGpus[] = {"h100_sxm", "h200", "b200", "b300"};

/// "16Ki" where that is what it is.
std::string tokens_text(std::int64_t tokens) {
  return tokens % 1024 == 0 ? fmt::format("{}Ki", tokens / 1024) : std::to_string(tokens);
}

/// The edits of one file, tried one by one.
class Tries {
 public:
  Tries(const Problem& problem, std::function<bool()> stop, const CompileOptions& options)
      : edits_(problem, options), stop_(std::move(stop)) {}

  bool usable() const { return edits_.usable(); }
  std::vector<Relaxation> take() { return std::move(found_); }

  bool job_field(std::string_view field, const std::string& value, const std::string& change) {
    return attempt(edits_.job_field(field, value), change, value);
  }
  bool without_job_field(std::string_view field, const std::string& change) {
    return attempt(edits_.without_job_field(field), change, "");
  }
  bool cluster_field(std::string_view field, const std::string& value, const std::string& change) {
    return attempt(edits_.cluster_field(field, value), change, value);
  }
  bool without_requirement(const Condition& condition) {
    return attempt(edits_.without_requirement(condition),
                   fmt::format("drop the requirement '{}'", condition.name), "");
  }

 private:
  bool attempt(const std::optional<std::string>& text, const std::string& change,
               const std::string& value) {
    if (!text || (stop_ && stop_())) return false;
    Diagnostics diags;
    const auto variant = edits_.compiled(*text, diags);
    if (variant == nullptr) return false;
    PlanOptions options;
    options.top = 1;
    options.budget = kBudget;
    options.stop = stop_;
    PlanResult result = plan(*variant->problem, options, diags);
    if (diags.has_errors() || !result.best) return false;
    const std::string layout = describe(*variant->problem, result.best->layout);
    found_.push_back({change, value, *text, std::move(*result.best), layout});
    // Conditions of the changed file end with it.
    found_.back().best.unmet.clear();
    return true;
  }

  Edits edits_;
  std::function<bool()> stop_;
  std::vector<Relaxation> found_;
};

void try_layout(Tries& tries, const Job& job) {
  for (const auto& [variable, choice] : job.layout)
    if (variable != "seq" && variable != "batch" && variable != "sequences")
      tries.without_job_field(variable, fmt::format("leave {} to the planner", variable));
  for (const Condition& c : job.require) tries.without_requirement(c);
}

void try_job(Tries& tries, const Job& job, const Cluster& cluster) {
  if (job.serve) {
    for (const char* weights : {"fp8", "int4"})
      if (job.weights != weights &&
          tries.job_field("weights", weights, fmt::format("hold the weights in {}", weights)))
        break;
    if (job.kv != "fp8") tries.job_field("kv", "fp8", "keep the cache in fp8");
    return;
  }
  if (job.optimizer == "adamw")
    tries.job_field("optimizer", "adamw8bit", "use the 8-bit optimizer");
  // Host memory that nobody has spoken of may not be there.
  if (!job.layout.contains("offload") && cluster.host_memory > 0)
    for (const int percent : {25, 50, 75, 100})
      if (tries.job_field("offload", Rational::fraction(percent, 100).str(),
                          fmt::format("hold {} % of the optimizer states in host memory", percent)))
        break;
  if (job.adapt.kind.empty() || job.adapt.kind == "none")
    tries.job_field("adapt", "lora(rank = 16, on = {q, k, v, o})",
                    "train an adapter beside frozen weights");
}

void try_length(Tries& tries, const Job& job) {
  const char* field = job.serve ? "context" : "seq";
  const Rational tokens = job.serve ? job.context : job.seq;
  if (!tokens.is_integer() || tokens.sign() <= 0) return;
  for (std::int64_t s = tokens.to_int64() / 2; s >= kShortest; s /= 2)
    if (tries.job_field(field, tokens_text(s), fmt::format("shorten {} to {}", field, grouped(s))))
      return;
}

void try_cluster(Tries& tries, const Cluster& cluster) {
  if (cluster.pools.size() != 1) return;
  const Pool& pool = cluster.pools.front();
  for (const char* gpu : kLargerGpus)
    if (gpu != pool.gpu.name && tries.cluster_field("gpu", gpu, fmt::format("use {} GPUs", gpu)))
      break;
  if (cluster.nodes_are_free() || pool.nodes.empty()) return;
  const std::int64_t nodes = pool.nodes.front();
  for (std::int64_t times = 2; times <= kMostNodes; times *= 2)
    if (tries.cluster_field("nodes", std::to_string(nodes * times),
                            fmt::format("use {} nodes, {} GPUs", nodes * times,
                                        grouped(nodes * times * pool.gpus_per_node))))
      return;
}

}  // namespace

std::vector<Relaxation> suggest(const Problem& problem, std::function<bool()> stop,
                                const CompileOptions& options) {
  Tries tries(problem, std::move(stop), options);
  if (!tries.usable()) return {};
  try_layout(tries, *problem.job);
  try_job(tries, *problem.job, *problem.cluster);
  try_length(tries, *problem.job);
  try_cluster(tries, *problem.cluster);
  return tries.take();
}

}  // namespace plimsoll
