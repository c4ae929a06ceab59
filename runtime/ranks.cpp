// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/ranks.hpp"

#include "lang/diagnostics.hpp"
#include "planner/stages.hpp"

namespace plimsoll::runtime {

namespace {

/// Every n-th of `count` ranks from `first` on.
std::vector<std::int64_t> every(std::int64_t first, std::int64_t count, std::int64_t stride) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t i = 0; i < count; ++i) ranks.push_back(first + i * stride);
  return ranks;
}

}  // namespace

std::int64_t rank_count(const Layout& l) { return l.tp * l.cp * l.dp * l.pp; }

RankPlace place_of(const Layout& l, std::int64_t rank) {
  PLIMSOLL_ASSERT(rank >= 0 && rank < rank_count(l));
  RankPlace p;
  p.rank = rank;
  const std::int64_t in_stage = rank % (l.tp * l.cp * l.dp);
  p.stage = rank / (l.tp * l.cp * l.dp);
  p.tp = in_stage % l.tp;
  p.cp = in_stage / l.tp % l.cp;
  p.dp = in_stage / (l.tp * l.cp);
  p.etp = in_stage % l.etp;
  p.ep = in_stage / l.etp % l.ep;
  p.edp = in_stage / (l.etp * l.ep);
  const std::int64_t shard = l.shard > 0 ? l.shard : l.dp * l.cp;
  p.shard = in_stage / l.tp % shard;
  return p;
}

std::vector<std::int64_t> group(const Layout& l, RankGroup which, std::int64_t rank) {
  const RankPlace p = place_of(l, rank);
  const std::int64_t in_stage = l.tp * l.cp * l.dp;
  const std::int64_t base = p.stage * in_stage;
  const std::int64_t shard = l.shard > 0 ? l.shard : l.dp * l.cp;
  switch (which) {
    case RankGroup::tp:
      return every(rank - p.tp, l.tp, 1);
    case RankGroup::cp:
      return every(rank - p.cp * l.tp, l.cp, l.tp);
    case RankGroup::dp:
      return every(rank - p.dp * l.tp * l.cp, l.dp, l.tp * l.cp);
    case RankGroup::dp_cp:
      return every(base + p.tp, l.dp * l.cp, l.tp);
    case RankGroup::etp:
      return every(rank - p.etp, l.etp, 1);
    case RankGroup::ep:
      return every(rank - p.ep * l.etp, l.ep, l.etp);
    case RankGroup::edp:
      return every(base + p.etp + l.etp * p.ep, in_stage / (l.etp * l.ep), l.etp * l.ep);
    case RankGroup::shard:
      return every(rank - p.shard * l.tp, shard, l.tp);
    case RankGroup::stage:
      return every(base, in_stage, 1);
    case RankGroup::all:
      return every(0, rank_count(l), 1);
  }
  return {};
}

std::int64_t rank_in_stage(const Layout& l, std::int64_t rank, std::int64_t stage) {
  const std::int64_t in_stage = l.tp * l.cp * l.dp;
  return stage * in_stage + rank % in_stage;
}

std::int64_t piece_of(const Layout& l, std::int64_t stage, std::int64_t chunk) {
  return folded(l.schedule) && chunk == 1 ? 2 * l.pp - 1 - stage : chunk * l.pp + stage;
}

std::int64_t stage_of_piece(const Layout& l, std::int64_t piece) {
  return folded(l.schedule) && piece >= l.pp ? 2 * l.pp - 1 - piece : piece % l.pp;
}

}  // namespace plimsoll::runtime
