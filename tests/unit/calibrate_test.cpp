// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// What calibrate prints is a file that the compiler reads and the planner prices by.

#include "runtime/cuda/calibrate.hpp"

#include "runtime/cuda/emulated_machine.hpp"
#include "tests/catch.hpp"
#include "tests/unit/priced.hpp"

using namespace plimsoll;

namespace {

runtime::cuda::CalibrationSizes small() {
  runtime::cuda::CalibrationSizes s;
  s.copy_bytes = 1 << 20;
  s.tokens = {32};
  s.linears = {{16, 32}, {32, 16}};
  s.heads = 2;
  s.width = 16;
  s.sequences = {32};
  s.turns = 2;
  return s;
}

}  // namespace

TEST_CASE("calibrate: measures all that it declares", "[cuda]") {
  runtime::cuda::EmulatedMachine machine;
  const auto c = runtime::cuda::calibrate(machine, small());
  CHECK(c.products.size() == 2);
  CHECK(c.attention.size() == 1);
  CHECK(c.memory == std::int64_t{1} << 30);
  // A turn of the emulated machine takes half a microsecond here.
  CHECK(c.bandwidth == Approx(2.0 * (1 << 20) / 0.5e-6));
  CHECK(c.products[0].per_second == Approx(2.0 * 32 * 16 * 32 / 0.5e-6));
}

TEST_CASE("calibrate: the planner uses the declarations", "[cuda]") {
  runtime::cuda::Calibration c;
  c.driver = "580.1";
  c.sm = 90;
  c.multiprocessors = 132;
  c.memory = 150000000000;
  c.reserved = 600000000;
  c.bandwidth = 4.3e12;
  c.products = {{"8 x 8 x 8", 7e14}, {"9 x 9 x 9", 8e14}};
  c.attention = {{"causal", 4e14}};
  const std::string job =
      "train run { model = llama3_8b  cluster = here  framework = megatron  seq = 8Ki  batch = 8 "
      "}\n"
      "layout one { tp = 2  pp = 4 }\n";
  for (const char* gpu : {"NVIDIA H200", "something new"}) {
    c.gpu = gpu;
    c.gpus = 8;
    c.nvlink = 4e11;
    const std::string text = runtime::cuda::declarations(c, "2026-11-30");
    INFO(text);
    CHECK(text.find("2026-11-30") != std::string::npos);
    CHECK(text.find("driver 580.1") != std::string::npos);
    const test::Priced p = test::price(text + job);
    const Gpu& measured = p.problem->cluster->pools.front().gpu;
    CHECK(measured.memory == Int128{150000000000});
    CHECK(measured.bandwidth == Rational(4300000000000));
    const bool known = std::string(gpu) == "NVIDIA H200";
    const double peak = known ? 989e12 : 8e14;
    CHECK(measured.numbers.at("gemm_efficiency").value.to_double() ==
          Approx(8e14 / peak).epsilon(0.01));
    CHECK(p.bill.hbm_bytes == Int128{150000000000});
  }
}

TEST_CASE("calibrate: who shares a machine", "[cuda]") {
  using List = std::vector<std::vector<std::int64_t>>;
  const auto one = runtime::cuda::nodes_of({"a", "a", "a"});
  CHECK(one.inside == List{{0, 1, 2}});
  CHECK(one.across.empty());
  // In whatever order ranks are placed; of a node with more ranks the last ones have no partner.
  const auto two = runtime::cuda::nodes_of({"a", "b", "a", "b", "b"});
  CHECK(two.inside == List{{0, 2}, {1, 3, 4}});
  CHECK(two.across == List{{0, 1}, {2, 3}});
}

TEST_CASE("calibrate: links that were measured are declared", "[cuda]") {
  runtime::cuda::Calibration c;
  c.gpu = "NVIDIA H200";
  c.driver = "580.1";
  c.memory = 150000000000;
  c.bandwidth = 4.3e12;
  c.sm = 90;
  c.multiprocessors = 132;
  c.products = {{"8 x 8 x 8", 7e14}};
  c.attention = {{"causal", 4e14}};
  c.gpus = 8;
  c.nodes = 2;
  c.nvlink = 3.7e11;
  c.nic = 4.6e10;
  c.rings = {{"within a node, 8 ranks, all-gather of 256 MiB", 3.7e11}};
  const std::string text = runtime::cuda::declarations(c, "2026-11-30");
  INFO(text);
  CHECK(text.find("all-gather of 256 MiB") != std::string::npos);
  const test::Priced p = test::price(text +
                                     "train run { model = llama3_8b  cluster = here  framework = "
                                     "megatron  seq = 8Ki  batch = 16 }\n"
                                     "layout one { tp = 2  pp = 4 }\n");
  const Gpu& measured = p.problem->cluster->pools.front().gpu;
  CHECK(measured.nvlink == Rational(370000000000));
  CHECK(measured.nic == Rational(46000000000));
  CHECK(p.problem->cluster->pools.front().gpus_per_node == 8);
  CHECK(p.problem->cluster->pools.front().nodes == std::vector<std::int64_t>{2});
}
