// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// A stage's steps played through the allocator: its tensors against the bill's live bytes, and its
// segments beside what was measured.

#include <algorithm>
#include <iostream>

#include "runtime/replay.hpp"
#include "runtime/segments.hpp"
#include "tests/unit/priced.hpp"

using namespace plimsoll;
using namespace plimsoll::runtime;
using namespace plimsoll::test;

namespace {

AllocatorOptions expandable() {
  AllocatorOptions o;
  o.expandable_segments = true;
  return o;
}

std::string small_job(const std::string& framework, const std::string& layout) {
  return "model m = decoder { layers = 8 hidden = 1024 heads = 8 kv_heads = 4 ffn = 4096 "
         "vocab = 32768 head_dim = 128 }\n"
         "cluster c { gpu = h100_sxm nodes = 1 gpus_per_node = 8 }\n"
         "train t { model = m cluster = c seq = 1024 batch = 64 " +
         framework + " }\nlayout l { " + layout + " }\n";
}

std::int64_t live(const StageBill& s) { return static_cast<std::int64_t>(s.live_bytes); }

}  // namespace

TEST_CASE("a replayed step holds the bill's live bytes, to the byte", "[replay]") {
  const std::pair<const char*, const char*> jobs[] = {
      {"framework = plain", "mbs = 2 zero = 1"},
      {"framework = plain", "pp = 4 mbs = 1 recompute = full"},
      {"framework = megatron", "tp = 2 mbs = 2 zero = 1"},
      {"framework = megatron", "tp = 2 pp = 4 mbs = 1 zero = 1"},
      {"framework = megatron", "pp = 2 vpp = 2 schedule = interleaved mbs = 1 zero = 1"},
      {"framework = megatron attention = unfused",
       "pp = 2 schedule = gpipe mbs = 1 recompute = "
       "full"},
      {"framework = torchtitan", "tp = 1 mbs = 1"},
  };
  for (const auto& [framework, layout] : jobs) {
    const Priced p = price(small_job(framework, layout));
    for (const StageBill& s : p.bill.stages) {
      INFO(framework << ", " << layout << ", stage " << s.stage << ", " << s.peak_moment);
      for (const AllocatorOptions& o : {AllocatorOptions{}, expandable()}) {
        const ReplayResult r = replay(*p.problem, p.layout, s.stage, o);
        REQUIRE(!r.failure);
        CHECK(r.peak_requested == live(s));
        // A block is larger than its tensor by less than 512 bytes, or by up to 1 MiB of a rest.
        const std::int64_t rest = o.expandable_segments ? o.min_block : o.small_size + o.min_block;
        CHECK(r.peak_allocated >= live(s));
        CHECK(r.peak_allocated <= live(s) + r.most_blocks * rest);
        CHECK(r.peak_reserved >= r.peak_allocated);
        CHECK(r.first_step_reserved <= r.peak_reserved);
      }
    }
  }
}

TEST_CASE("nothing of a step is left behind", "[replay]") {
  const Priced p = price(small_job("framework = megatron", "tp = 2 pp = 2 mbs = 1 zero = 1"));
  const ReplayResult two = replay(*p.problem, p.layout, 0, {}, 2);
  const ReplayResult five = replay(*p.problem, p.layout, 0, {}, 5);
  CHECK(two.blocks_at_end == five.blocks_at_end);
  CHECK(two.stats.allocated.now == five.stats.allocated.now);
  CHECK(two.peak_requested == five.peak_requested);
  CHECK(replay(*p.problem, p.layout, 0, {}, 1).peak_requested < two.peak_requested);
}

TEST_CASE("a replay that runs out of memory says where", "[replay]") {
  const Priced p = price(small_job("framework = megatron", "tp = 2 pp = 2 mbs = 1 zero = 1"));
  const ReplayResult enough = replay(*p.problem, p.layout, 0, {});
  const ReplayResult same = replay(*p.problem, p.layout, 0, {}, 2, enough.peak_reserved);
  CHECK(!same.failure);
  CHECK(same.peak_reserved == enough.peak_reserved);
  const ReplayResult less = replay(*p.problem, p.layout, 0, {}, 2, enough.peak_requested - 1);
  REQUIRE(less.failure);
  CHECK(less.failure->at.step == 2);
  CHECK(less.failure->bytes > 0);
  CHECK(!less.failure->tensor.empty());
  CHECK(less.failure->reserved <= enough.peak_requested - 1);
}

/// The runs of measured_test.cpp; what torch measured on each rank: most allocated over the ranks
/// of a stage (equal within 0.01 %), and reserved of each rank, GiB (SimuMax 4dcaae5,
/// docs/b200/b200_release_v1.2_summary.json, per-rank figures). Runs of 4, 8 and 32 micro-batches
/// have equal figures there and stand once.
TEST_CASE("reserved bytes, beside published runs on B200", "[replay][measured]") {
  struct Stage {
    double allocated;
    std::vector<double> reserved;  ///< by rank
  };
  struct Run {
    const char* name;
    const char* model;
    std::int64_t seq;
    const char* layout;
    std::vector<Stage> measured;
  };
  const char* const llama = "llama3_70b { layers = 12 }";
  const char* const deepseek = "deepseek_v2 { layers = 4  capacity = 1 }";
  const std::vector<Run> runs = {
      {"pp 2",
       llama,
       4096,
       "pp = 2",
       {{66.552, {69.072, 69.914, 70.885, 69.234}}, {62.968, {64.221, 63.896, 63.416, 63.467}}}},
      {"tp 2",
       llama,
       4096,
       "tp = 2",
       {{60.680, {62.416, 62.416, 62.070, 62.070, 62.281, 62.281, 62.525, 62.525}}}},
      {"tp 4",
       llama,
       4096,
       "tp = 4",
       {{39.072, {40.113, 40.086, 40.086, 40.086, 40.117, 40.176, 40.117, 40.176}}}},
      {"tp 8",
       llama,
       4096,
       "tp = 8",
       {{28.286, {29.117, 29.117, 29.117, 29.117, 29.117, 29.117, 29.117, 29.117}}}},
      {"tp 2, cp 4, 32k",
       llama,
       32768,
       "tp = 2  cp = 4",
       {{68.428, {70.242, 70.242, 70.109, 70.109, 70.115, 70.115, 70.332, 70.332}}}},
      {"cp 8, 32k",
       llama,
       32768,
       "cp = 8",
       {{104.509, {109.678, 108.854, 108.490, 108.625, 107.430, 108.387, 108.635, 111.939}}}},
      {"tp 2, cp 4, 128k",
       llama,
       131072,
       "tp = 2  cp = 4",
       {{112.668, {120.920, 120.920, 121.396, 121.396, 120.629, 120.629, 117.854, 117.854}}}},
      {"cp 8, 128k",
       llama,
       131072,
       "cp = 8",
       {{147.988, {158.773, 158.625, 158.812, 159.062, 158.812, 158.812, 159.500, 159.648}}}},
      {"ep 8",
       deepseek,
       4096,
       "ep = 8",
       {{45.635, {48.771, 48.771, 48.678, 48.650, 48.791, 48.648, 48.771, 48.771}}}},
      {"ep 4, pp 2",
       deepseek,
       4096,
       "ep = 4  pp = 2",
       {{31.585, {33.834, 33.836, 33.947, 33.881}}, {44.703, {47.047, 47.047, 46.967, 47.023}}}},
  };
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  double sum = 0, worst = 0, factor_sum = 0, factor_worst = 0;
  double bill_sum = 0, bill_worst = 0;  // the bill's one figure a stage against its fullest rank
  int stages = 0;
  int ranks = 0;
  std::cout << "reserved, GiB: replayed, measured, error; with the factor of the search\n";
  for (const Run& run : runs) {
    Priced p = price(fmt::format(
        "model m = {}\ncluster c {{ gpu = b200  nodes = 1  gpus_per_node = 8 }}\n"
        "train t {{ model = m  cluster = c  seq = {}  batch = 64  framework = megatron  loss = te\n"
        "  cp_comm = a2a }}\nlayout l {{ zero = 1  mbs = 1  {} }}\n",
        run.model, run.seq, run.layout));
    REQUIRE(p.bill.stages.size() == run.measured.size());
    p.problem->segments = replayed_segments();
    for (std::size_t s = 0; s < run.measured.size(); ++s, ++stages) {
      const std::vector<double>& ranks_of = run.measured[s].reserved;
      const double fullest = *std::max_element(ranks_of.begin(), ranks_of.end());
      const auto said = static_cast<double>(
          p.problem->segments->reserved(*p.problem, p.layout, static_cast<std::int64_t>(s)));
      const double error = 100 * (said / kGiB / fullest - 1);
      std::cout << fmt::format("  {:18} stage {}  bill {:8.3f}, fullest rank {:8.3f} {:+6.2f} %\n",
                               run.name, s, said / kGiB, fullest, error);
      bill_sum += std::abs(error);
      bill_worst = std::max(bill_worst, std::abs(error));
    }
    std::int64_t rank = 0;
    for (const Stage& stage : run.measured)
      for (const double measured : stage.reserved) {
        INFO(run.name << ", rank " << rank);
        const StagePlan plan(*p.problem, p.layout, rank);
        const StageBill& b = p.bill.stages[static_cast<std::size_t>(plan.place.stage)];
        const ReplayResult r = replay(plan, AllocatorOptions{});
        REQUIRE(!r.failure);
        CHECK(r.peak_requested == live(b));
        CHECK(r.peak_reserved >= r.peak_allocated);
        const auto error = [&](double bytes) { return 100 * (bytes / kGiB / measured - 1); };
        const double own = error(static_cast<double>(r.peak_reserved));
        const double factor = error(static_cast<double>(b.reserved_bytes));
        std::cout << fmt::format(
            "  {:18} rank {}  {:8.3f} {:8.3f} {:+6.2f} %  {:+6.2f} %   allocated {:8.3f} {:8.3f}\n",
            run.name, rank, static_cast<double>(r.peak_reserved) / kGiB, measured, own, factor,
            static_cast<double>(r.peak_allocated) / kGiB, stage.allocated);
        sum += std::abs(own);
        worst = std::max(worst, std::abs(own));
        factor_sum += std::abs(factor);
        factor_worst = std::max(factor_worst, std::abs(factor));
        ++ranks;
        ++rank;
      }
  }
  std::cout << fmt::format(
      "  {} ranks: mean {:.2f} %, worst {:.2f} %; with the factor mean {:.2f} %, worst {:.2f} %\n",
      ranks, sum / ranks, worst, factor_sum / ranks, factor_worst);
  std::cout << fmt::format("  {} stages by the bill: mean {:.2f} %, worst {:.2f} %\n", stages,
                           bill_sum / stages, bill_worst);
  CHECK(sum / ranks <= 2);
  CHECK(worst <= 4);
  CHECK(bill_sum / stages <= 2);
  CHECK(bill_worst <= 4);
}
