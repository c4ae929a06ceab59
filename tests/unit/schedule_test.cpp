// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "planner/schedule.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "tests/catch.hpp"

using namespace plimsoll;

namespace {

/// The most micro-batches (chunk-forwards) that a stage holds at once, by playing its whole order.
int most_held(const std::vector<Slot>& order) {
  int held = 0, most = 0;
  for (const Slot& s : order) {
    held += s.backward ? 0 : 1;
    most = std::max(most, held);
    held -= s.backward ? 1 : 0;
  }
  return most;
}

int held(const Holding& h) { return std::accumulate(h.alive.begin(), h.alive.end(), 0); }

}  // namespace

TEST_CASE("1F1B holds min(m, p - r) micro-batches", "[schedule]") {
  for (std::int64_t pp : {1, 2, 4, 8})
    for (std::int64_t m : {1, 2, 3, 8, 40})
      for (std::int64_t r = 0; r < pp; ++r) {
        INFO("pp " << pp << " m " << m << " stage " << r);
        CHECK(most_held(slots(Schedule::one_f_one_b, pp, 1, m, r)) == std::min(m, pp - r));
      }
}

TEST_CASE("interleaved holds min(m v, 2(p-r-1) + (v-1)p + 1) chunk-forwards", "[schedule]") {
  for (std::int64_t pp : {2, 4, 8})
    for (std::int64_t v : {2, 3, 4})
      for (std::int64_t m : {pp, 2 * pp, 6 * pp})
        for (std::int64_t r = 0; r < pp; ++r) {
          INFO("pp " << pp << " v " << v << " m " << m << " stage " << r);
          CHECK(most_held(slots(Schedule::interleaved, pp, v, m, r)) ==
                std::min(m * v, 2 * (pp - r - 1) + (v - 1) * pp + 1));
        }
}

TEST_CASE("the last stage of an interleaved schedule holds one loss chunk", "[schedule]") {
  for (const Holding& h : holdings(Schedule::interleaved, 4, 3, 16, 3)) {
    INFO("chunk " << h.chunk << (h.backward ? " backward" : " forward"));
    CHECK(h.alive.back() <= 1);
  }
}

TEST_CASE("every order runs each chunk forward and backward once a micro-batch", "[schedule]") {
  for (Schedule s :
       {Schedule::one_f_one_b, Schedule::gpipe, Schedule::interleaved, Schedule::zb_h1}) {
    const std::int64_t v = s == Schedule::interleaved ? 2 : 1;
    for (std::int64_t r = 0; r < 4; ++r) {
      std::vector<int> forward(static_cast<std::size_t>(v)), backward(static_cast<std::size_t>(v));
      for (const Slot& slot : slots(s, 4, v, 8, r)) {
        auto& count = slot.backward ? backward : forward;
        ++count[static_cast<std::size_t>(slot.chunk)];
        CHECK(backward[static_cast<std::size_t>(slot.chunk)] <=
              forward[static_cast<std::size_t>(slot.chunk)]);
      }
      CHECK(forward == std::vector<int>(static_cast<std::size_t>(v), 8));
      CHECK(backward == forward);
    }
  }
}

TEST_CASE("holdings of few periods stand for any number of micro-batches", "[schedule]") {
  // The holdings are made from a few periods; playing the whole order must meet none that is
  // larger.
  for (Schedule schedule : {Schedule::one_f_one_b, Schedule::interleaved, Schedule::gpipe,
                            Schedule::zb_v, Schedule::dualpipe_v})
    for (std::int64_t pp : {1, 2, 4})
      for (std::int64_t m : {1, 4, 8, 12, 32}) {
        const bool chunks = schedule == Schedule::interleaved || schedule == Schedule::zb_v ||
                            schedule == Schedule::dualpipe_v;
        const std::int64_t v = chunks ? 2 : 1;
        if (v > 1 && (pp == 1 || m % pp != 0)) continue;
        if (schedule == Schedule::dualpipe_v && m < 2 * pp) continue;
        for (std::int64_t r = 0; r < pp; ++r) {
          const std::vector<Holding> found = holdings(schedule, pp, v, m, r);
          std::vector<std::int32_t> alive(static_cast<std::size_t>(v));
          for (const Slot& slot : slots(schedule, pp, v, m, r)) {
            if (!slot.backward) ++alive[static_cast<std::size_t>(slot.chunk)];
            const bool met = std::any_of(found.begin(), found.end(), [&](const Holding& h) {
              if (h.chunk != slot.chunk || h.backward != slot.backward) return false;
              for (std::size_t k = 0; k < alive.size(); ++k)
                if (h.alive[k] < alive[k]) return false;
              return true;
            });
            INFO("pp " << pp << " m " << m << " stage " << r << " chunk " << slot.chunk);
            CHECK(met);
            if (slot.backward) --alive[static_cast<std::size_t>(slot.chunk)];
          }
        }
      }
}

TEST_CASE("GPipe holds every micro-batch", "[schedule]") {
  const std::vector<Holding> found = holdings(Schedule::gpipe, 4, 1, 16, 2);
  CHECK(std::any_of(found.begin(), found.end(),
                    [](const Holding& h) { return held(h) == 16 && h.backward; }));
}

namespace {

/// Plays all stages of a folded schedule, each in its order, a chunk-pass starting once what it
/// reads is there. True where none waits for ever.
bool completes(Schedule schedule, std::int64_t pp, std::int64_t m) {
  std::vector<std::vector<Slot>> order;
  for (std::int64_t r = 0; r < pp; ++r) order.push_back(slots(schedule, pp, 2, m, r));
  const auto stages = static_cast<std::size_t>(pp);
  // Passes done: [stage][backward][chunk]; a pass's micro-batch is the count before it.
  std::vector<std::array<std::array<std::int64_t, 2>, 2>> done(stages);
  std::vector<std::size_t> at(stages, 0);
  const auto ready = [&](std::size_t r, const Slot& s) {
    const std::int64_t i = done[r][s.backward][static_cast<std::size_t>(s.chunk)];
    const auto has = [&](std::size_t stage, bool backward, std::size_t chunk) {
      return done[stage][backward][chunk] > i;
    };
    const bool end = r + 1 == stages;
    if (!s.backward && s.chunk == 0) return r == 0 || has(r - 1, false, 0);
    if (!s.backward) return end ? has(r, false, 0) : has(r + 1, false, 1);
    if (s.chunk == 1) return r == 0 ? has(0, false, 1) : has(r - 1, true, 1);
    return end ? has(r, true, 1) : has(r + 1, true, 0);
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < stages; ++r)
      while (at[r] < order[r].size() && ready(r, order[r][at[r]])) {
        const Slot& s = order[r][at[r]++];
        ++done[r][s.backward][static_cast<std::size_t>(s.chunk)];
        moved = true;
      }
  }
  for (std::size_t r = 0; r < stages; ++r)
    if (at[r] != order[r].size()) return false;
  return true;
}

}  // namespace

TEST_CASE("ZB-V holds at most 2p chunk-forwards on every stage, DualPipe-V one more",
          "[schedule]") {
  for (std::int64_t pp : {2, 3, 4, 8})
    for (std::int64_t m : {2 * pp, 2 * pp + 3, 6 * pp})
      for (std::int64_t r = 0; r < pp; ++r) {
        INFO("pp " << pp << " m " << m << " stage " << r);
        CHECK(most_held(slots(Schedule::zb_v, pp, 2, m, r)) == 2 * pp);
        // Pairs that run at one time come up on the last stage from 2p micro-batches on, on the
        // first one later.
        const int most = most_held(slots(Schedule::dualpipe_v, pp, 2, m, r));
        CHECK(most <= 2 * pp + 1);
        if (m > 2 * pp) CHECK(most == 2 * pp + 1);
      }
}

TEST_CASE("folded schedules run every chunk of every micro-batch, and none waits for ever",
          "[schedule]") {
  for (Schedule s : {Schedule::zb_v, Schedule::dualpipe_v})
    for (std::int64_t pp : {2, 3, 4, 6})
      for (std::int64_t m : {std::int64_t{1}, pp, 2 * pp, 2 * pp + 1, 5 * pp}) {
        if (s == Schedule::dualpipe_v && m < 2 * pp) continue;
        INFO(name(s) << " pp " << pp << " m " << m);
        for (std::int64_t r = 0; r < pp; ++r) {
          std::int64_t passes[2][2] = {{0, 0}, {0, 0}};
          for (const Slot& slot : slots(s, pp, 2, m, r)) {
            ++passes[slot.backward][slot.chunk];
            CHECK(passes[1][slot.chunk] <= passes[0][slot.chunk]);
          }
          for (const auto& of : passes)
            for (const std::int64_t count : of) CHECK(count == m);
        }
        CHECK(completes(s, pp, m));
      }
}
