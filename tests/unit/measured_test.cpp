// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "tests/unit/priced.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

/// Published measurements of Megatron-LM 23e00ed with TE 2.11 on eight B200 (SimuMax 4dcaae5,
/// docs/b200/b200_release_v1.2_summary.json): the allocator's peak by stage, in GiB, against the
/// bytes of tensors that we count. Nothing was fitted to them; the tolerances are today's errors,
/// rounded up, so that a change that makes them worse is seen.
namespace {

struct Run {
  const char* name;
  const char* model;
  std::int64_t seq;
  const char* layout;
  std::vector<double> measured;  ///< GiB, by stage
  double tolerance;
};

constexpr const char* kLlama = "llama3_70b { layers = 12 }";
constexpr const char* kDeepSeek = "deepseek_v2 { layers = 4  capacity = 1 }";

const std::vector<Run>& runs() {
  static const std::vector<Run> all = {
      {"pp 2", kLlama, 4096, "pp = 2", {66.552, 62.968}, 0.0005},
      {"tp 2", kLlama, 4096, "tp = 2", {60.680}, 0.0005},
      {"tp 4", kLlama, 4096, "tp = 4", {39.072}, 0.0005},
      {"tp 8", kLlama, 4096, "tp = 8", {28.286}, 0.0005},
      {"tp 2, cp 4, 32k", kLlama, 32768, "tp = 2  cp = 4", {68.428}, 0.0005},
      {"cp 8, 32k", kLlama, 32768, "cp = 8", {104.507}, 0.0005},
      {"tp 2, cp 4, 128k", kLlama, 131072, "tp = 2  cp = 4", {112.668}, 0.0005},
      {"cp 8, 128k", kLlama, 131072, "cp = 8", {147.987}, 0.0005},
      {"ep 8", kDeepSeek, 4096, "ep = 8", {45.631}, 0.001},
      {"ep 4, pp 2", kDeepSeek, 4096, "ep = 4  pp = 2", {31.585, 44.702}, 0.002},
  };
  return all;
}

}  // namespace

TEST_CASE("published runs of Megatron-LM on B200", "[measured]") {
  for (const Run& run : runs()) {
    const Priced p = price(fmt::format(
        "model m = {}\ncluster c {{ gpu = b200  nodes = 1  gpus_per_node = 8 }}\n"
        "train t {{ model = m  cluster = c  seq = {}  batch = 64  framework = megatron  loss = te\n"
        "  cp_comm = a2a }}\nlayout l {{ zero = 1  mbs = 1  {} }}\n",
        run.model, run.seq, run.layout));
    REQUIRE(p.bill.stages.size() == run.measured.size());
    for (std::size_t s = 0; s < run.measured.size(); ++s) {
      const StageBill& stage = p.bill.stages[s];
      const double got =
          static_cast<double>(static_cast<std::int64_t>(stage.live_bytes)) / (1 << 30);
      std::string lines =
          fmt::format("{}, stage {}: {:.3f} GiB, measured {:.3f} ({:+.2f} %)\n{}\n", run.name, s,
                      got, run.measured[s], 100 * (got / run.measured[s] - 1), stage.peak_moment);
      for (const BillLine& l : stage.lines)
        lines += fmt::format("  {} {:.2f} MiB\n", l.name,
                             static_cast<double>(static_cast<std::int64_t>(l.bytes)) / (1 << 20));
      INFO(lines);
      CHECK(std::abs(got / run.measured[s] - 1) <= run.tolerance);
    }
  }
}
