// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Ranks, their groups and the pieces of the model that they hold.

#include "runtime/ranks.hpp"

#include <set>

#include "tests/catch.hpp"

using namespace plimsoll;
using namespace plimsoll::runtime;

TEST_CASE("every group cuts the ranks into equal parts, each rank at its own place", "[ranks]") {
  Layout l;
  l.tp = 2;
  l.cp = 2;
  l.dp = 6;
  l.pp = 3;
  l.ep = 3;
  l.etp = 2;
  l.shard = 4;
  REQUIRE(rank_count(l) == 72);
  for (const RankGroup g :
       {RankGroup::tp, RankGroup::cp, RankGroup::dp, RankGroup::dp_cp, RankGroup::ep,
        RankGroup::etp, RankGroup::edp, RankGroup::shard, RankGroup::stage, RankGroup::all}) {
    INFO(static_cast<int>(g));
    std::set<std::vector<std::int64_t>> groups;
    for (std::int64_t rank = 0; rank < rank_count(l); ++rank) {
      const std::vector<std::int64_t> ranks = group(l, g, rank);
      groups.insert(ranks);
      std::int64_t at = -1;
      for (std::size_t i = 0; i < ranks.size(); ++i)
        if (ranks[i] == rank) at = static_cast<std::int64_t>(i);
      REQUIRE(at >= 0);
      const RankPlace p = place_of(l, rank);
      if (g == RankGroup::tp) CHECK(at == p.tp);
      if (g == RankGroup::cp) CHECK(at == p.cp);
      if (g == RankGroup::dp) CHECK(at == p.dp);
      if (g == RankGroup::ep) CHECK(at == p.ep);
      if (g == RankGroup::etp) CHECK(at == p.etp);
      if (g == RankGroup::edp) CHECK(at == p.edp);
      if (g == RankGroup::shard) CHECK(at == p.shard);
    }
    std::multiset<std::int64_t> seen;
    for (const auto& ranks : groups) {
      CHECK(ranks.size() == groups.begin()->size());
      seen.insert(ranks.begin(), ranks.end());
    }
    CHECK(seen.size() == 72);
    CHECK(std::set<std::int64_t>(seen.begin(), seen.end()).size() == 72);
  }
}

TEST_CASE("each piece of the model lies on one stage", "[ranks]") {
  Layout l;
  l.pp = 4;
  l.vpp = 2;
  for (const Schedule s : {Schedule::interleaved, Schedule::zb_v, Schedule::dualpipe_v}) {
    l.schedule = s;
    std::set<std::int64_t> pieces;
    for (std::int64_t stage = 0; stage < l.pp; ++stage)
      for (std::int64_t chunk = 0; chunk < l.vpp; ++chunk) {
        const std::int64_t piece = piece_of(l, stage, chunk);
        CHECK(stage_of_piece(l, piece) == stage);
        pieces.insert(piece);
      }
    CHECK(pieces.size() == 8);
    CHECK(*pieces.begin() == 0);
    CHECK(*pieces.rbegin() == 7);
  }
}
