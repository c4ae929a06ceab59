// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
//
// Plimsoll inside another program: a job written in C++, planned, priced and counted on the dry
// device. Build it against an installed Plimsoll: cmake -S examples/library -B out
// -DCMAKE_PREFIX_PATH=PREFIX
#include <iostream>
#include <plimsoll/plimsoll.hpp>

namespace {

using namespace plimsoll;

/// The file, by the typed builder. The same could stand here as R"( … )"_plan.
std::string job_text(int nodes) {
  using namespace plimsoll::build;
  File file;
  file.add(cluster("pod").set("gpu", word("h100_sxm")).set("nodes", nodes).set("gpus_per_node", 8));
  file.add(train("tune")
               .set("model", word("llama3_8b"))
               .set("cluster", word("pod"))
               .set("seq", 8_Ki)
               .set("batch", 64)
               .require("inside a node", word("tp") <= word("gpus_per_node"))
               .require(word("headroom") >= 5_percent));
  return file.text();
}

}  // namespace

int main() {
  Diagnostics said;
  const Module module = compile("built.plan", job_text(2), said);
  const Job* job = said.has_errors() ? nullptr : find_job(module, "tune", said);
  auto problem = job != nullptr ? make_problem(module, *job, said) : std::nullopt;
  if (!problem) {
    std::cerr << said.render(module.sources(), false);
    return 1;
  }
  // The allocator replayed, as the program does it; without this line, the framework's factor.
  problem->segments = runtime::replayed_segments();
  const PlanResult result = plan(*problem, {}, said);
  if (!result.best) return 2;
  const Bill priced = bill(*problem, result.best->layout);
  const runtime::Verification seen =
      runtime::verify_dry(*problem, priced, runtime::chosen_ranks(priced, {}), std::nullopt);
  std::cout << describe(*problem, priced.layout) << "\n"
            << human_bytes(priced.peak_bytes) << " of " << human_bytes(priced.hbm_bytes) << "\n"
            << (seen.agrees ? "the dry run agrees to the byte\n" : "the dry run differs\n");
  return seen.agrees ? 0 : 4;
}
