// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// What `plan` would cost without its bounds: every outer layout of a job's space, one after the
// other, each with the dynamic programme over its stages. For `./dev bench plan`; see README.md.
//
// usage: plimsoll_brute FILE SECONDS      ends after so many CPU seconds, and says so

#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <optional>

#include "lang/diagnostics.hpp"
#include "lang/module.hpp"
#include "planner/enumerate.hpp"
#include "planner/inner.hpp"
#include "planner/judge.hpp"
#include "planner/peak.hpp"
#include "planner/space.hpp"
#include "planner/time.hpp"

namespace plimsoll {
namespace {

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Tried {
  std::int64_t outer = 0, fit = 0;
  std::optional<std::int64_t> best;  ///< ns
  bool whole = true;                 ///< not ended by the time
};

Tried try_all(const Problem& problem, double limit, Diagnostics& diags) {
  Pricer pricer(problem);
  Judge judge(problem, pricer, diags);
  Space space(problem, judge);
  Clock clock(problem);
  Inner inner(problem, clock);
  Tried out;
  std::vector<Point> cores;
  space.cores([&](const Layout& core, Env&) { cores.push_back(space.point(core)); });
  for (const Point& core : cores) {
    space.leaves(core, [&](const Layout& leaf, Env&) {
      if (!out.whole || (out.outer % 64 == 0 && cpu_seconds() > limit)) {
        out.whole = false;
        return;
      }
      ++out.outer;
      inner.set(leaf);
      const std::optional<InnerSolution> found = solve(inner, problem);
      if (!found) return;
      ++out.fit;
      if (!out.best || found->nanoseconds < *out.best) out.best = found->nanoseconds;
    });
    if (!out.whole) break;
  }
  return out;
}

int run(const char* path, double limit) {
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Diagnostics diags;
  const Module module = compile(path, std::move(text), diags);
  std::optional<Problem> problem;
  if (!diags.has_errors())
    if (const Job* job = find_job(module, "", diags)) problem = make_problem(module, *job, diags);
  if (!problem || diags.has_errors()) {
    fmt::print(stderr, "{}", diags.render(module.sources(), false));
    return 1;
  }
  const Tried tried = try_all(*problem, limit, diags);
  fmt::print("{{\"outer\": {}, \"fit\": {}, \"step_ns\": {}, \"whole\": {}, \"cpu\": {:.3f}}}\n",
             tried.outer, tried.fit, tried.best ? std::to_string(*tried.best) : "null", tried.whole,
             cpu_seconds());
  return 0;
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: plimsoll_brute FILE SECONDS\n", stderr);
    return 1;
  }
  try {
    return plimsoll::run(argv[1], std::atof(argv[2]));
  } catch (const std::exception& e) {
    fmt::print(stderr, "plimsoll_brute: {}\n", e.what());
    return 3;
  }
}
