// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <fmt/format.h>

#include "lang/units.hpp"
#include "planner/report_plan.hpp"
#include "planner/report_plan_parts.hpp"
#include "planner/time_defaults.hpp"

namespace plimsoll::report {

std::string pareto_text(const Problem& problem, const PlanResult& r, const Style& style) {
  const Priced& first = r.pareto.front();
  const Priced& last = r.pareto.back();
  const auto with = [](const Priced& p) {
    return fmt::format("{} a step with {} of the memory left", duration(seconds(p)),
                       percent(p.headroom(), 1));
  };
  std::string answer = "from " + with(first);
  answer += r.pareto.size() == 1 ? "; no other layout leaves much more"
                                 : fmt::format(" to {} with {}", duration(seconds(last)),
                                               percent(last.headroom(), 1));
  std::string out = paint(style, Paint::bold, paragraph(style, answer, 2)) + "\n";
  out += plan_title(problem, heading(problem, first.layout), style) + "\n";
  const std::size_t room = style.width > 66 ? style.width - 66 : 14;
  Table table({{Table::Align::right},
               {Table::Align::right},
               {Table::Align::right},
               {Table::Align::left, 26},
               {Table::Align::left, std::max<std::size_t>(room, 24)}});
  const bool by_time = r.objective == "step_time";
  table.add({"left", "peak", "step", "loses", "layout"});
  for (const Priced& p : r.pareto) {
    const bool itself = &p == &first;
    const std::string open = open_fields(problem, p.layout);
    table.add({percent(p.headroom(), 1), human_bytes(p.peak_bytes), duration(seconds(p)),
               itself    ? ""
               : by_time ? lost_time(first, p)
                         : lost_value(r, first, p),
               describe(problem, p.layout) + (open.empty() ? "" : " · " + open)});
  }
  out += table.str(style, 2) + "\n";
  out += paragraph(style,
                   fmt::format("Each is the best by {} that leaves at least the next tenth of the "
                               "memory; steps that differ by less than {:.0f} % are ties.",
                               r.objective, time_constants::kTie * 100),
                   2);
  if (r.status != PlanResult::optimal || !r.pareto_proven)
    out += paragraph(style, "A search ended before its end: a better layout may exist.", 2);
  return finish(style, out);
}

}  // namespace plimsoll::report
