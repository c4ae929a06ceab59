// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// The split is right: a sharded run's loss, gradients and parameters are those of one rank, from
// nothing but what was declared saved, in memory that is spoilt where it is not written; and the most
// that a rank holds is what its bill says.

#include <cmath>

#include "runtime/host/host_run.hpp"
#include "tests/catch.hpp"
#include "tests/unit/priced.hpp"

using namespace plimsoll;
using namespace plimsoll::runtime;
using namespace plimsoll::runtime::host;
using test::price;
using test::Priced;

namespace {

constexpr double kTolerance = 1e-5;  // of a gradient's norm
constexpr double kLearningRate = 1e-3;

struct Case {
  std::string model, job;
  int batch = 8, seq = 16;
};

/// The case on so many GPUs, in a layout.
std::string plan_text(const Case& c, int gpus, const std::string& layout) {
  return fmt::format(
      "gpu toy {{ memory = 1 GiB  bandwidth = 1 TB/s  nvlink = 100 GB/s }}\n"
      "cluster box {{ gpu = toy  gpus_per_node = {}  nodes = 1 }}\n"
      "{}\n"
      "train run {{ model = tiny  cluster = box  framework = plain  optimizer = adamw\n"
      "  precision = fp32  seq = {}  batch = {}\n  {} }}\n"
      "layout here {{ {} }}\n",
      gpus, c.model, c.seq, c.batch, c.job, layout);
}

double norm(const std::vector<float>& a) {
  double sum = 0;
  for (const float x : a) sum += static_cast<double>(x) * x;
  return std::sqrt(sum);
}
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return std::sqrt(sum);
}

HostOptions options() {
  HostOptions o;
  o.keep_tensors = true;
  o.learning_rate = kLearningRate;
  return o;
}

HostRun run(const Priced& p, const HostOptions& o = options()) {
  REQUIRE(why_not_on_host(*p.problem, p.layout) == "");
  REQUIRE(why_impossible(*p.problem, p.layout) == "");
  return run_on_host(*p.problem, p.layout, o);
}

void check_equal(const Priced& p, const HostRun& expected, const HostRun& found) {
  REQUIRE(found.losses.size() == expected.losses.size());
  for (std::size_t step = 0; step < found.losses.size(); ++step)
    CHECK(found.losses[step] == Approx(expected.losses[step]).epsilon(kTolerance));
  for (std::size_t step = 0; step < found.gradients.size(); ++step)
    for (WeightId w = 0; w < p.problem->program->weights.size(); ++w) {
      const Weight& weight = p.problem->program->weights[w];
      if (weight.tied_to != kNone) continue;
      INFO("step " << step + 1 << ", weight " << w << " '" << weight.name << "' of role "
                   << name(weight.role));
      const auto& right = expected.gradients[step][w];
      CHECK(norm(right) > 0);
      CHECK(distance(found.gradients[step][w], right) <= kTolerance * norm(right));
      double most = 0;
      for (std::size_t i = 0; i < right.size(); ++i)
        most = std::max<double>(most, std::abs(found.parameters[step][w][i] -
                                               expected.parameters[step][w][i]));
      CHECK(most <= kLearningRate / 1000);
    }
}

/// Every rank's peak is its stage's bill, and nothing is left over.
void check_memory(const Priced& p, const HostRun& found) {
  CHECK_FALSE(found.failure);
  for (std::size_t rank = 0; rank < found.ranks.size(); ++rank) {
    const auto stage = static_cast<std::size_t>(
        place_of(p.layout, static_cast<std::int64_t>(rank)).stage);
    INFO("rank " << rank << ", stage " << stage);
    CHECK(Int128{found.ranks[rank].peak.bytes} == p.bill.stages[stage].live_bytes);
    CHECK(found.ranks[rank].left == 0);
  }
}

/// Runs each layout of \a layouts (GPUs and fields) and holds it against one rank.
void check_layouts(const Case& c, const std::vector<std::pair<int, std::string>>& layouts) {
  const Priced one = price(plan_text(c, 1, ""));
  const HostRun expected = run(one);
  check_memory(one, expected);
  CHECK(expected.losses.front() > 0);
  for (const auto& [gpus, layout] : layouts) {
    INFO(gpus << " GPUs, " << layout);
    const Priced p = price(plan_text(c, gpus, layout));
    const HostRun found = run(p);
    check_equal(p, expected, found);
    check_memory(p, found);
  }
}

const Case kLlama{
    "model tiny = llama { layers = 4  hidden = 16  heads = 4  kv_heads = 2  ffn = 24  vocab = 32 }",
    ""};

}  // namespace

TEST_CASE("host run: one rank computes something that is right", "[host]") {
  const Priced p = price(plan_text(kLlama, 1, ""));
  const HostRun found = run(p);
  check_memory(p, found);
  // Weights are random: the loss begins near that of a guess.
  CHECK(found.losses.front() == Approx(std::log(32.0)).margin(1.0));
}

TEST_CASE("host run: tensor parallelism, with and without sequence parallelism", "[host]") {
  check_layouts(kLlama, {{2, "tp = 2"}, {2, "tp = 2  sp = true"}, {4, "tp = 4"},
                         {4, "tp = 4  sp = true"}});
}

TEST_CASE("host run: pipelines", "[host]") {
  check_layouts(kLlama, {{2, "pp = 2"}, {4, "pp = 4"}, {2, "pp = 2  vpp = 2"},
                         {2, "pp = 2  schedule = gpipe"}});
}

TEST_CASE("host run: ZeRO", "[host]") {
  check_layouts(kLlama, {{2, "zero = 0"}, {2, "zero = 1"}, {2, "zero = 2"}, {2, "zero = 3"},
                         {4, "zero = 3"}, {4, "zero = 2  mbs = 2"}});
}

TEST_CASE("host run: context parallelism", "[host]") {
  check_layouts(kLlama, {{2, "cp = 2"}, {4, "cp = 4  mbs = 2"}});
}
