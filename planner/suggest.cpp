// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/suggest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lang/units.hpp"
#include "planner/edits.hpp"
#include "planner/feasible.hpp"
#include "planner/switches.hpp"

namespace plimsoll {

namespace {

constexpr std::int64_t kMostNodes = 64;     ///< times as many as the file has
constexpr std::int64_t kGrid = 16;          ///< steps between one doubling and the next
constexpr std::int64_t kShortest = 256;     ///< tokens
constexpr std::int64_t kServing = 400'000;  ///< candidates of one try of a serve job
/// Candidates looked at for a better layout than the thriftiest: enough where the change gives
/// room.
constexpr std::int64_t kBudget = 1'000;

/// "16Ki" where that is what it is.
std::string tokens_text(std::int64_t tokens) {
  return tokens % 1024 == 0 ? fmt::format("{}Ki", tokens / 1024) : std::to_string(tokens);
}

/// A layout that fits, or nullopt: the best that a short search finds, else one of the thriftiest.
std::optional<Priced> some_layout(const Problem& problem, const std::function<bool()>& stop) {
  std::optional<Priced> found;
  if (!problem.job->serve) {
    found = any_fit(problem);
    if (!found) return std::nullopt;
  }
  PlanOptions options;
  options.top = 1;
  options.budget = problem.job->serve ? kServing : kBudget;
  options.stop = stop;
  Diagnostics said;
  PlanResult result = plan(problem, options, said);
  if (result.best && !said.has_errors() && (!found || result.best->score <= found->score))
    found = std::move(result.best);
  return found;
}

/// The job with changes made in memory, to ask quickly what fits before a file is changed.
class Draft {
 public:
  explicit Draft(const Problem& problem)
      : problem_(problem), job_(*problem.job), cluster_(*problem.cluster) {
    problem_.job = &job_;
    problem_.cluster = &cluster_;
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  Job& job() { return job_; }
  Pool& pool() { return cluster_.pools.front(); }
  Inventory& inventory() { return problem_.inventory; }
  std::optional<Priced> fit() const { return any_fit(problem_); }
  bool fits() const { return fit().has_value(); }

 private:
  Problem problem_;
  Job job_;
  Cluster cluster_;
};

/// The edits of one file, tried one by one.
class Tries {
 public:
  Tries(const Problem& problem, std::function<bool()> stop, const CompileOptions& options)
      : problem_(problem), edits_(problem, options), stop_(std::move(stop)) {}

  void run();
  bool usable() const { return edits_.usable(); }
  std::vector<Relaxation> take() { return std::move(found_); }

 private:
  bool stopped() const { return stop_ && stop_(); }
  bool attempt(const std::optional<std::string>& text, const std::string& change,
               const std::string& value);
  bool job_field(std::string_view field, const std::string& value, const std::string& change) {
    return attempt(edits_.job_field(field, value), change, value);
  }

  void try_pin(const std::string& variable);
  void try_conditions();
  void try_batch();
  void try_precision();
  void try_optimizer();
  void try_segments();
  void try_offload();
  void try_length();
  void try_nodes();
  void try_gpus();
  void try_adapter();
  bool fits_with_nodes(std::int64_t nodes) const;

  const Problem& problem_;
  Edits edits_;
  std::function<bool()> stop_;
  std::vector<Relaxation> found_;
};

bool Tries::attempt(const std::optional<std::string>& text, const std::string& change,
                    const std::string& value) {
  if (!text || stopped()) return false;
  Diagnostics diags;
  const auto variant = edits_.compiled(*text, diags);
  if (variant == nullptr) return false;
  auto found = some_layout(*variant->problem, stop_);
  if (!found) return false;
  // Conditions of the changed file end with it.
  found->unmet.clear();
  std::string layout = describe(*variant->problem, found->layout);
  found_.push_back({change, value, *text, std::move(*found), std::move(layout)});
  return true;
}

void Tries::run() {
  try_segments();
  try_conditions();
  try_batch();
  try_precision();
  try_optimizer();
  try_offload();
  try_length();
  try_nodes();
  try_gpus();
  try_adapter();
}

/// What a layout has of a variable, as it is written; "" where that is a list, or not written.
std::string written(const Problem& problem, const std::string& variable, const Layout& l) {
  if (variable == "sp") return l.sp ? "true" : "false";
  if (variable == "schedule") return std::string(name(l.schedule));
  if (variable == "offload") return l.offload.str();
  if (variable == "recompute") {
    const auto& modes = problem.inventory.recompute_modes;
    return l.recompute < modes.size() ? modes[l.recompute] : "none";
  }
  const std::pair<const char*, std::int64_t> numbers[] = {
      {"tp", l.tp}, {"pp", l.pp},   {"vpp", l.vpp}, {"cp", l.cp},       {"ep", l.ep},
      {"dp", l.dp}, {"etp", l.etp}, {"mbs", l.mbs}, {"shard", l.shard}, {"zero", l.zero}};
  for (const auto& [name, value] : numbers)
    if (variable == name) return std::to_string(value);
  return "";
}

/// A pin set to a value that would do, where there is one; else left free.
void Tries::try_pin(const std::string& variable) {
  const auto free = edits_.without_job_field(variable);
  if (!free || stopped()) return;
  if (!problem_.job->serve) {
    Draft draft(problem_);
    draft.job().layout.erase(variable);
    const auto found = draft.fit();
    if (!found) return;
    const std::string value = written(problem_, variable, found->layout);
    if (!value.empty() &&
        job_field(variable, value,
                  fmt::format("set {} = {}, or leave it to the planner", variable, value)))
      return;
  }
  attempt(free, fmt::format("leave {} to the planner", variable), "");
}

/// Pins changed or left free, requirements dropped.
void Tries::try_conditions() {
  const Job& job = *problem_.job;
  for (const auto& [variable, choice] : job.layout)
    if (variable != "seq" && variable != "batch" && variable != "sequences") try_pin(variable);
  for (const Condition& c : job.require)
    attempt(edits_.without_requirement(c), fmt::format("drop the requirement '{}'", c.name), "");
}

/// Fewer sequences a step: half, a quarter …; or as many as the GPUs divide.
void Tries::try_batch() {
  const Job& job = *problem_.job;
  if (job.serve || job.batch_in_tokens || job.batch.is_zero() || job.layout.contains("batch"))
    return;
  const std::int64_t batch = job.batch.to_int64(), gpus = problem_.cluster->gpus();
  std::vector<std::int64_t> tries;
  if (batch % gpus != 0 && batch > gpus) tries.push_back(batch / gpus * gpus);
  for (std::int64_t b = batch / 2; b >= 1; b /= 2) tries.push_back(b);
  Draft draft(problem_);
  for (const std::int64_t b : tries) {
    draft.job().batch = Rational(b);
    if (stopped()) return;
    if (draft.fits() && job_field("batch", std::to_string(b),
                                  fmt::format("make the batch {} sequences", grouped(b))))
      return;
  }
}

/// What a server can hold in fewer bits.
void Tries::try_precision() {
  const Job& job = *problem_.job;
  if (!job.serve) return;
  for (const char* weights : {"fp8", "int4"})
    if (job.weights != weights &&
        job_field("weights", weights, fmt::format("hold the weights in {}", weights)))
      break;
  if (job.kv != "fp8") job_field("kv", "fp8", "keep the cache in fp8");
}

void Tries::try_optimizer() {
  if (!problem_.job->serve && problem_.job->optimizer == "adamw")
    job_field("optimizer", "adamw8bit", "use the 8-bit optimizer");
}

/// PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, as PyTorch's own message of an exhausted GPU
/// advises. It saves what segments take beyond live blocks, no more.
void Tries::try_segments() {
  if (problem_.job->serve || switch_of(problem_, "segments") != "plain") return;
  Draft draft(problem_);
  draft.inventory().reserved_factor = 1;
  draft.inventory().replay = false;
  if (draft.fits()) job_field("segments", "expandable", "set segments = expandable");
}

/// Host memory that nobody has spoken of may not be there.
void Tries::try_offload() {
  if (problem_.job->serve || problem_.job->layout.contains("offload") ||
      problem_.cluster->host_memory <= 0 || problem_.cluster->pcie.sign() <= 0)
    return;
  for (const int percent : {25, 50, 75, 100})
    if (job_field("offload", Rational::fraction(percent, 100).str(),
                  fmt::format("hold {} % of the optimizer states in host memory", percent)))
      return;
}

void Tries::try_adapter() {
  const Job& job = *problem_.job;
  if (job.serve || (!job.adapt.kind.empty() && job.adapt.kind != "none")) return;
  for (const auto& [kind, change] :
       {std::pair("lora", "train an adapter beside frozen weights"),
        std::pair("qlora", "train an adapter beside frozen 4-bit weights")})
    if (job_field("adapt", fmt::format("{}(rank = 16, on = {{q, k, v, o}})", kind), change)) return;
}

/// The longest that fits, to a sixteenth of the doubling it lies in.
void Tries::try_length() {
  const Job& job = *problem_.job;
  const char* field = job.serve ? "context" : "seq";
  const Rational tokens = job.serve ? job.context : job.seq;
  if (!tokens.is_integer() || tokens.sign() <= 0) return;
  const auto set = [&](std::int64_t s) {
    return job_field(field, tokens_text(s), fmt::format("shorten {} to {}", field, grouped(s)));
  };
  Draft draft(problem_);
  const auto fits = [&](std::int64_t s) {
    draft.job().seq = Rational(s);
    return draft.fits();
  };
  for (std::int64_t s = tokens.to_int64() / 2; s >= kShortest && !stopped(); s /= 2) {
    if (job.serve) {
      if (set(s)) return;
      continue;
    }
    if (!fits(s)) continue;
    const std::int64_t step = s / kGrid;
    std::int64_t good = kGrid, bad = 2 * kGrid;  // in steps
    while (step * kGrid == s && bad - good > 1) {
      const std::int64_t middle = (good + bad) / 2;
      (fits(middle * step) ? good : bad) = middle;
    }
    if ((good > kGrid && set(good * step)) || set(s)) return;
  }
}

bool Tries::fits_with_nodes(std::int64_t nodes) const {
  Draft draft(problem_);
  draft.pool().nodes = {nodes};
  return draft.fits();
}

/// The fewest nodes that fit: the first doubling that does, then every number below it, or every
/// sixteenth of the way where there are more.
void Tries::try_nodes() {
  const Cluster& cluster = *problem_.cluster;
  if (cluster.pools.size() != 1 || cluster.nodes_are_free() || cluster.pools[0].nodes.empty())
    return;
  const Pool& pool = cluster.pools.front();
  const std::int64_t now = pool.nodes.front();
  const auto set = [&](std::int64_t nodes) {
    return attempt(edits_.cluster_field("nodes", std::to_string(nodes)),
                   fmt::format("use {} nodes, {} GPUs", nodes, grouped(nodes * pool.gpus_per_node)),
                   std::to_string(nodes));
  };
  if (!problem_.job->serve && !why_never(problem_).empty()) return;
  for (std::int64_t times = 2; times <= kMostNodes && !stopped(); times *= 2) {
    const std::int64_t high = now * times, low = high / 2;
    if (problem_.job->serve) {
      if (set(high)) return;
      continue;
    }
    if (!fits_with_nodes(high)) continue;
    const std::int64_t step = std::max<std::int64_t>(1, (high - low) / kGrid);
    for (std::int64_t nodes = low + step; nodes < high && !stopped(); nodes += step)
      if (fits_with_nodes(nodes) && set(nodes)) return;
    if (set(high)) return;
  }
}

/// Does its dense bf16 rate come near the other's, or is either not known?
bool as_quick(const Gpu& gpu, const Gpu& as) {
  const auto a = gpu.peak.find("bf16"), b = as.peak.find("bf16");
  return a == gpu.peak.end() || b == as.peak.end() ||
         a->second * Rational(10) >= b->second * Rational(7);
}

/// The smallest GPU of the prelude with more memory, of the same maker and not much slower.
void Tries::try_gpus() {
  const Cluster& cluster = *problem_.cluster;
  if (cluster.pools.size() != 1) return;
  const Gpu& own = cluster.pools.front().gpu;
  std::vector<const Gpu*> larger;
  for (const std::string& name : problem_.module->names("gpu")) {
    const Gpu* gpu = problem_.module->gpu(name);
    if (gpu == nullptr || gpu->memory <= own.memory || (gpu->sm > 0) != (own.sm > 0) ||
        !as_quick(*gpu, own))
      continue;
    if (problem_.module->sources()[gpu->span.file].is_prelude()) larger.push_back(gpu);
  }
  std::stable_sort(larger.begin(), larger.end(),
                   [](const Gpu* a, const Gpu* b) { return a->memory < b->memory; });
  Draft draft(problem_);
  for (const Gpu* gpu : larger) {
    if (stopped()) return;
    draft.pool().gpu.memory = gpu->memory;
    if ((problem_.job->serve || draft.fits()) &&
        attempt(edits_.cluster_field("gpu", gpu->name), fmt::format("use {} GPUs", gpu->name),
                gpu->name))
      return;
  }
}

}  // namespace

std::vector<Relaxation> suggest(const Problem& problem, std::function<bool()> stop,
                                const CompileOptions& options) {
  Tries tries(problem, std::move(stop), options);
  if (!tries.usable()) return {};
  tries.run();
  return tries.take();
}

}  // namespace plimsoll
