// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/host/host_world.hpp"

#include <algorithm>

#include "lang/diagnostics.hpp"
#include "lang/module.hpp"

namespace plimsoll::runtime::host {

double loss_tokens(const Problem& p, const Layout& l) {
  for (const Op& op : p.program->ops)
    if (op.kind == OpKind::cross_entropy) {
      const Expr tokens = p.program->values[op.inputs[0]].tokens;
      return static_cast<double>(l.batch) *
             p.module->pool().eval(tokens, environment(p, l, 0)).to_double();
    }
  return 1;
}

HostWorld::HostWorld(const Problem& p, const Layout& l, const HostOptions& o, Wire* wire)
    : problem(p), layout(l), options(o), post(wire) {
  budget.capacity = o.total_capacity;
  facts.dropout = p.job->dropout.to_double();
  facts.attention_dropout = p.job->attention_dropout.to_double();
  facts.flash = p.job->attention != "unfused";
  facts.balanced = o.balanced_routing;
  facts.ring = o.ring;
  facts.loss_scale = 1 / loss_tokens(p, l);
  facts.seed = o.seed;
  const ops::Shapes whole(*p.program, p.module->pool(), p.inventory.facts.imbalance,
                          p.inventory.facts.vocab_multiple);
  for (std::int64_t rank = 0; rank < rank_count(l); ++rank) {
    plans_.push_back(std::make_unique<StagePlan>(p, l, rank));
    const RankPlace place = place_of(l, rank);
    shapes_.push_back(
        std::make_unique<RankShapes>(whole, environment(p, l, place.stage),
                                     TensorRank{place.tp, place.cp, place.ep, place.etp}));
    // Meetings are made here, so that ranks only look them up.
    groups(rank);
    expert_shard(rank);
    stages(rank);
    for (const RankGroup g : {RankGroup::dp_cp, RankGroup::edp, RankGroup::shard, RankGroup::all})
      group(g, rank);
  }
  if (!o.keep_tensors) return;
  WholeTensors empty;
  for (const Weight& w : p.program->weights)
    empty.emplace_back(w.tied_to == kNone ? static_cast<std::size_t>(w.numel()) : 0);
  gradients.assign(static_cast<std::size_t>(o.steps), empty);
  parameters.assign(static_cast<std::size_t>(o.steps), empty);
}

Group HostWorld::meet(int kind, const std::vector<std::int64_t>& ranks, std::int64_t rank) {
  std::unique_ptr<Meeting>& meeting = meetings_[{kind, ranks.front()}];
  if (!meeting)
    meeting = std::make_unique<Meeting>(post, ranks, std::int64_t{kind} << 32 | ranks.front());
  const auto mine = std::find(ranks.begin(), ranks.end(), rank);
  PLIMSOLL_ASSERT(mine != ranks.end() && meeting->size() == static_cast<int>(ranks.size()));
  return {meeting.get(), static_cast<int>(mine - ranks.begin())};
}

Group HostWorld::group(RankGroup which, std::int64_t rank) {
  return meet(static_cast<int>(which), runtime::group(layout, which, rank), rank);
}

Groups HostWorld::groups(std::int64_t rank) {
  return {group(RankGroup::tp, rank), group(RankGroup::cp, rank), group(RankGroup::ep, rank),
          group(RankGroup::etp, rank)};
}

Group HostWorld::expert_shard(std::int64_t rank) {
  const std::vector<std::int64_t> all = runtime::group(layout, RankGroup::edp, rank);
  const auto size = environment(problem, layout, 0)[Var::expert_shard].to_int64();
  const auto mine = std::find(all.begin(), all.end(), rank) - all.begin();
  const auto first = all.begin() + mine / size * size;
  return meet(100, {first, first + size}, rank);
}

Group HostWorld::stages(std::int64_t rank) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t s = 0; s < layout.pp; ++s) ranks.push_back(rank_in_stage(layout, rank, s));
  return meet(101, ranks, rank);
}

}  // namespace plimsoll::runtime::host
