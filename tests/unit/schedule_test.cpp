// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "planner/schedule.hpp"

#include <algorithm>
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
  for (Schedule schedule : {Schedule::one_f_one_b, Schedule::interleaved, Schedule::gpipe})
    for (std::int64_t pp : {1, 2, 4})
      for (std::int64_t m : {1, 4, 8, 12, 32}) {
        const std::int64_t v = schedule == Schedule::interleaved ? 2 : 1;
        if (v > 1 && (pp == 1 || m % pp != 0)) continue;
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
