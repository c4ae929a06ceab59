// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "lang/module.hpp"
#include "planner/judge.hpp"
#include "planner/peak.hpp"
#include "tests/catch.hpp"

using namespace plimsoll;

TEST_CASE("a bill names the requirements that its layout breaks", "[judge]") {
  Diagnostics diags;
  const Module module = compile("r.plan",
                                "cluster c { gpu = h100_sxm nodes = 2 gpus_per_node = 8 }\n"
                                "train j { model = llama3_8b cluster = c seq = 8Ki batch = 64\n"
                                "  require \"one GPU a model\": tp == 1\n"
                                "  require \"room\": headroom > 90%\n"
                                "  require \"even\": max(stage_layers) == min(stage_layers)\n"
                                "  require \"quick\": step_time < 1 us }\n"
                                "layout l { tp = 4 pp = 2 zero = 1 mbs = 1 }\n",
                                diags);
  INFO(diags.render(module.sources(), false));
  REQUIRE(!diags.has_errors());
  const auto problem = make_problem(module, module.jobs().front(), diags);
  REQUIRE(problem);
  const auto layout = layout_from(*problem, &module.layouts().front(), diags);
  REQUIRE(layout);
  std::vector<std::string> names;
  for (const Condition* c : broken_requirements(*problem, *layout, bill(*problem, *layout)))
    names.push_back(c->name);
  CHECK(names == std::vector<std::string>{"one GPU a model", "room", "quick"});
}
