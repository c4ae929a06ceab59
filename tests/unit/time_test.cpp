// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/time.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "planner/time_constants.hpp"
#include "planner/time_ops.hpp"
#include "tests/catch.hpp"
#include "tests/unit/world.hpp"

namespace plimsoll {
namespace {

using testing::World;

constexpr const char* kPod = R"(
cluster pod { gpu = h100_sxm  nodes = 8  gpus_per_node = 8 }
train job { model = llama3_8b  cluster = pod  seq = 8Ki  batch = 512  framework = megatron }
)";

Layout layout(const Problem& problem, std::int64_t tp, std::int64_t pp, std::int64_t cp = 1) {
  Layout l;
  l.tp = tp;
  l.pp = pp;
  l.cp = cp;
  l.sp = tp > 1;
  l.zero = 1;
  resolve(problem, l);
  return l;
}

std::int64_t ns(Clock& clock, const Problem& problem, Layout l) {
  l.dp = 0;
  l.microbatches = 0;
  l.shard = 0;
  l.stage_layers.clear();
  l.recompute_layers.clear();
  resolve(problem, l);
  REQUIRE(why_impossible(problem, l) == "");
  return clock.step(l).nanoseconds;
}

TEST_CASE("what costs more takes longer", "[time]") {
  const World world(kPod);
  const Problem& problem = *world;
  Clock clock(problem);
  const Layout base = layout(problem, 2, 2);

  SECTION("recomputing a layer") {
    Layout full = base, selective = base;
    full.recompute = 1;
    selective.recompute = 2;
    REQUIRE(problem.inventory.recompute_modes.at(2) == "selective");
    CHECK(ns(clock, problem, base) < ns(clock, problem, selective));
    CHECK(ns(clock, problem, selective) < ns(clock, problem, full));
  }
  SECTION("a longer pipeline with the same micro-batches") {
    const StepTime two = clock.step(layout(problem, 1, 2));
    const StepTime eight = clock.step(layout(problem, 1, 8));
    CHECK(two.bubble_share < eight.bubble_share);
  }
  SECTION("fewer chunks") {
    Layout chunks = layout(problem, 1, 4);
    const double plain = clock.step(chunks).bubble;
    chunks.vpp = 2;
    chunks.schedule = Schedule::interleaved;
    CHECK(clock.step(chunks).bubble == Approx(plain / 2));
  }
  SECTION("tensor parallelism across nodes") {
    CHECK(ns(clock, problem, layout(problem, 8, 1)) < ns(clock, problem, layout(problem, 16, 1)));
    CHECK(clock.step(layout(problem, 8, 1)).tp < clock.step(layout(problem, 16, 1)).tp);
  }
  SECTION("gathering parameters in every micro-batch") {
    Layout gathered = base;
    gathered.zero = 3;
    CHECK(ns(clock, problem, base) < ns(clock, problem, gathered));
  }
  SECTION("scattering gradients in every micro-batch") {
    Layout scattered = base;
    scattered.zero = 2;
    CHECK(ns(clock, problem, base) < ns(clock, problem, scattered));
  }
  SECTION("an optimizer that is not shared out") {
    Layout whole = base;
    whole.zero = 0;
    CHECK(clock.step(base).optimizer < clock.step(whole).optimizer);
  }
  SECTION("a last stage with more layers") {
    Layout even = layout(problem, 1, 4), uneven = even;
    uneven.stage_layers = {6, 8, 8, 10};
    CHECK(clock.step(even).nanoseconds < clock.step(uneven).nanoseconds);
  }
}

/// The step of a mixture of experts over four nodes, as a job with \a said runs it.
std::int64_t mixture(const std::string& said) {
  const World world(fmt::format(R"(
cluster pod {{ gpu = h100_sxm  nodes = 4  gpus_per_node = 8 }}
model m = decoder {{ layers = 8  hidden = 2048  heads = 16  ffn = 6144  vocab = 32000  experts = 64  top_k = 8  expert_ffn = 768 }}
train job {{ model = m  cluster = pod  seq = 4Ki  batch = 256  {} }}
)",
                                said));
  Clock clock(*world);
  Layout l = layout(*world, 1, 1);
  l.ep = 32;
  return ns(clock, *world, l);
}

TEST_CASE("how a mixture of experts runs is told in its time", "[time]") {
  CHECK(mixture("launch = graphs") < mixture("launch = partial"));
  CHECK(mixture("launch = partial") < mixture("launch = kernels"));
  CHECK(mixture("launch = graphs  moe_kernels = fused") < mixture("launch = graphs"));
  CHECK(mixture("launch = graphs  moe_overlap = true") < mixture("launch = graphs"));
  // A token goes to eight experts on four nodes: once to each of these, or to every expert.
  CHECK(mixture("launch = graphs  dispatcher = deepep") < mixture("launch = graphs"));
  CHECK(mixture("launch = graphs  dispatcher = deepep") ==
        mixture("launch = graphs  dispatcher = hybridep"));
  // Only HybridEP spares the host the wait for how many rows each expert gets.
  CHECK(mixture("dispatcher = hybridep") < mixture("dispatcher = deepep"));
  CHECK(mixture("launch = graphs  precision = fp8  fp8_attention = true") <
        mixture("launch = graphs  precision = fp8"));
}

TEST_CASE("what a checkpoint keeps is not run again", "[time]") {
  const World world(R"(
cluster pod { gpu = h100_sxm  nodes = 1  gpus_per_node = 8 }
train job { model = llama3_8b  cluster = pod  seq = 8Ki  batch = 8  framework = torchtitan }
)");
  const Problem& problem = *world;
  const auto& modes = problem.inventory.recompute_modes;
  const auto selective = static_cast<RecomputeMode>(
      std::find(modes.begin(), modes.end(), "selective") - modes.begin());
  REQUIRE(selective < modes.size());
  SegmentTimer timer(problem);
  const Rates rates = Rates::of(problem.cluster->pools.front().gpu, time_path(problem));
  const Links links(*problem.cluster, problem.cluster->pools.front().gpu);
  TimeKey key;
  key.seq = 8192;
  std::size_t products = 0, whole = 0, some = 0;
  bool attention_whole = false, attention_some = false, last = false;
  const auto all = timer.op_times(key, rates, links);
  for (const OpSeconds& op : all.front()) {
    if (op.kind == OpKind::attention)
      attention_whole = op.again[kFullRecompute], attention_some = op.again[selective];
    if (op.kind != OpKind::linear) continue;
    ++products;
    whole += op.again[kFullRecompute] ? 1 : 0;
    some += op.again[selective] ? 1 : 0;
    last = op.again[kFullRecompute];
  }
  // q, k, v, o, gate, up, down: backward needs of the last its input alone; q, v, gate are kept.
  CHECK(products == 7);
  CHECK(whole == 6);
  CHECK_FALSE(last);
  CHECK(some == 3);
  CHECK(attention_whole);
  CHECK_FALSE(attention_some);
}

TEST_CASE("an exchange of experts is hidden by no more than what runs beside it", "[time]") {
  const auto step = [](const char* overlap, const char* nic) {
    const World world(fmt::format(R"(
gpu slow = h100_sxm {{ nic = {} }}
cluster pod {{ gpu = slow  nodes = 2  gpus_per_node = 4 }}
train job {{ model = mixtral_8x7b  cluster = pod  seq = 4Ki  batch = 64  framework = megatron
  dispatcher = alltoall  moe_overlap = {} }}
)",
                                  nic, overlap));
    Layout l = layout(*world, 1, 1);
    l.ep = 8;
    REQUIRE(why_impossible(*world, l) == "");
    return Clock(*world).step(l);
  };
  const StepTime alone = step("false", "400 Gb/s"), beside = step("true", "400 Gb/s");
  CHECK(beside.ep < 0.5 * alone.ep);
  CHECK(beside.ep > 0.1 * alone.ep);
  // A network so slow that compute cannot hide it: all but the compute is exposed.
  const StepTime slow = step("false", "1 Gb/s"), hidden = step("true", "1 Gb/s");
  CHECK(hidden.ep > 0.8 * slow.ep);
  CHECK(hidden.ep < slow.ep);
}

TEST_CASE("constants that changed are seen once a clock is told", "[time]") {
  const World world(kPod);
  TimeConstants constants;
  Clock clock(*world, constants);
  const Layout l = layout(*world, 2, 2);
  const std::int64_t before = clock.step(l).nanoseconds;
  constants.gemm_hopper /= 2;
  clock.recalibrate();
  CHECK(clock.step(l).nanoseconds > before);
  CHECK(clock.step(l).nanoseconds == Clock(*world, constants).step(l).nanoseconds);
}

TEST_CASE("the parts of a step add up to it", "[time]") {
  const World world(kPod);
  Clock clock(*world);
  for (const auto& [tp, pp] : {std::pair{1, 1}, {2, 4}, {8, 2}, {1, 8}}) {
    const StepTime t = clock.step(layout(*world, tp, pp));
    const double sum =
        t.compute + t.tp + t.cp + t.ep + t.dp + t.p2p + t.bubble + t.recompute + t.optimizer;
    CHECK(sum == Approx(static_cast<double>(t.nanoseconds) * 1e-9).epsilon(1e-6));
    CHECK(t.mfu > 0.1);
    CHECK(t.mfu < 0.7);
  }
}

TEST_CASE("model FLOPs are six times parameters and tokens, and attention", "[time]") {
  const World world(kPod);
  SegmentTimer timer(*world);
  // Llama 3 8B: every product's weights (not the embedding's), and causal attention: 4 d a s/2 a
  // token forward, three times that with backward.
  const double weights = 8030261248.0 - 128256.0 * 4096 - (2 * 32 + 1) * 4096.0;
  const double attention = 32.0 * 3 * (4.0 * 128 * 32 * 8192 / 2) * 8192;
  CHECK(timer.model_flops(8192) == Approx(6 * weights * 8192 + attention).epsilon(1e-9));
}

TEST_CASE("the lower bound is below every step, whatever the stages", "[time]") {
  for (const char* model : {"llama3_8b", "mixtral_8x7b"}) {
    const World world(fmt::format(R"(
cluster pod {{ gpu = h100_sxm  nodes = 8  gpus_per_node = 8 }}
train job {{ model = {}  cluster = pod  seq = 4Ki  batch = 512  framework = megatron }}
)",
                                  model));
    const Problem& problem = *world;
    Clock clock(problem);
    int looked_at = 0;
    for (const std::int64_t tp : {1, 2, 8})
      for (const std::int64_t pp : {1, 2, 4, 8})
        for (const int zero : {0, 1, 2, 3})
          for (const RecomputeMode recompute : {0u, 1u, 2u})
            for (const bool uneven : {false, true}) {
              Layout l;
              l.tp = tp;
              l.pp = pp;
              l.zero = zero;
              l.sp = tp > 1;
              l.recompute = recompute;
              resolve(problem, l);
              const std::int64_t bound = clock.lower_bound(l);
              if (uneven && pp > 1) {
                l.stage_layers.front() -= 1;
                l.stage_layers.back() += 1;
                if (recompute == 1) l.recompute_layers = l.stage_layers;
              }
              if (!why_impossible(problem, l).empty()) continue;
              ++looked_at;
              INFO(describe(problem, l));
              const std::int64_t step = clock.step(l).nanoseconds;
              CHECK(bound <= step);
              CHECK(static_cast<double>(bound) > 0.5 * static_cast<double>(step));
            }
    CHECK(looked_at > 100);
  }
}

// --- published runs ---

using Row = std::map<std::string, std::string>;

std::vector<Row> read_rows(const std::string& path) {
  std::ifstream in(path);
  REQUIRE(in.good());
  std::vector<std::string> names;
  std::vector<Row> rows;
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> cells;
    std::string cell;
    bool quoted = false;
    for (const char c : line) {
      if (c == '"')
        quoted = !quoted;
      else if (c == ',' && !quoted)
        cells.push_back(std::exchange(cell, ""));
      else
        cell += c;
    }
    cells.push_back(cell);
    if (names.empty()) {
      names = cells;
      continue;
    }
    REQUIRE(cells.size() == names.size());
    Row row;
    for (std::size_t i = 0; i < names.size(); ++i) row[names[i]] = cells[i];
    rows.push_back(row);
  }
  return rows;
}

std::string plan_of(const Row& r) {
  const int gpus = std::stoi(r.at("gpus"));
  const double rate = std::stod(r.at("rate"));
  // A power-limited part reaches a share of the data sheet's rate.
  const std::string limit =
      rate < 1 ? fmt::format("{{ peak_bf16 = {:.0f} TFLOP/s }}", 2250 * rate) : "";
  const std::string model =
      r.at("gated") == "1"
          ? fmt::format("llama {{ kv_heads = {} ffn = {} ", r.at("kv_heads"), r.at("ffn"))
          : fmt::format("gpt {{ ffn = {} positions = {} ", r.at("ffn"), r.at("seq"));
  return fmt::format(R"(
gpu one = {} {}
cluster c {{ gpu = one  nodes = {}  gpus_per_node = {} }}
model m = {} layers = {} hidden = {} heads = {} vocab = {} }}
train t {{ model = m  cluster = c  seq = {}  batch = {}  precision = {}  attention = {}
  framework = megatron }}
)",
                     r.at("gpu"), limit, std::max(gpus / 8, 1), std::min(gpus, 8), model,
                     r.at("layers"), r.at("hidden"), r.at("heads"), r.at("vocab"), r.at("seq"),
                     r.at("gbs"), r.at("precision"), r.at("attention"));
}

double predicted(const Row& r) {
  const World world(plan_of(r));
  const Problem& problem = *world;
  Layout l;
  l.tp = std::stoll(r.at("tp"));
  l.pp = std::stoll(r.at("pp"));
  l.vpp = std::stoll(r.at("vpp"));
  l.cp = std::stoll(r.at("cp"));
  l.mbs = std::stoll(r.at("mbs"));
  l.zero = std::stoi(r.at("zero"));
  l.sp = r.at("sp").empty() ? l.tp > 1 : r.at("sp") == "true";
  const auto& modes = problem.inventory.recompute_modes;
  const auto mode = std::find(modes.begin(), modes.end(), r.at("recompute"));
  REQUIRE(mode != modes.end());
  l.recompute = static_cast<RecomputeMode>(mode - modes.begin());
  resolve(problem, l);
  INFO(r.at("id"));
  REQUIRE(why_impossible(problem, l) == "");
  Clock clock(problem);
  return static_cast<double>(clock.step(l).nanoseconds) * 1e-9;
}

// Nothing in this program was fitted to these rows. The constants come from TIME.md, whose fit had
// seen rows of the same table. What a row does not say and was assumed stands in the file.
TEST_CASE("dense Megatron runs that were published", "[time][published]") {
  std::vector<double> errors;
  std::string table;
  for (const Row& r :
       read_rows(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/data/throughput_sample.csv")) {
    const double measured = std::stod(r.at("iteration_s"));
    const double error = predicted(r) / measured - 1;
    errors.push_back(std::abs(error));
    table += fmt::format("{:+7.1f} %  {:9.3f} s  {}\n", 100 * error, measured, r.at("id"));
  }
  std::sort(errors.begin(), errors.end());
  REQUIRE(errors.size() >= 30);
  const double median = errors[errors.size() / 2];
  const double p90 = errors[errors.size() * 9 / 10];
  table += fmt::format("median {:.1f} %, p90 {:.1f} %\n", 100 * median, 100 * p90);
  INFO(table);
  if (std::getenv("PLIMSOLL_SHOW") != nullptr) fmt::print("{}", table);
  CHECK(median <= 0.15);
}

}  // namespace
}  // namespace plimsoll
