// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <vector>

#include "planner/layout.hpp"

/// Who is who among the ranks of a layout. Numbered as links.hpp and Megatron do: tp fastest, then
/// cp, then dp, then pp; experts: etp, then ep, then the rest of a stage.
namespace plimsoll::runtime {

struct RankPlace {
  std::int64_t rank = 0, stage = 0;
  std::int64_t tp = 0, cp = 0, dp = 0;    ///< its number in each group
  std::int64_t ep = 0, etp = 0, edp = 0;  ///< as the experts' ranks
  std::int64_t shard = 0;                 ///< in the group of `shard` ranks that divide its states
};

std::int64_t rank_count(const Layout&);
RankPlace place_of(const Layout&, std::int64_t rank);

enum class RankGroup : std::uint8_t { tp, cp, dp, dp_cp, ep, etp, edp, shard, stage, all };
/// The ranks of the group that \a rank is in, in order: its own number among them is its place.
std::vector<std::int64_t> group(const Layout&, RankGroup, std::int64_t rank);
/// The rank at the same place in another stage.
std::int64_t rank_in_stage(const Layout&, std::int64_t rank, std::int64_t stage);

/// The model is cut in pp * vpp pieces in order; chunk k of stage r is piece k * pp + r, or, where
/// the schedule folds the model, chunk 1 is piece 2 * pp - 1 - r.
std::int64_t piece_of(const Layout&, std::int64_t stage, std::int64_t chunk);
std::int64_t stage_of_piece(const Layout&, std::int64_t piece);

}  // namespace plimsoll::runtime
