// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// verify --device cuda over a GPU played on the CPU: one rank alone, the numbers that are set
// beside each other, and want of memory.

#include "runtime/cuda/cuda_verify.hpp"

#include "planner/report_bill.hpp"
#include "runtime/report_verify.hpp"
#include "tests/unit/cuda_case.hpp"

using namespace plimsoll;
using namespace plimsoll::testing;

TEST_CASE("cuda verify: a rank alone holds what its bill says, whatever its layout", "[cuda]") {
  const Case experts{
      "model tiny = decoder { layers = 4  hidden = 16  heads = 4  kv_heads = 2  ffn = 24  vocab = "
      "32  experts = 4  top_k = 2  expert_ffn = 12 }",
      ""};
  for (const Case& c : {kLlama, experts})
    for (const auto& [gpus, layout] :
         {std::pair{8, "tp = 2  pp = 2  sp = true  zero = 1"}, std::pair{8, "zero = 3"},
          std::pair{8, "cp = 2  pp = 4  zero = 2"}, std::pair{4, "tp = 4  sp = true"}}) {
      INFO(c.model << ", " << layout);
      const Priced p = price(plan_text(c, gpus, layout));
      for (const std::int64_t rank : {0, gpus - 1}) {
        cuda::EmulatedMachine machine(std::int64_t{2} << 30);
        const auto ran = cuda::verify_on(machine, *p.problem, p.bill, rank, std::nullopt, 2);
        REQUIRE(std::holds_alternative<Verification>(ran));
        const auto& v = std::get<Verification>(ran);
        CHECK(v.agrees);
        CHECK_FALSE(v.failure);
        REQUIRE(v.gpu);
        CHECK(v.ranks.at(0).reserved == v.gpu->predicted_reserved);
        CHECK(v.gpu->seconds.size() == 2);
        CHECK_FALSE(v.gpu->kinds.empty());
        for (const double loss : v.losses) CHECK(std::isfinite(loss));
        const std::string text =
            report::verify_text(report::heading(*p.problem, p.layout), p.bill, *p.problem, v, {});
        CHECK(text.find("On one emulated, driver none") != std::string::npos);
      }
    }
}

TEST_CASE("cuda verify: want of memory is told before, or with what was live then", "[cuda]") {
  const Case larger{kLlama.model, "", 64, 64};
  const Priced p = price(plan_text(larger, 1, "mbs = 64"));
  {
    cuda::EmulatedMachine small(std::int64_t{256} << 20);
    const auto ran = cuda::verify_on(small, *p.problem, p.bill, 0, std::nullopt, 2);
    REQUIRE(std::holds_alternative<std::string>(ran));
    CHECK(std::get<std::string>(ran).find("are free on the emulated") != std::string::npos);
  }
  cuda::EmulatedMachine machine(std::int64_t{2} << 30);
  const auto ran = cuda::verify_on(machine, *p.problem, p.bill, 0, std::int64_t{6} << 20, 2);
  REQUIRE(std::holds_alternative<Verification>(ran));
  const auto& v = std::get<Verification>(ran);
  CHECK_FALSE(v.agrees);
  REQUIRE(v.failure);
  CHECK(v.failure->bytes > 0);
  CHECK(v.failure->reserved <= std::int64_t{6} << 20);
  CHECK(v.failure->at.step == 1);
}
