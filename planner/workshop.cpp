// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/workshop.hpp"

#include <algorithm>
#include <utility>

#include "lang/names.hpp"
#include "planner/peak.hpp"
#include "planner/segments.hpp"

namespace plimsoll {

namespace {

/// Models that people know the sizes of, beside the job's own.
constexpr const char* kModels[] = {"llama3_8b",    "qwen2_5_32b", "llama3_70b",
                                   "mixtral_8x7b", "gpt3_175b",   "llama3_405b"};
constexpr std::size_t kMostModels = 5;
constexpr std::int64_t kLeastSeq = 1024, kMostSeq = 131072, kMostBatch = 4;

/// The job with its sequence left open, so that one lowering serves all lengths.
Job open_sequence(const Problem& problem, const std::vector<std::int64_t>& seqs) {
  Job job = *problem.job;
  ExprPool& pool = problem.module->pool();
  Choice choice;
  for (const std::int64_t seq : seqs)
    choice.values.push_back({eval::Number{pool.constant(seq), kCount, "tokens"}, job.span});
  job.layout["seq"] = std::move(choice);
  if (job.target == job.seq) job.target = 0;
  job.seq = 0;
  job.batch_in_tokens = false;
  return job;
}

void set_attention(const Module& module, Job& job, const std::string& word) {
  job.attention = word;
  const Behaviour* framework = module.framework(job.framework);
  if (framework == nullptr) return;
  const auto at = framework->params.find("attention");
  if (at != framework->params.end() && at->second.words != nullptr)
    job.switches["attention"] = {eval::Word{word, at->second.words}, job.span};
}

/// Fills the points of one model and one kind of attention. False where none is possible.
class Filler {
 public:
  Filler(Workshop& shop, const Layout& layout) : shop_(shop), own_(layout) {}

  bool fill(const Problem& problem, std::size_t model, std::size_t attention) {
    Pricer pricer(problem);
    bool any = false;
    for (std::size_t r = 0; r < shop_.recomputes.size(); ++r)
      for (std::size_t z = 0; z < shop_.zeros.size(); ++z)
        for (std::size_t b = 0; b < shop_.batches.size(); ++b)
          for (std::size_t s = 0; s < shop_.seqs.size(); ++s) {
            Workshop::Point& point = shop_.points[shop_.index(model, attention, r, z, b, s)];
            const bool own = model == 0 && attention == shop_.attention && r == shop_.recompute &&
                             z == shop_.zero && b == shop_.batch && s == shop_.seq;
            try {
              price(problem, pricer, at(problem, model, r, z, b, s), own, point);
            } catch (const ArithmeticError&) {
              point = {};  // no size that exists
            }
            any = any || point.possible;
          }
    return any;
  }

 private:
  Layout at(const Problem& problem, std::size_t model, std::size_t r, std::size_t z, std::size_t b,
            std::size_t s) const {
    Layout l = own_;
    l.mbs = shop_.batches[b];
    l.seq = shop_.seqs[s];
    if (r != shop_.recompute) l.recompute_layers.clear();
    l.recompute = static_cast<RecomputeMode>(r);
    l.zero = static_cast<int>(shop_.zeros[z]);
    if (l.zero == 0 || own_.zero == 0) l.shard = z == shop_.zero ? own_.shard : 0;
    if (model > 0) {
      l.stage_layers.clear();
      l.recompute_layers.clear();
      const bool routed = std::any_of(problem.program->ops.begin(), problem.program->ops.end(),
                                      [](const Op& op) { return op.kind == OpKind::experts; });
      if (!routed) l.ep = l.etp = 1;
    }
    resolve(problem, l);
    return l;
  }

  /// Segments are replayed at the layout itself, where the page shows its bill too; elsewhere they
  /// are the framework's factor: hundreds of replays would take seconds.
  static void price(const Problem& problem, Pricer& pricer, const Layout& l, bool replayed,
                    Workshop::Point& point) {
    if (!why_impossible(problem, l).empty()) return;
    const Pricer::Peak peak = replayed ? pricer.exact(l) : pricer.peak(l);
    const StageBill lines = pricer.lines(l, replayed);
    point.possible = true;
    point.stage = peak.stage;
    point.peak_bytes = peak.bytes;
    point.hbm_bytes = peak.bytes + peak.headroom_bytes;
    point.categories = lines.categories;
  }

  Workshop& shop_;
  const Layout& own_;
};

/// Where the layout's own value stands in an ascending axis, put in if it is not there.
std::size_t insert_own(std::vector<std::int64_t>& axis, std::int64_t own) {
  const auto at = std::lower_bound(axis.begin(), axis.end(), own);
  const auto place = static_cast<std::size_t>(at - axis.begin());
  if (at == axis.end() || *at != own) axis.insert(at, own);
  return place;
}

void set_axes(const Problem& problem, const Layout& layout, Workshop& shop) {
  for (std::int64_t batch = 1; batch <= kMostBatch; batch *= 2) shop.batches.push_back(batch);
  shop.batch = insert_own(shop.batches, layout.mbs);
  shop.attentions = attention_words(*problem.module, *problem.job);
  // A kind that the job names is one of the words, or the framework has but this one.
  const auto attention =
      std::find(shop.attentions.begin(), shop.attentions.end(), problem.job->attention);
  if (attention == shop.attentions.end()) shop.attentions = {problem.job->attention};
  shop.attention = attention == shop.attentions.end()
                       ? 0
                       : static_cast<std::size_t>(attention - shop.attentions.begin());
  shop.recomputes = problem.inventory.recompute_modes;
  shop.recompute = layout.recompute;
  shop.zeros = {0, 1, 2, 3};
  shop.zero = static_cast<std::size_t>(layout.zero);
  for (std::int64_t seq = kLeastSeq; seq <= kMostSeq; seq *= 2) shop.seqs.push_back(seq);
  shop.seq = insert_own(shop.seqs, layout.seq);
}

/// Adds a model where the layout's degrees can divide it.
void add_model(const Problem& problem, const Layout& layout, const std::string& name,
               Workshop& shop) {
  Diagnostics ignored;
  const std::size_t model = shop.models.size();
  shop.models.push_back({name, 0});
  shop.points.resize(shop.index(model + 1, 0, 0, 0, 0, 0));
  bool any = false;
  for (std::size_t a = 0; a < shop.attentions.size(); ++a) {
    Job job = open_sequence(problem, shop.seqs);
    job.model = name;
    set_attention(*problem.module, job, shop.attentions[a]);
    if (model > 0) {  // these name parts of the job's own model
      job.freeze.clear();
      job.adapt = {"none", 0, {}, ""};
      job.items.clear();
    }
    auto priced = make_problem(*problem.module, job, ignored);
    if (!priced) continue;
    if (problem.segments) priced->segments = problem.segments->fresh();
    shop.models.back().params = priced->program->parameter_count();
    any = Filler(shop, layout).fill(*priced, model, a) || any;
  }
  if (any) return;
  shop.models.pop_back();
  shop.points.resize(shop.index(model, 0, 0, 0, 0, 0));
}

}  // namespace

std::optional<Workshop> workshop(const Problem& problem, const Layout& layout) {
  if (problem.job->serve) return std::nullopt;
  Workshop shop;
  set_axes(problem, layout, shop);
  add_model(problem, layout, problem.job->model, shop);
  if (shop.models.empty()) return std::nullopt;
  for (const char* name : kModels)
    if (shop.models.size() < kMostModels && name != problem.job->model)
      add_model(problem, layout, name, shop);
  return shop;
}

}  // namespace plimsoll
