// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// What the planner is told of segments, and that a bill and a plan print it.

#include "runtime/segments.hpp"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>

#include "planner/enumerate.hpp"
#include "planner/schedule.hpp"
#include "runtime/replay.hpp"
#include "tests/unit/priced.hpp"
#include "tests/unit/random_jobs.hpp"

using namespace plimsoll;
using namespace plimsoll::runtime;
using namespace plimsoll::test;

TEST_CASE("a replay of few micro-batches stands for one of all", "[reserved]") {
  double worst = 0;
  for (const char* layout :
       {"tp = 2 pp = 4 mbs = 1 zero = 1", "tp = 2 pp = 4 mbs = 1 vpp = 2 schedule = interleaved",
        "pp = 8 mbs = 1 recompute = full", "pp = 4 mbs = 2 recompute = selective"}) {
    INFO(layout);
    plimsoll::test::Priced p = price(fmt::format(
        "model m = decoder {{ layers = 16 hidden = 2048 heads = 16 kv_heads = 4 ffn = 8192 vocab = "
        "32768 head_dim = 128 }}\ncluster c {{ gpu = h100_sxm nodes = 1 gpus_per_node = 8 }}\n"
        "train t {{ model = m cluster = c seq = 4096 batch = 256 framework = megatron }}\n"
        "layout l {{ {} }}\n",
        layout));
    p.problem->segments = replayed_segments();
    for (std::int64_t stage = 0; stage < p.layout.pp; ++stage) {
      const StagePlan plan(*p.problem, p.layout, rank_in_stage(p.layout, 0, stage));
      const std::int64_t all = replay(plan, {}).peak_reserved;
      const std::int64_t few = p.problem->segments->reserved(*p.problem, p.layout, stage);
      CHECK(few >= p.bill.stages[static_cast<std::size_t>(stage)].allocated_bytes);
      worst = std::max(worst, std::abs(static_cast<double>(few) / static_cast<double>(all) - 1));
    }
  }
  std::cout << fmt::format("segments: few micro-batches against all: {:.2f} % at most\n",
                           100 * worst);
  CHECK(worst < 0.015);
}

TEST_CASE("a bill and a plan print what the replay finds", "[reserved]") {
  const std::string text =
      "model m = decoder { layers = 8 hidden = 2048 heads = 16 kv_heads = 4 ffn = 8192 "
      "vocab = 32768 head_dim = 128 }\n"
      "gpu small = h100_sxm { memory = 16 GiB }\n"
      "cluster c { gpu = small nodes = 1 gpus_per_node = 8 }\n"
      "train t { model = m cluster = c seq = 4096 batch = 64 framework = megatron }\n"
      "layout l { tp = 2 pp = 2 mbs = 1 zero = 1 }\n";
  plimsoll::test::Priced p = price(text);
  CHECK_FALSE(replays(*p.problem));
  const Bill by_factor = p.bill;
  p.problem->segments = replayed_segments();
  REQUIRE(replays(*p.problem));
  const Bill b = bill(*p.problem, p.layout);
  for (const StageBill& s : b.stages) {
    const std::int64_t ranks = p.layout.tp * p.layout.dp;
    std::int64_t most = 0;
    for (const std::int64_t rank : {std::int64_t{0}, ranks - 1}) {
      StagePlan plan(*p.problem, p.layout, rank_in_stage(p.layout, rank, s.stage));
      plan.slots = slots(p.layout.schedule, p.layout.pp, p.layout.vpp,
                         std::min(p.layout.microbatches, p.layout.pp - s.stage + 4), s.stage);
      most = std::max(most, replay(plan, allocator_options(*p.problem)).peak_reserved);
    }
    CHECK(s.reserved_bytes == most);
    CHECK(s.allocated_bytes == by_factor.stages[static_cast<std::size_t>(s.stage)].allocated_bytes);
    CHECK(s.peak_bytes - s.reserved_bytes ==
          by_factor.stages[static_cast<std::size_t>(s.stage)].peak_bytes -
              by_factor.stages[static_cast<std::size_t>(s.stage)].reserved_bytes);
    Int128 sum = 0;
    for (const BillLine& line : s.lines) sum += line.bytes;
    CHECK(sum == s.peak_bytes);
    CHECK(s.moments.front().second == s.peak_bytes);
  }
  const Bill tightest = peak_bill(*p.problem, p.layout);
  CHECK(tightest.peak_stage == b.peak_stage);
  CHECK(tightest.peak_bytes == b.peak_bytes);
  CHECK(tightest.verdict == b.verdict);
  Pricer pricer(*p.problem);
  CHECK(pricer.exact(p.layout).bytes == b.peak_bytes);
  CHECK(pricer.exact(p.layout).stage == b.peak_stage);

  Diagnostics diags;
  const PlanResult found = plan(*p.problem, {}, diags);
  REQUIRE(found.best);
  std::vector<plimsoll::Priced> all = found.alternatives;
  all.insert(all.begin(), *found.best);
  for (const plimsoll::Priced& each : all) {
    const Bill own = bill(*p.problem, each.layout);
    CHECK(own.fits);
    CHECK(own.peak_bytes == each.peak_bytes);
    CHECK(own.peak_stage == each.peak_stage);
  }
}

TEST_CASE("whether segments are more than a limit is what their bytes say", "[reserved]") {
  for (const char* framework : {"megatron", "torchtitan"}) {
    plimsoll::test::Priced p = price(fmt::format(
        "model m = decoder {{ layers = 8 hidden = 1024 heads = 16 kv_heads = 4 ffn = 4096 vocab = "
        "32000 head_dim = 64 }}\ncluster c {{ gpu = h100_sxm nodes = 1 gpus_per_node = 8 }}\n"
        "train t {{ model = m cluster = c seq = 2048 batch = 64 framework = {} }}\n"
        "layout l {{ pp = 2 mbs = 1 zero = 1 }}\n",
        framework));
    for (std::int64_t stage = 0; stage < p.layout.pp; ++stage) {
      const std::int64_t bytes = replayed_segments()->reserved(*p.problem, p.layout, stage);
      const auto asked = replayed_segments();  // keeps what it found
      for (const std::int64_t limit : {std::int64_t{-1}, bytes / 2, bytes - 1, bytes / 3, bytes,
                                       bytes + 1, 2 * bytes, bytes - 1, bytes / 2}) {
        INFO(framework << ", stage " << stage << ": " << bytes << ", limit " << limit);
        CHECK(asked->more_than(limit, *p.problem, p.layout, stage) == (bytes > limit));
        CHECK(replayed_segments()->more_than(limit, *p.problem, p.layout, stage) ==
              (bytes > limit));
      }
      CHECK(asked->reserved(*p.problem, p.layout, stage) == bytes);
    }
  }
}

TEST_CASE("a kept replay is that of the layers that the stage holds", "[reserved][property]") {
  const unsigned seed = seed_of_run();
  INFO("PLIMSOLL_SEED=" << seed);
  std::mt19937 random(seed);
  for (const char* layout : {"pp = 4", "pp = 4 vpp = 2", "pp = 4 schedule = zb_v vpp = 2"}) {
    plimsoll::test::Priced p = price(fmt::format(
        "model m = decoder {{ layers = 16 hidden = 512 heads = 8 kv_heads = 4 ffn = 2048 vocab = "
        "32000 head_dim = 64 first_dense = 3 experts = 4 top_k = 2 expert_ffn = 512 }}\n"
        "cluster c {{ gpu = h100_sxm nodes = 1 gpus_per_node = 8 }}\n"
        "train t {{ model = m cluster = c seq = 2048 batch = 64 framework = megatron }}\n"
        "layout l {{ {} mbs = 1 zero = 1 recompute = full }}\n",
        layout));
    Layout& l = p.layout;
    const auto kept = replayed_segments();
    for (int deal = 0; deal < 12; ++deal) {
      // Of few numbers of layers, so that a stage often holds what it held before.
      const std::int64_t first = l.vpp * (1 + static_cast<std::int64_t>(random() % (4 / l.vpp)));
      const std::int64_t last = l.vpp * (1 + static_cast<std::int64_t>(random() % (4 / l.vpp)));
      const std::int64_t middle = 16 - first - last, second = middle / (2 * l.vpp) * l.vpp;
      l.stage_layers = {first, second, middle - second, last};
      for (std::size_t i = 0; i < l.stage_layers.size(); ++i)
        l.recompute_layers[i] = std::min<std::int64_t>(l.stage_layers[i], random() % 3);
      for (std::int64_t stage = 0; stage < l.pp; ++stage) {
        INFO(describe(*p.problem, l) << ", stage " << stage);
        CHECK(kept->reserved(*p.problem, l, stage) ==
              replayed_segments()->reserved(*p.problem, l, stage));
      }
    }
  }
}

TEST_CASE("a framework that states a factor, or counts no blocks, is not replayed", "[reserved]") {
  const auto is_replayed = [](const std::string& framework) {
    plimsoll::test::Priced p = price(
        "framework stated = megatron { replay = false }\n"
        "framework own { state weight : bf16  on {linear, rmsnorm, glu} { save input } }\n"
        "framework own_factor { reserved_factor = 1.2  state weight : bf16 }\n"
        "model m = decoder { layers = 2 hidden = 64 heads = 8 kv_heads = 4 ffn = 96 vocab = 1000 "
        "head_dim = 8 }\ncluster c { gpu = h100_sxm nodes = 1 gpus_per_node = 8 }\n"
        "train t { model = m cluster = c seq = 64 batch = 64 framework = " +
        framework + " }\nlayout l { mbs = 1 }\n");
    p.problem->segments = replayed_segments();
    return replays(*p.problem);
  };
  CHECK(is_replayed("megatron"));
  CHECK(is_replayed("own"));
  CHECK(is_replayed("torchtitan"));  // states a factor, for the search, and asks for the replay
  for (const char* framework :
       {"stated", "own_factor", "plain", "textbook", "huggingface", "deepspeed"}) {
    INFO(framework);
    CHECK_FALSE(is_replayed(framework));
  }
}

TEST_CASE("stages that the planner does not replay would change no verdict",
          "[reserved][property]") {
  const unsigned seed = seed_of_run();
  INFO("PLIMSOLL_SEED=" << seed);
  std::mt19937 random(seed);
  const auto one_of = [&](std::initializer_list<const char*> words) {
    return words.begin()[random() % words.size()];
  };
  int over = 0, within = 0;
  for (int round = 0; round < 60; ++round) {
    const std::string pp = one_of({"1", "4", "8"});
    const std::string text = fmt::format(
        "model m = decoder {{ layers = 16 hidden = 1024 heads = 16 kv_heads = 4 ffn = {} vocab = "
        "32000 head_dim = 64 {} }}\ncluster c {{ gpu = h100_sxm nodes = 8 gpus_per_node = 8 }}\n"
        "train t {{ model = m cluster = c seq = {} batch = 256 framework = {} }}\n"
        "layout l {{ tp = {} pp = {} vpp = {} mbs = {} zero = {} recompute = {} }}\n",
        one_of({"2048", "8192"}), one_of({"", "experts = 8 top_k = 2 expert_ffn = 512"}),
        one_of({"512", "4096"}), one_of({"megatron", "torchtitan"}), one_of({"1", "2"}), pp,
        pp == "1" ? "1" : one_of({"1", "2"}), one_of({"1", "2"}), one_of({"0", "1", "2", "3"}),
        one_of({"none", "selective", "full"}));
    INFO(text);
    const plimsoll::test::Priced priced = price(text);
    Problem& p = *priced.problem;
    p.segments = replayed_segments();
    if (!replays(p)) continue;
    const Layout& l = priced.layout;
    const Bill b = bill(p, l);
    Pricer pricer(p);
    const Pricer::Peak exact = pricer.exact(l);
    CHECK(exact.bytes <= b.peak_bytes);
    CHECK(exact.bytes >= b.peak_bytes - std::max<Int128>(Int128{100} << 20, b.peak_bytes / 200));
    std::vector<Int128> peaks;
    for (const StageBill& s : b.stages) peaks.push_back(s.peak_bytes);
    std::sort(peaks.begin(), peaks.end());
    // Between the peaks of stages, where the answer is not a matter of what a stage with fewer
    // micro-batches may take more: a few segments, which of these small models are a few percent.
    const Int128 more = std::max<Int128>(Int128{100} << 20, peaks.back() / 200);
    for (std::size_t i = 0; i <= peaks.size(); ++i) {
      const Int128 below = i == 0 ? 0 : peaks[i - 1];
      const Int128 above = i == peaks.size() ? 2 * peaks.back() : peaks[i];
      if (above - below <= 2 * more) continue;
      const auto cap = static_cast<std::int64_t>((above + below) / 2);
      std::vector<std::int64_t> want;
      for (const StageBill& s : b.stages)
        if (s.peak_bytes > cap) want.push_back(s.stage);
      CHECK(pricer.stages_over(l, cap) == want);
      CHECK(pricer.any_stage_over(l, cap) == !want.empty());
      ++(want.empty() ? within : over);
    }
  }
  CHECK(over > 60);
  CHECK(within > 30);
}
