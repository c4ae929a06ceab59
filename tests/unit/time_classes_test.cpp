// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Times by class add up to those of segments, which the step is made of.

#include "planner/time_classes.hpp"

#include <set>

#include "planner/time_ops.hpp"
#include "planner/time_path.hpp"
#include "tests/catch.hpp"
#include "tests/unit/priced.hpp"

using namespace plimsoll;

TEST_CASE("time by class: what segments take, op by op", "[time]") {
  const std::string job =
      "cluster c { gpu = h100_sxm  nodes = 1  gpus_per_node = 8 }\n"
      "train run { model = llama3_8b  cluster = c  framework = megatron  seq = 8Ki  batch = 16 }\n";
  for (const char* recompute : {"none", "full", "selective"}) {
    INFO(recompute);
    const test::Priced p = test::price(
        job + "layout l { tp = 4  sp = true  zero = 1  recompute = " + recompute + " }");
    const Layout& l = p.layout;
    const Gpu& gpu = p.problem->cluster->pools.front().gpu;
    SegmentTimer timer(*p.problem);
    const auto times = timer.times({l.tp, l.cp, l.ep, l.etp, l.mbs, l.seq, l.sp},
                                   Rates::of(gpu, time_path(*p.problem)),
                                   Links(*p.problem->cluster, gpu, kTimeConstants));
    // One class of 32 layers, then what stands beside them.
    double forward = 0, backward = 0, again = 0;
    for (std::size_t s = 0; s < times.size(); ++s) {
      const double count = s == 0 ? 32 : 1;
      forward += count * times[s].forward;
      backward += count * times[s].backward;
      if (s == 0 && l.recompute > 0) again = count * times[s].recompute[l.recompute];
    }
    double forwards = 0, backwards = 0, sent = 0;
    std::set<std::string> names;
    for (const ClassTime& t : time_by_class(*p.problem, l, 0)) {
      CHECK(t.seconds >= 0);
      names.insert(t.name);
      if (t.name == "optimizer" || t.name == "reduce gradients") continue;
      (t.backward ? backwards : forwards) += t.seconds + t.sent;
      sent += t.sent;
    }
    const auto m = static_cast<double>(l.microbatches);
    CHECK(forwards == Approx(m * (forward + again)));
    CHECK(backwards == Approx(m * backward));
    CHECK(sent > 0);
    CHECK((again > 0) == (std::string(recompute) != "none"));
    for (const char* name : {"linear", "attention", "cross_entropy", "embedding", "optimizer"}) {
      INFO(name);
      CHECK(names.count(name) == 1);
    }
  }
}
