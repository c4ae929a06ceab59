// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/suggest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lang/parse.hpp"
#include "lang/units.hpp"

namespace plimsoll {

namespace {

constexpr std::int64_t kMostNodes = 64;    ///< times as many as the file has
constexpr std::int64_t kShortest = 256;    ///< tokens
constexpr std::int64_t kBudget = 400'000;  ///< candidates of one try
constexpr const char* kLargerGpus[] = {"h100_sxm", "h200", "b200", "b300"};

const ast::Declaration* find(const ast::File& file, std::string_view kind, std::string_view name) {
  for (const ast::Declaration& d : file.declarations)
    if (d.kind.text == kind && d.name.text == name) return &d;
  return nullptr;
}

const ast::Entry* field_of(const ast::Declaration& d, std::string_view field) {
  for (const ast::Entry& e : d.entries)
    if ((e.kind == ast::EntryKind::assign || e.kind == ast::EntryKind::narrow) &&
        e.name.text == field)
      return &e;
  return nullptr;
}

/// The text with [begin, end) replaced.
std::string spliced(std::string_view text, std::size_t begin, std::size_t end,
                    std::string_view with) {
  return std::string(text.substr(0, begin)) + std::string(with) + std::string(text.substr(end));
}

/// "16Ki" where that is what it is.
std::string tokens_text(std::int64_t tokens) {
  return tokens % 1024 == 0 ? fmt::format("{}Ki", tokens / 1024) : std::to_string(tokens);
}

/// The edits of one file, tried one by one.
class Tries {
 public:
  Tries(const Problem& problem, std::function<bool()> stop, const CompileOptions& options)
      : problem_(problem),
        stop_(std::move(stop)),
        options_(options),
        sources_(problem.module->sources()),
        number_(problem.job->span.file),
        kind_(problem.job->serve ? "serve" : "train") {
    options_.check_models = false;
    if (sources_[number_].is_prelude()) return;
    Diagnostics ignored;
    file_ = parse(sources_, number_, ignored);
    usable_ = !ignored.has_errors() && find(file_, kind_, problem.job->name) != nullptr;
  }

  bool usable() const { return usable_; }
  std::vector<Relaxation> take() { return std::move(found_); }

  bool job_field(std::string_view field, const std::string& value, const std::string& change) {
    return attempt(with_field(sources_, file_, kind_, problem_.job->name, field, value), change,
                   value);
  }
  bool without_job_field(std::string_view field, const std::string& change) {
    return attempt(without_entry(sources_, file_, kind_, problem_.job->name, field), change, "");
  }
  bool cluster_field(std::string_view field, const std::string& value, const std::string& change) {
    return attempt(with_field(sources_, file_, "cluster", problem_.cluster->name, field, value),
                   change, value);
  }
  /// A requirement of the job's own body taken out.
  bool without_requirement(const Condition& condition) {
    if (condition.from_framework || condition.span.file != number_) return false;
    const ast::Declaration* d = find(file_, kind_, problem_.job->name);
    for (const ast::Entry& e : d->entries)
      if (e.kind == ast::EntryKind::require && e.value != nullptr &&
          e.value->span == condition.expr->span)
        return attempt(spliced(sources_[number_].text(), e.span.begin, e.span.end, ""),
                       fmt::format("drop the requirement '{}'", condition.name), "");
    return false;
  }

 private:
  bool attempt(const std::optional<std::string>& text, const std::string& change,
               const std::string& value) {
    if (!text || (stop_ && stop_())) return false;
    Diagnostics diags;
    const Module module = compile(sources_[number_].name(), *text, diags, options_);
    if (diags.has_errors()) return false;
    const Job* job = find_job(module, problem_.job->name, diags);
    if (job == nullptr || diags.has_errors()) return false;
    const std::optional<Problem> problem = make_problem(module, *job, diags);
    if (!problem) return false;
    PlanOptions options;
    options.top = 1;
    options.budget = kBudget;
    options.stop = stop_;
    PlanResult result = plan(*problem, options, diags);
    if (diags.has_errors() || !result.best) return false;
    const std::string layout = describe(*problem, result.best->layout);
    found_.push_back({change, value, *text, std::move(*result.best), layout});
    // Conditions of the changed file end with it.
    found_.back().best.unmet.clear();
    return true;
  }

  const Problem& problem_;
  std::function<bool()> stop_;
  CompileOptions options_;
  const Sources& sources_;
  std::uint32_t number_;
  std::string kind_;
  ast::File file_;
  bool usable_ = false;
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

std::optional<std::string> with_field(const Sources& sources, const ast::File& file,
                                      std::string_view kind, std::string_view name,
                                      std::string_view field, std::string_view value) {
  const ast::Declaration* d = find(file, kind, name);
  if (d == nullptr) return std::nullopt;
  const std::string_view text = sources[file.file].text();
  const std::string entry = fmt::format("{} = {}", field, value);
  if (const ast::Entry* e = field_of(*d, field))
    return spliced(text, e->span.begin, e->span.end, entry);
  if (!d->has_body) return spliced(text, d->span.end, d->span.end, " { " + entry + " }");
  const std::size_t brace = text.find('{', d->base ? d->base->span.end : d->name.span.end);
  if (brace == std::string_view::npos || brace >= d->span.end) return std::nullopt;
  // On a line of its own where the body has lines.
  const bool lines = brace + 1 < text.size() && text[brace + 1] == '\n';
  return spliced(text, brace + 1, brace + 1, (lines ? "\n  " : " ") + entry + (lines ? "" : " "));
}

std::optional<std::string> without_entry(const Sources& sources, const ast::File& file,
                                         std::string_view kind, std::string_view name,
                                         std::string_view field) {
  const ast::Declaration* d = find(file, kind, name);
  const ast::Entry* e = d == nullptr ? nullptr : field_of(*d, field);
  if (e == nullptr) return std::nullopt;
  return spliced(sources[file.file].text(), e->span.begin, e->span.end, "");
}

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
