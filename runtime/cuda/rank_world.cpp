// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/rank_world.hpp"

#include <memory>

#include "lang/diagnostics.hpp"
#include "lang/module.hpp"
#include "runtime/host/host_run.hpp"
#include "runtime/host/weight_rows.hpp"

namespace plimsoll::runtime::cuda {

namespace {

RunFacts facts_of(const Problem& p, const Layout& l, const RunOptions& o) {
  RunFacts f;
  f.dropout = p.job->dropout.to_double();
  f.attention_dropout = p.job->attention_dropout.to_double();
  f.flash = p.job->attention != "unfused";
  f.loss_scale = 1 / host::loss_tokens(p, l);
  f.seed = o.seed;
  return f;
}

RankShapes shapes_of(const Problem& p, const Layout& l, std::int64_t rank) {
  const RankPlace place = place_of(l, rank);
  const ops::Shapes whole(*p.program, p.module->pool(), p.inventory.facts.imbalance,
                          p.inventory.facts.vocab_multiple);
  return {whole, environment(p, l, place.stage),
          host::TensorRank{place.tp, place.cp, place.ep, place.etp}};
}

}  // namespace

RankWorld::RankWorld(const Problem& p, const Layout& l, std::int64_t rank, const RunOptions& o)
    : problem(p),
      layout(l),
      options(o),
      facts(facts_of(p, l, o)),
      plan(p, l, rank),
      shapes(shapes_of(p, l, rank)),
      expert_shard(environment(p, l, 0)[Var::expert_shard].to_int64()) {
  std::vector<std::unique_ptr<StagePlan>> plans;
  std::vector<const StagePlan*> stages;
  for (std::int64_t stage = 0; stage < l.pp; ++stage) {
    plans.push_back(std::make_unique<StagePlan>(p, l, rank_in_stage(l, rank, stage)));
    stages.push_back(plans.back().get());
  }
  ties = host::tied_across(*p.program, stages, plan.place.stage);
}

Runs runs_of(const std::vector<std::int64_t>& numbers) {
  Runs runs;
  for (const std::int64_t n : numbers) {
    if (runs.count > 0 && runs.first[runs.count - 1] + runs.length[runs.count - 1] == n) {
      ++runs.length[runs.count - 1];
      continue;
    }
    if (runs.count == Runs::kMost) throw InternalError("positions lie in too many runs");
    runs.first[runs.count] = n;
    runs.length[runs.count++] = 1;
  }
  return runs;
}

std::string why_not_on_cuda(const Problem& p, const Layout& l) {
  if (p.job->precision != "fp32" && p.job->precision != "bf16")
    return fmt::format("the device 'cuda' stores fp32 and bf16; this job's precision is {}",
                       p.job->precision);
  if (std::string why = host::why_not_on_host(p, l); !why.empty()) {
    const std::string host_says = "the host";
    if (why.starts_with(host_says)) why.replace(0, host_says.size(), "the device 'cuda'");
    return why;
  }
  for (const Op& op : p.program->ops) {
    if (op.kind == OpKind::attention && (op.q_width > 256 || op.v_width > 256))
      return "the device 'cuda' has no attention for heads wider than 256";
  }
  if (p.inventory.offloads_activations)
    return "the device 'cuda' does not send activations to the host yet";
  if (2 * l.cp > Runs::kMost) return "the device 'cuda' divides a sequence over 8 ranks at most";
  return "";
}

}  // namespace plimsoll::runtime::cuda
