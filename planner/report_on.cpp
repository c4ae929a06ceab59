// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lang/units.hpp"
#include "planner/report_plan.hpp"
#include "planner/report_plan_parts.hpp"
#include "planner/time_defaults.hpp"

namespace plimsoll::report {
namespace {

/// Steps a second, or sequences: what more of is better.
double merit(const OnGpu& row, bool serve) {
  return serve ? static_cast<double>(row.best->layout.sequences) : 1 / seconds(*row.best);
}

const OnGpu* best_of(const std::vector<OnGpu>& rows, bool serve) {
  const OnGpu* best = nullptr;
  for (const OnGpu& row : rows)
    if (row.best && (best == nullptr || merit(row, serve) > merit(*best, serve))) best = &row;
  return best;
}

/// Of several whose cost is known.
const OnGpu* cheapest_of(const std::vector<OnGpu>& rows) {
  const OnGpu* best = nullptr;
  int priced = 0;
  for (const OnGpu& row : rows) {
    if (!row.best || !row.best->cost) continue;
    ++priced;
    if (best == nullptr || *row.best->cost < *best->best->cost) best = &row;
  }
  return priced > 1 ? best : nullptr;
}

/// "h200, 60.100 s a step", with what it ties with.
std::string answer(const std::vector<OnGpu>& rows, bool serve) {
  const OnGpu* best = best_of(rows, serve);
  if (best == nullptr) return "nothing fits on any of these GPUs";
  std::string out =
      serve
          ? fmt::format("most sequences: {}, {}", best->gpu, grouped(best->best->layout.sequences))
          : fmt::format("fastest: {}, {} a step", best->gpu, duration(seconds(*best->best)));
  for (const OnGpu& row : rows)
    if (!serve && row.best && &row != best && is_tie(*best->best, *row.best))
      out += fmt::format("; a tie with {}", row.gpu);
  if (const OnGpu* cheapest = cheapest_of(rows))
    out += fmt::format("; cheapest: {}, {} USD", cheapest->gpu,
                       whole(cheapest->best->cost->to_double()));
  return out;
}

std::string why_not(const OnGpu& row) {
  if (!row.why.empty()) return "not planned: " + row.why;
  if (!row.tightest) return row.status == PlanResult::infeasible ? "nothing fits" : "nothing found";
  const Priced& t = *row.tightest;
  if (t.peak_bytes <= t.hbm_bytes) return "no layout that fits meets every requirement";
  return fmt::format("nothing fits: the nearest layout needs {} of {} ({} over): {}",
                     human_bytes(t.peak_bytes), human_bytes(t.hbm_bytes),
                     human_bytes(t.peak_bytes - t.hbm_bytes), row.layout);
}

Table table_of(const Problem& problem, const std::vector<OnGpu>& rows) {
  const bool serve = problem.job->serve;
  const OnGpu& own = rows.front();
  const bool runs = !serve && !problem.job->tokens.is_zero();
  Table table({{},
               {Table::Align::right},
               {Table::Align::right},
               {Table::Align::right},
               {Table::Align::right},
               {Table::Align::right},
               {Table::Align::right}});
  table.add({"GPU", serve ? "sequences" : "step", own.best ? "to " + own.gpu : "", "peak", "left",
             runs ? "days" : "", runs ? "USD" : ""});
  for (const OnGpu& row : rows) {
    if (!row.best) {
      table.add({row.gpu, "", "", "", "", "", ""});
      table.add_note(1, why_not(row));
      continue;
    }
    const Priced& best = *row.best;
    std::string to_own;
    if (own.best && !row.own)
      to_own = fmt::format(
          "{:+.1f} %",
          (serve ? merit(row, true) / merit(own, true) : seconds(best) / seconds(*own.best)) * 100 -
              100);
    table.add({row.gpu, serve ? grouped(best.layout.sequences) : duration(seconds(best)), to_own,
               human_bytes(best.peak_bytes), percent(best.headroom(), 1),
               best.days ? days_text(best.days->to_double()) : "",
               best.cost ? whole(best.cost->to_double())
               : runs    ? "no price"
                         : ""});
    std::string note = row.layout;
    if (const std::string open = open_fields(problem, best.layout); !open.empty())
      note += " · " + open;
    if (row.status == PlanResult::feasible) note += ", the best so far";
    for (const std::string& name : row.unmet) note += ", not " + name;
    table.add_note(1, note);
  }
  return table;
}

/// Fields of the cluster that hold whatever its GPU is: "nic, price".
std::string held(const Cluster& cluster) {
  std::string out;
  for (const auto& [name, quantity] : cluster.numbers)
    if (cluster.pools.front().gpu.numbers.contains(name)) out += (out.empty() ? "" : ", ") + name;
  return out;
}

}  // namespace

std::string on_text(const Problem& problem, const PlanResult& result,
                    const std::vector<OnGpu>& rows, const Style& style) {
  const bool serve = problem.job->serve;
  std::string out = paint(style, Paint::bold, paragraph(style, answer(rows, serve), 2)) + "\n";
  const Layout shown = result.best       ? result.best->layout
                       : result.tightest ? result.tightest->layout
                                         : Layout{};
  if (result.best || result.tightest)
    out += plan_title(problem, heading(problem, shown), style) + "\n";
  out += table_of(problem, rows).str(style, 2) + "\n";
  if (!serve)
    out += paragraph(style,
                     fmt::format("Steps that differ by less than {:.0f} % are ties: the time model "
                                 "tells no finer.",
                                 time_constants::kTie * 100),
                     2);
  if (const std::string fields = held(*problem.cluster); !fields.empty())
    out += paragraph(
        style,
        fmt::format("Cluster '{}' sets {} itself, on whatever GPU.", problem.cluster->name, fields),
        2);
  const bool unpriced = std::any_of(rows.begin(), rows.end(),
                                    [](const OnGpu& row) { return row.best && !row.priced; });
  if (!serve && !problem.job->tokens.is_zero() && unpriced)
    out += paragraph(style,
                     "GPUs of the prelude have no price: declare one that has, such as gpu mine = "
                     "h200 { price = 2.5 USD/h }, and name it.",
                     2);
  return finish(style, out);
}

}  // namespace plimsoll::report
