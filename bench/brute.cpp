// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// What `plan` would cost without its bounds: every outer layout of a job's space, one after the
// other, each with the dynamic programme over its stages. For `./dev bench plan`; see README.md.
//
// usage: plimsoll_brute FILE SECONDS      ends after so many CPU seconds, and says so

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

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

double process_microseconds() {
  timespec at{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
  return static_cast<double>(at.tv_sec) * 1e6 + static_cast<double>(at.tv_nsec) * 1e-3;
}

/// Microseconds of the CPU for a candidate that a search looks at and does not solve: the outer
/// layout is made, the conditions on it are judged, its step time and its score are bounded.
double looked_at(const Problem& problem, Diagnostics& diags) {
  Pricer pricer(problem);
  Judge judge(problem, pricer, diags);
  Space space(problem, judge);
  Clock clock(problem);
  std::int64_t candidates = 0;
  const double from = process_microseconds();
  std::vector<Point> cores;
  space.cores([&](const Layout& core, Env&) { cores.push_back(space.point(core)); });
  for (const Point& core : cores)
    space.leaves(core, [&](const Layout& leaf, Env& env) {
      const std::int64_t ns = clock.lower_bound(leaf);
      if (judge.bound(env, ns, clock.throughput(leaf, ns), judge.unmet_percent(env)) >= 0)
        ++candidates;
    });
  return (process_microseconds() - from) /
         static_cast<double>(std::max<std::int64_t>(candidates, 1));
}

constexpr std::size_t kAlone = 32;  ///< layouts that are priced alone

/// Microseconds of the CPU for peak and step time of one layout, of which nothing was priced
/// before: the median over some that the space holds. The job is compiled.
double alone(const Problem& problem, Diagnostics& diags) {
  Pricer pricer(problem);
  Judge judge(problem, pricer, diags);
  Space space(problem, judge);
  std::vector<Layout> all;
  space.cores([&](const Layout& core, Env&) {
    Layout l = core;
    l.shard = l.dp * l.cp;
    resolve(problem, l);
    if (why_impossible(problem, l).empty()) all.push_back(l);
  });
  std::vector<double> times;
  for (std::size_t i = 0; i < std::min(kAlone, all.size()); ++i) {
    const Layout& l = all[i * all.size() / std::min(kAlone, all.size())];
    Pricer fresh(problem);
    Clock clock(problem);
    const double from = process_microseconds();
    const Pricer::Peak peak = fresh.peak(l);
    const StepTime time = clock.step(l);
    if (peak.bytes > 0 && time.nanoseconds > 0) times.push_back(process_microseconds() - from);
  }
  std::sort(times.begin(), times.end());
  return times.empty() ? 0 : times[times.size() / 2];
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
  const double alone_us = alone(*problem, diags), look_us = looked_at(*problem, diags);
  const double before = cpu_seconds();
  const Tried tried = try_all(*problem, limit, diags);
  fmt::print(
      "{{\"outer\": {}, \"fit\": {}, \"step_ns\": {}, \"whole\": {}, \"cpu\": {:.3f}, "
      "\"alone_us\": {:.1f}, \"look_us\": {:.3f}}}\n",
      tried.outer, tried.fit, tried.best ? std::to_string(*tried.best) : "null", tried.whole,
      cpu_seconds() - before, alone_us, look_us);
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
