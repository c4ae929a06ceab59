// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// A rank's steps watched: the pictures hold every moment, and the peak is the bill's.

#include "runtime/timeline.hpp"

#include <numeric>

#include "runtime/report_timeline.hpp"
#include "tests/unit/priced.hpp"

using namespace plimsoll;
using namespace plimsoll::runtime;
using namespace plimsoll::test;

namespace {

const char* const kSmall =
    "model m = decoder { layers = 8 hidden = 256 heads = 8 kv_heads = 4 ffn = 512 vocab = 4096 }\n"
    "cluster c { gpu = h100_sxm nodes = 1 gpus_per_node = 8 }\n"
    "train t { model = m cluster = c seq = 1024 batch = 64 framework = megatron }\n";

std::int64_t moments(const std::vector<TimelineColumn>& columns) {
  return std::accumulate(columns.begin(), columns.end(), std::int64_t{0},
                         [](std::int64_t n, const TimelineColumn& c) { return n + c.moments; });
}

}  // namespace

TEST_CASE("a timeline's columns hold every moment, and its peak is the bill's", "[timeline]") {
  for (const char* layout :
       {"mbs = 1", "pp = 4 mbs = 1", "pp = 4 mbs = 1 schedule = gpipe recompute = full",
        "pp = 2 vpp = 2 schedule = interleaved mbs = 2", "tp = 8 mbs = 64"})
    for (const std::size_t columns : {1u, 7u, 67u, 400u}) {
      INFO(layout << ", " << columns << " columns");
      const Priced p = price(std::string(kSmall) + "layout l { zero = 1 " + layout + " }");
      for (const StageBill& s : p.bill.stages) {
        const StagePlan plan(*p.problem, p.layout, rank_in_stage(p.layout, 0, s.stage));
        const Timeline t = timeline(plan, columns);
        CHECK(t.steady.peak.bytes == s.live_bytes);
        CHECK(t.steady.moments == t.first.moments);
        for (const StepTimeline* step : {&t.first, &t.steady}) {
          CHECK(step->columns.size() <= columns);
          CHECK(moments(step->columns) == step->moments);
          std::int64_t most = 0;
          for (const TimelineColumn& c : step->columns) {
            CHECK(c.moments > 0);
            most = std::max(most, c.bytes);
          }
          CHECK(most == step->peak.bytes);
          CHECK(step->parts.size() == 4);
        }
        CHECK(moments(t.around) == t.around_moments);
        // One op after the other: what is live at the peak is named and adds up.
        std::int64_t live = 0;
        for (const LiveLine& line : t.steady.peak.lines) live += line.bytes;
        CHECK(live == t.steady.peak.bytes);
      }
    }
}

TEST_CASE("a long step is drawn at its ends", "[timeline]") {
  const Priced p = price(std::string(kSmall) + "layout l { zero = 1 pp = 4 mbs = 1 }");
  const StagePlan plan(*p.problem, p.layout, 0);
  const Timeline t = timeline(plan, 67);
  std::int64_t many = 0;
  for (const TimelineColumn& c : t.steady.columns) many += c.many ? 1 : 0;
  CHECK(many == 1);
  CHECK(t.steady.columns.front().at.part == StepPart::forward);
  CHECK(t.steady.columns.back().at.part != StepPart::forward);
  // The pipeline fills: a stage's forwards come before its first backward.
  std::size_t first = 0;
  while (t.steady.columns[first].at.part == StepPart::forward) ++first;
  CHECK(t.steady.columns[first].at.part == StepPart::backward);
  CHECK(t.steady.columns[first].at.micro_batch == 0);
}

TEST_CASE("a timeline without Unicode is as wide, and within its columns", "[timeline]") {
  const Priced p = price(std::string(kSmall) + "layout l { zero = 1 pp = 2 mbs = 1 }");
  const StagePlan plan(*p.problem, p.layout, 0);
  for (const std::size_t width : {std::size_t{80}, std::size_t{100}, std::size_t{120}}) {
    report::Style style;
    style.width = width;
    const report::Heading heading = report::heading(*p.problem, p.layout);
    const Timeline t = timeline(plan, report::timeline_columns(style));
    const std::string pretty = report::timeline_text(heading, p.bill, t, style);
    style.unicode = false;
    const std::string plain = report::timeline_text(heading, p.bill, t, style);
    std::istringstream a(pretty), b(plain);
    for (std::string x, y; std::getline(a, x) && std::getline(b, y);) {
      INFO(x);
      CHECK(report::columns(x) == y.size());
      CHECK(y.size() <= width);
      CHECK(y.find('?') == std::string::npos);
    }
  }
}
