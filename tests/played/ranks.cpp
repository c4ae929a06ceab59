// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// `verify --device cuda` of ranks that are processes, each on an emulated GPU; NCCL is whichever
// libnccl.so.2 the loader finds first: nccl.cpp here. processes_test.py starts it and reads what
// rank 0 prints. Exit status as the program's own.
//
// usage: plimsoll_played_ranks PLAN [FAULT RANK [HANGING_RANK]], or plimsoll_played_ranks calibrate
//   FAULT: memory (has four fifths of what it needs), error (its GPU fails in mid-step), killed,
//   no_gpu. The hanging rank does nothing more from mid-step on.

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "lang/module.hpp"
#include "planner/peak.hpp"
#include "planner/report_bill.hpp"
#include "runtime/cuda/calibrate.hpp"
#include "runtime/cuda/cuda_verify.hpp"
#include "runtime/cuda/emulated_machine.hpp"
#include "runtime/cuda/gpu_error.hpp"
#include "runtime/host/host_verify.hpp"
#include "runtime/replay.hpp"
#include "runtime/report_verify.hpp"

using namespace plimsoll;
using namespace plimsoll::runtime;

namespace {

/// Fails in the middle of the first step.
class FaultyMachine final : public cuda::EmulatedMachine {
 public:
  explicit FaultyMachine(std::string fault) : fault_(std::move(fault)) {}
  void launch(const cuda::Kernel& kernel) override {
    if (launches() == 60) {
      if (fault_ == "error") throw cuda::GpuError("an illegal address was met");
      if (fault_ == "killed") std::raise(SIGKILL);
      while (fault_ == "hangs") ::pause();
    }
    EmulatedMachine::launch(kernel);
  }

 private:
  std::string fault_;
};

int run(Wire& wire, const std::string& text, const std::string& fault, int whose, int hangs) {
  Diagnostics diags;
  const Module module = compile("test.plan", text, diags);
  const auto problem = make_problem(module, module.jobs().at(0), diags);
  const auto layout = layout_from(*problem, &module.layouts().at(0), diags);
  const Bill priced = bill(*problem, *layout);
  const bool mine = wire.rank() == whose;
  std::optional<std::int64_t> limit;
  if (mine && fault == "memory") {
    const StagePlan plan(*problem, *layout, whose);
    limit = replay(plan, allocator_options(*problem)).peak_reserved * 4 / 5;
  }
  std::vector<std::int64_t> ranks;
  for (std::int64_t r = 0; r < rank_count(*layout); ++r) ranks.push_back(r);
  const auto open = [&]() -> std::unique_ptr<cuda::Machine> {
    if (mine && fault == "no_gpu") throw cuda::GpuError("this machine has no driver");
    return std::make_unique<FaultyMachine>(mine ? fault : wire.rank() == hangs ? "hangs" : "");
  };
  const auto ran = cuda::verify_together(open, wire, *problem, priced, ranks, limit, 2);
  if (wire.rank() != 0) return 0;
  if (const auto* why = std::get_if<std::string>(&ran)) {
    std::printf("%s\n", why->c_str());
    return 1;
  }
  const auto& v = std::get<Verification>(ran);
  std::fputs(
      report::verify_text(report::heading(*problem, *layout), priced, *problem, v, {}).c_str(),
      stdout);
  if (!v.agrees) return 4;
  const auto host = host::verify_host(*problem, priced, ranks, std::nullopt);
  const auto& expected = std::get<Verification>(host).losses;
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (std::abs(v.losses.at(i) - expected[i]) > 5e-5 * expected[i]) {
      std::printf("the loss is %.8g, on the host %.8g\n", v.losses[i], expected[i]);
      return 3;
    }
  std::puts("losses are the host's");
  return 0;
}

/// Two ranks on each of two machines; a turn takes the emulated machine half a microsecond.
int calibrate(Wire& wire) {
  cuda::CalibrationSizes sizes;
  sizes.copy_bytes = 1 << 20;
  sizes.tokens = {32};
  sizes.linears = {{16, 32}};
  sizes.heads = 2;
  sizes.width = 16;
  sizes.sequences = {32};
  sizes.ring_bytes = {1 << 16, 1 << 20};
  sizes.turns = 2;
  const auto ran =
      cuda::calibrate_together([] { return std::make_unique<cuda::EmulatedMachine>(); }, wire,
                               wire.rank() < 2 ? "one" : "two", sizes);
  if (wire.rank() != 0) return 0;
  if (const auto* why = std::get_if<std::string>(&ran)) {
    std::printf("%s\n", why->c_str());
    return 1;
  }
  std::fputs(cuda::declarations(std::get<cuda::Calibration>(ran), "today").c_str(), stdout);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string first = words[1];
  std::stringstream text;
  text << std::ifstream(first).rdbuf();
  auto opened = open_wire();
  if (const auto* why = std::get_if<std::string>(&opened)) {
    std::printf("%s\n", why->c_str());
    return 1;
  }
  const auto wire = std::get<std::unique_ptr<Wire>>(std::move(opened));
  if (first == "calibrate") return calibrate(*wire);
  return run(*wire, text.str(), count > 2 ? words[2] : "", count > 3 ? std::atoi(words[3]) : -1,
             count > 4 ? std::atoi(words[4]) : -1);
}
