// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/report_plan_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lang/units.hpp"
#include "planner/report_plan.hpp"
#include "planner/time_defaults.hpp"

namespace plimsoll::report {
namespace {

std::string list_text(const std::vector<std::int64_t>& list) {
  std::string out = "[";
  for (const std::int64_t v : list) out += fmt::format("{}{}", out.size() > 1 ? ", " : "", v);
  return out + "]";
}

/// What a runner-up spends more on than the best: the largest difference.
std::string lost_on(const Priced& best, const Priced& other) {
  const Cause* most = nullptr;
  double difference = 0;
  for (const Cause& cause : kCauses) {
    const double d = other.time.*cause.seconds - best.time.*cause.seconds;
    if (d > difference) difference = d, most = &cause;
  }
  return most == nullptr ? "" : most->name;
}

}  // namespace

double seconds(const Priced& p) { return static_cast<double>(p.time.nanoseconds) * 1e-9; }

std::string duration(double s) {
  if (s >= 100) return fmt::format("{:.1f} s", s);
  if (s >= 1) return fmt::format("{:.3f} s", s);
  if (s >= 1e-3) return fmt::format("{:.1f} ms", s * 1e3);
  return fmt::format("{:.1f} us", s * 1e6);
}

std::string whole(double v) { return grouped(static_cast<Int128>(std::llround(v))); }

std::string days_text(double days) {
  return days < 100 ? fmt::format("{:.1f}", days) : whole(days);
}

std::string open_fields(const Problem& problem, const Layout& l) {
  std::string out;
  const auto open = [&](const char* name, std::int64_t value) {
    const auto it = problem.job->layout.find(name);
    if (it != problem.job->layout.end() && it->second.values.size() > 1)
      out += fmt::format(
          "{}{} = {}", out.empty() ? "" : "  ", name,
          value % 1024 == 0 ? fmt::format("{}Ki", value / 1024) : std::to_string(value));
  };
  open("seq", l.seq);
  open("batch", l.batch);
  if (problem.cluster->nodes_are_free())
    out += fmt::format("{}nodes = {}", out.empty() ? "" : "  ", l.nodes);
  return out;
}

std::string memory(const Priced& p) {
  const Int128 left = p.hbm_bytes - p.peak_bytes;
  if (left < 0)
    return fmt::format("{} of {} ({} over)", human_bytes(p.peak_bytes), human_bytes(p.hbm_bytes),
                       human_bytes(-left));
  return fmt::format("{} of {} ({} left, {})", human_bytes(p.peak_bytes), human_bytes(p.hbm_bytes),
                     human_bytes(left),
                     percent(static_cast<double>(left), static_cast<double>(p.hbm_bytes)));
}

bool is_tie(const Priced& best, const Priced& other) {
  return std::abs(seconds(other) / seconds(best) - 1) < time_constants::kTie;
}

std::string lost_time(const Priced& best, const Priced& other) {
  const double more = seconds(other) / seconds(best) - 1;
  const std::string on = more <= 0 ? "" : lost_on(best, other);
  return fmt::format("{:+.1f} %{}{}", more * 100, is_tie(best, other) ? ", a tie" : "",
                     on.empty() ? "" : ": " + on);
}

std::string lost_value(const PlanResult& r, const Priced& best, const Priced& other) {
  const double a = best.value.to_double(), b = other.value.to_double();
  if (best.value == other.value) return fmt::format("same {}", r.objective);
  return a == 0 ? fmt::format("{} {}", r.objective, other.value.str())
                : fmt::format("{} {:+.1f} %", r.objective, (b / a - 1) * 100);
}

std::string plan_title(const Problem& problem, const Heading& heading, const Style& style) {
  return paragraph(
      style,
      fmt::format("{} · {}, {} parameters · {} · {}", heading.job, heading.model,
                  grouped(problem.program->parameter_count()), heading.framework, heading.cluster),
      2);
}

std::string largest(const StageBill& stage, std::size_t how_many) {
  std::vector<std::pair<Int128, std::string>> all;
  for (std::size_t c = 0; c < kCategoryCount; ++c)
    if (stage.categories[c] > 0)
      all.emplace_back(stage.categories[c], std::string(name(static_cast<Category>(c))));
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string out;
  for (std::size_t i = 0; i < all.size() && i < how_many; ++i)
    out += fmt::format("{}{} {}", i == 0 ? "" : ", ", all[i].second, human_bytes(all[i].first));
  return out;
}

std::string largest_items(const StageBill& stage, std::size_t how_many) {
  std::vector<const BillLine*> lines;
  for (const BillLine& line : stage.lines)
    if (line.bytes > 0) lines.push_back(&line);
  std::stable_sort(lines.begin(), lines.end(),
                   [](const BillLine* a, const BillLine* b) { return a->bytes > b->bytes; });
  std::string out;
  for (std::size_t i = 0; i < lines.size() && i < how_many; ++i)
    out += fmt::format("{}{} {}", i == 0 ? "" : ", ", lines[i]->name, human_bytes(lines[i]->bytes));
  return out;
}

const StageBill& peak_stage(const Bill& bill) {
  return bill.stages[static_cast<std::size_t>(bill.peak_stage)];
}

std::string layout_line(const Problem& problem, const Layout& l, const std::string& name) {
  std::string out = "layout " + name + " {";
  const auto add = [&](std::string_view what, const std::string& value) {
    out += fmt::format(" {} = {} ", what, value);
  };
  const auto number = [&](std::string_view what, std::int64_t value, std::int64_t unnamed) {
    if (value != unnamed) add(what, std::to_string(value));
  };
  const auto framework_says = [&](Var v) {
    const auto& defaults = problem.inventory.defaults;
    return std::any_of(defaults.begin(), defaults.end(),
                       [&](const auto& d) { return d.first == v; });
  };
  number("tp", l.tp, problem.job->serve ? 0 : 1);
  number("pp", l.pp, 1);
  number("vpp", l.vpp, 1);
  number("cp", l.cp, 1);
  number("ep", l.ep, 1);
  number("etp", l.etp, 1);
  const bool serve = problem.job->serve;
  if (!serve) {
    number("zero", l.zero, framework_says(Var::zero) ? -1 : 0);
    number("shard", l.shard, l.dp * l.cp);
    add("mbs", std::to_string(l.mbs));
    const auto& modes = problem.inventory.recompute_modes;
    if (l.recompute != 0 || framework_says(Var::recompute))
      add("recompute", l.recompute < modes.size() ? modes[l.recompute] : "none");
    if (!l.recompute_layers.empty() && l.recompute_layers != l.stage_layers)
      add("recompute_layers", list_text(l.recompute_layers));
  }
  if (l.stage_layers != default_stage_layers(problem.program->layer_count, l.pp))
    add("stage_layers", list_text(l.stage_layers));
  if (!l.stage_pool.empty()) {
    std::string pools = "[";
    for (const std::uint32_t p : l.stage_pool)
      pools += (pools.size() > 1 ? ", " : "") + problem.cluster->pools[p].name;
    add("stage_pool", pools + "]");
  }
  if (!serve && (l.tp > 1 || l.sp)) add("sp", l.sp ? "true" : "false");
  const Schedule unnamed = l.vpp > 1 ? Schedule::interleaved : Schedule::one_f_one_b;
  if (!serve && l.schedule != unnamed) add("schedule", std::string(plimsoll::name(l.schedule)));
  if (l.offload.sign() != 0) add("offload", l.offload.str());
  return out + (out.back() == '{' ? " }" : "}");
}

}  // namespace plimsoll::report
