// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "planner/domains.hpp"
#include "planner/judge.hpp"

namespace plimsoll {
namespace {

/// A variable that is changed alone: how it is written, and the values next to \a now.
struct Variable {
  std::string_view name;
  std::function<std::vector<std::int64_t>(std::int64_t now)> next;
  std::function<std::int64_t(const Layout&)> get;
  Knob knob;
};

std::vector<std::int64_t> doubled_or_halved(std::int64_t now) {
  std::vector<std::int64_t> out = {now * 2};
  if (now % 2 == 0) out.push_back(now / 2);
  return out;
}

std::vector<std::int64_t> halved(std::int64_t now) {
  if (now % 2 != 0) return {};
  return {now / 2};
}

std::vector<Variable> variables(const Problem& problem) {
  const auto modes = static_cast<std::int64_t>(problem.inventory.recompute_modes.size());
  std::vector<Variable> out = {
      {"tp", doubled_or_halved, [](const Layout& l) { return l.tp; }, Knob::tp},
      {"pp", doubled_or_halved, [](const Layout& l) { return l.pp; }, Knob::pp},
      {"cp", doubled_or_halved, [](const Layout& l) { return l.cp; }, Knob::cp},
  };
  const bool routed = std::any_of(problem.program->ops.begin(), problem.program->ops.end(),
                                  [](const Op& op) { return op.kind == OpKind::experts; });
  if (routed)
    out.push_back({"ep", doubled_or_halved, [](const Layout& l) { return l.ep; }, Knob::ep});
  out.push_back({"zero",
                 [](std::int64_t now) {
                   return now < 3 ? std::vector<std::int64_t>{now + 1}
                                  : std::vector<std::int64_t>{};
                 },
                 [](const Layout& l) { return std::int64_t{l.zero}; }, Knob::zero});
  out.push_back({"vpp", doubled_or_halved, [](const Layout& l) { return l.vpp; }, Knob::vpp});
  out.push_back({"shard", halved, [](const Layout& l) { return l.shard; }, Knob::shard});
  out.push_back({"mbs", doubled_or_halved, [](const Layout& l) { return l.mbs; }, Knob::mbs});
  out.push_back({"sp", [](std::int64_t now) { return std::vector<std::int64_t>{1 - now}; },
                 [](const Layout& l) { return std::int64_t{l.sp}; }, Knob::sp});
  out.push_back({"recompute",
                 [modes](std::int64_t now) {
                   std::vector<std::int64_t> others;
                   for (std::int64_t mode = 0; mode < modes; ++mode)
                     if (mode != now) others.push_back(mode);
                   return others;
                 },
                 [](const Layout& l) { return static_cast<std::int64_t>(l.recompute); },
                 Knob::recompute});
  return out;
}

std::string value_text(const Problem& problem, Knob knob, std::int64_t value) {
  if (knob == Knob::recompute)
    return problem.inventory.recompute_modes[static_cast<std::size_t>(value)];
  if (knob == Knob::sp) return value != 0 ? "true" : "false";
  return std::to_string(value);
}

/// \a from with one variable changed and what follows from it derived again; nullopt where that
/// cannot be.
std::optional<Layout> stepped(const Problem& problem, const Layout& from, Knob knob,
                              std::int64_t value) {
  Layout layout = from;
  set(layout, knob, value);
  layout.dp = 0;
  layout.microbatches = 0;
  // A shard group of one's own stays where it still can; all of dp * cp follows them.
  if (knob != Knob::shard && from.shard == from.dp * from.cp) layout.shard = 0;
  if (knob == Knob::pp || knob == Knob::vpp) {
    layout.stage_layers.clear();
    layout.recompute_layers.clear();
  }
  if (knob == Knob::pp) layout.stage_pool.clear();
  if (knob == Knob::vpp)
    layout.schedule = value > 1 ? Schedule::interleaved : Schedule::one_f_one_b;
  if (knob == Knob::recompute) layout.recompute_layers.clear();
  if (layout.tp == 1 && knob == Knob::tp) layout.sp = false;
  resolve(problem, layout);
  if (!why_impossible(problem, layout).empty()) return std::nullopt;
  return layout;
}

}  // namespace

std::vector<SingleStep> single_steps(const Problem& problem, const Layout& layout) {
  // A server fills its share of the memory whatever its layout is.
  if (problem.job->serve) return {};
  const Domains domains(problem);
  Diagnostics diags;  // compile() has reported what is wrong with conditions
  Pricer pricer(problem);
  Judge judge(problem, pricer, diags);
  Diagnostics said;  // without rates there are no times
  const bool timed = check_rates(*problem.module, *problem.job, said);
  Clock clock(problem);
  std::vector<SingleStep> out;
  for (const Variable& variable : variables(problem)) {
    const std::int64_t now = variable.get(layout);
    for (const std::int64_t value : variable.next(now)) {
      auto next = stepped(problem, layout, variable.knob, value);
      if (!next) continue;
      SingleStep step;
      step.change =
          fmt::format("{} {} → {}", variable.name, value_text(problem, variable.knob, now),
                      value_text(problem, variable.knob, value));
      Env env;
      set_variables(problem, *next, domains.gpus(*next), env);
      step.excluded =
          domains.disagrees(*next, env).has_value() || !judge.admits(env, ~derived_variables(), 0);
      const Pricer::Peak peak = pricer.exact(*next);
      step.peak_bytes = peak.bytes;
      step.hbm_bytes = peak.bytes + peak.headroom_bytes;
      step.peak_stage = peak.stage;
      step.fits = peak.fits;
      if (timed) step.nanoseconds = clock.step(*next).nanoseconds;
      step.layout = std::move(*next);
      out.push_back(std::move(step));
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const SingleStep& a, const SingleStep& b) {
    return a.peak_bytes < b.peak_bytes;
  });
  return out;
}

}  // namespace plimsoll
