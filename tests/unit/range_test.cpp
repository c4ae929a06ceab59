// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "planner/range.hpp"

#include <algorithm>

#include "planner/report_bill.hpp"
#include "tests/unit/priced.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

namespace {

std::string job(const std::string& framework, const std::string& layout,
                const std::string& model = "llama3_8b") {
  return "cluster c { gpu = h100_sxm  nodes = 1  gpus_per_node = 8 }\n"
         "train t { model = " +
         model + "  cluster = c  seq = 8Ki  batch = 8  framework = " + framework +
         " }\nlayout l { " + layout + " }\n";
}

const OtherMoment& moment(const Priced& p, std::string_view name) {
  for (const OtherMoment& m : p.bill.stages[0].others)
    if (m.name == name) return m;
  FAIL("no such moment: " << name);
  throw 0;
}

Int128 live(const OtherMoment& m, Category c) { return m.live[static_cast<std::size_t>(c)]; }

}  // namespace

TEST_CASE("a range stretches what the allocator holds, and no more", "[range]") {
  const Priced p = price(job("megatron", "tp = 4  zero = 1"));
  const Range& range = p.bill.range;
  CHECK(range.of == "peak");
  CHECK(range.runs_of == "megatron, dense, reserved");
  CHECK(range.low < p.bill.peak_bytes);
  CHECK(range.high > p.bill.peak_bytes);
  const StageBill& stage = p.bill.stages[0];
  const Int128 outside = stage.peak_bytes - stage.reserved_bytes;
  const double low =
      static_cast<double>(range.low - outside) / static_cast<double>(stage.reserved_bytes);
  CHECK(low > 0.9);
  CHECK(low < 1);
}

TEST_CASE("where too little was measured no range is known", "[range]") {
  const Priced own = price("framework mine = megatron {}\n" + job("mine", "tp = 4"));
  CHECK(own.bill.range.of.empty());
  CHECK(own.bill.range.why_none == "no run of this file's own mine was measured");
  // Shadowing a name does not make it measured.
  CHECK(price("framework megatron = plain {}\n" + job("megatron", "tp = 4")).bill.range.of.empty());
  CHECK(price(job("plain", "tp = 4")).bill.range.why_none ==
        "too few measured runs of plain, dense");
  CHECK(price(job("deepspeed", "zero = 3")).bill.range.why_none ==
        "too few measured runs of deepspeed, dense fsdp");
  CHECK(report::range_text({}) == "");
}

TEST_CASE("the verdict is edge inside the range or the margin, fits is the point", "[range]") {
  const Priced p = price(job("megatron", "tp = 4  zero = 1"));
  const Int128 hbm = Int128{80} << 30;
  Range range;
  range.of = "peak";
  const auto at = [&](double share, double low, double high) {
    const auto of = [&](double x) { return static_cast<Int128>(x * static_cast<double>(hbm)); };
    range.low = of(low), range.high = of(high);
    return verdict(*p.problem, of(share), hbm, range);
  };
  CHECK(at(0.90, 0.89, 0.91) == "fits");
  CHECK(at(0.90, 0.85, 1.01) == "edge");
  CHECK(at(0.97, 0.96, 0.98) == "edge");  // within the margin of 4 %
  CHECK(at(1.10, 1.05, 1.20) == "does not fit");
  CHECK(at(1.10, 0.99, 1.20) == "edge");
}

TEST_CASE("imbalance by quantile, in proportion between runs", "[range]") {
  const Imbalances known = measured_imbalances();
  REQUIRE(known.runs >= 5);
  const auto at = [](const Rational& q) { return measured_imbalance(q)->to_double(); };
  CHECK_FALSE(measured_imbalance(Rational(0)));
  CHECK_FALSE(measured_imbalance(Rational(1)));
  double last = 0;
  for (int i = 1; i <= known.runs; ++i) {
    const double here = at(Rational::fraction(i, known.runs + 1));
    CHECK(here >= last);
    if (i > 1)
      CHECK(at(Rational::fraction(2 * i - 1, 2 * (known.runs + 1))) == Approx((here + last) / 2));
    last = here;
  }
  CHECK(at(known.least) < 1);
  CHECK(at(known.most) > 1);
}

TEST_CASE("moments beside the steady step", "[moments]") {
  const Priced p = price(job("megatron", "tp = 4  zero = 1"));
  const StageBill& stage = p.bill.stages[0];
  const Int128 weights = category(stage, Category::weights),
               gradients = category(stage, Category::gradients),
               master = category(stage, Category::master),
               moments = category(stage, Category::moments);
  const OtherMoment& start = moment(p, "building the model");
  // The distributed optimizer's buffer beside the parameters; the optimizer's own come later.
  CHECK(live(start, Category::gradients) == gradients);
  CHECK(live(start, Category::moments) == 0);
  REQUIRE(start.own.size() == 1);
  CHECK(live(start, Category::weights) == weights + start.own[0].second);
  CHECK(start.own[0].second >= weights * 99 / 100);
  const OtherMoment& load = moment(p, "loading a checkpoint");
  CHECK(live(load, Category::weights) == weights);
  CHECK(live(load, Category::moments) == moments);
  CHECK(live(load, Category::activations) == 0);
  const OtherMoment& first = moment(p, "first step");
  CHECK(first.bytes == stage.first_step_bytes);
  CHECK(live(first, Category::moments) == 0);
  CHECK(live(first, Category::master) == master);
  CHECK(moment(p, "optimizer step").bytes == stage.update_bytes);
  CHECK(moment(p, "saving a checkpoint").bytes == stage.steady_bytes);
  const OtherMoment& evaluation = moment(p, "evaluation");
  CHECK(evaluation.bytes > stage.steady_bytes);
  CHECK(evaluation.bytes < stage.peak_bytes);
  CHECK(live(evaluation, Category::activations) > 0);
  // No layer's activations pile up: with ten times the layers the same.
  const Priced deep =
      price("model m = llama3_8b { layers = 320 }\n" + job("megatron", "tp = 4  zero = 1", "m"));
  CHECK(live(moment(deep, "evaluation"), Category::activations) ==
        live(evaluation, Category::activations));
}

TEST_CASE("items of a moment beside the steps are in no step", "[moments]") {
  const std::string text = job("mine", "zero = 3");
  const Priced p = price(
      "framework mine = torchtitan { item \"a\" { bytes = 3 GiB  lifetime = save }\n"
      "  item \"b\" { bytes = 5 GiB  lifetime = evaluate } item \"c\" { bytes = 7 GiB  lifetime = "
      "load } }\n" +
      text);
  const Priced without = price("framework mine = torchtitan {}\n" + text);
  const Int128 gib = Int128{1} << 30;
  CHECK(p.bill.peak_bytes == without.bill.peak_bytes);
  for (const auto& [name, gibs] : {std::pair{"saving a checkpoint", 3}, std::pair{"evaluation", 5},
                                   std::pair{"loading a checkpoint", 7}})
    CHECK(moment(p, name).allocated - moment(without, name).allocated == gibs * gib);
  CHECK(line(p.bill.stages[0], "a") == line(without.bill.stages[0], "a"));
}
