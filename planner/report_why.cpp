// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lang/units.hpp"
#include "planner/explain.hpp"
#include "planner/report_parts.hpp"
#include "planner/report_plan_parts.hpp"
#include "planner/time_defaults.hpp"

namespace plimsoll::report {
namespace {

constexpr std::size_t kItems = 6;    ///< of the peak
constexpr std::size_t kMoments = 2;  ///< beside the peak
constexpr std::size_t kMost = 3;     ///< causes and categories of a difference

/// "pipeline bubble +0.9 s, tensor-parallel traffic −0.3 s": the largest first.
std::string time_items(const Priced& own, const Priced& other) {
  std::vector<std::pair<double, const char*>> all;
  for (const Cause& cause : kCauses)
    all.emplace_back(other.time.*cause.seconds - own.time.*cause.seconds, cause.name);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::abs(a.first) > std::abs(b.first);
  });
  std::string out;
  for (std::size_t i = 0; i < kMost; ++i) {
    if (std::abs(all[i].first) < seconds(own) * 1e-3) break;
    out += fmt::format("{}{} {}{}", out.empty() ? "" : ", ", all[i].second,
                       all[i].first < 0 ? "−" : "+", duration(std::abs(all[i].first)));
  }
  return out;
}

/// "activations +4.10 GiB, gradients −1.00 GiB": likewise of the peaks.
std::string memory_items(const Rival& own, const Rival& other) {
  std::vector<std::pair<Int128, Category>> all;
  for (std::size_t c = 0; c < kCategoryCount; ++c)
    all.emplace_back(other.categories[c] - own.categories[c], static_cast<Category>(c));
  const auto size = [](Int128 v) { return v < 0 ? -v : v; };
  std::stable_sort(all.begin(), all.end(),
                   [&](const auto& a, const auto& b) { return size(a.first) > size(b.first); });
  std::string out;
  for (std::size_t i = 0; i < kMost; ++i) {
    if (size(all[i].first) * 100 < own.priced.peak_bytes) break;
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", label(all[i].second),
                       signed_bytes(all[i].first));
  }
  return out;
}

void add_rival(Table& table, const Rival& own, const Rival& other) {
  const double more = seconds(other.priced) / seconds(own.priced) - 1;
  const Int128 over = other.priced.peak_bytes - other.priced.hbm_bytes;
  table.add(
      {duration(seconds(other.priced)),
       fmt::format("{:+.1f} %{}", more * 100, is_tie(own.priced, other.priced) ? ", a tie" : ""),
       human_bytes(other.priced.peak_bytes),
       over > 0 ? human_bytes(over) + " over" : human_bytes(-over) + " left"});
  table.add_note(0, "  " + other.layout);
  const std::string time = time_items(own.priced, other.priced), memory = memory_items(own, other);
  std::string note = time;
  if (!memory.empty()) note += (note.empty() ? "" : "; ") + memory;
  if (!note.empty()) table.add_note(0, "  " + note);
}

Table rival_table() {
  Table table({{Table::Align::right}, {}, {Table::Align::right}, {}});
  table.add({"step", "to this one", "peak", ""});
  return table;
}

}  // namespace

std::string binds_text(const Heading& heading, const Bill& bill, const Style& style) {
  const StageBill& stage = peak_stage(bill);
  std::string out = "What binds\n";
  out += "  " + paragraph(style,
                          fmt::format("{}{}: {} of {}", stage_heading(heading, bill, stage),
                                      stage.peak_moment.empty() ? "" : ", at " + stage.peak_moment,
                                      human_bytes(stage.peak_bytes), human_bytes(bill.hbm_bytes)),
                          4);
  std::vector<const BillLine*> lines;
  for (const BillLine& line : stage.lines)
    if (line.bytes > 0) lines.push_back(&line);
  std::stable_sort(lines.begin(), lines.end(),
                   [](const BillLine* a, const BillLine* b) { return a->bytes > b->bytes; });
  Table table({{Table::Align::right}, {Table::Align::right}, {}, {}});
  for (std::size_t i = 0; i < std::min(lines.size(), kItems); ++i)
    table.add({human_bytes(lines[i]->bytes),
               percent(static_cast<double>(lines[i]->bytes), static_cast<double>(stage.peak_bytes)),
               lines[i]->name, std::string(label(lines[i]->category))});
  out += table.str(style, 4);
  for (std::size_t i = 1; i < stage.moments.size() && i <= kMoments; ++i)
    out += fmt::format("    {} {} at {}\n",
                       i == 1 ? "next: " : "then: ", human_bytes(stage.moments[i].second),
                       stage.moments[i].first);
  return out;
}

std::string rivals_text(const Why& why, const Style& style) {
  if (!why.own) return "";
  std::string out;
  if (!why.others.empty()) {
    const bool best =
        why.others.front().priced.time.nanoseconds >= why.own->priced.time.nanoseconds;
    out += fmt::format("The planner's {}, beside this one at {}\n", best ? "next" : "best",
                       duration(seconds(why.own->priced)));
    Table table = rival_table();
    for (const Rival& other : why.others) add_rival(table, *why.own, other);
    out += table.str(style, 2);
    out += paragraph(
        style,
        fmt::format("  Less than {:.0f} % of a step is a tie.{}", time_constants::kTie * 100,
                    why.proven ? "" : " The search for them ended before its end."),
        2);
  }
  if (!why.beyond.empty()) {
    out += std::string(out.empty() ? "" : "\n") + "Faster, if there were twice the memory\n";
    Table table = rival_table();
    for (const Rival& other : why.beyond) add_rival(table, *why.own, other);
    out += table.str(style, 2);
  }
  return out;
}

std::string growth_text(const std::vector<Growth>& growth, const Style& style) {
  const bool any =
      std::any_of(growth.begin(), growth.end(), [](const Growth& g) { return g.largest > 0; });
  if (!any) return "";
  std::string out = "How far it could grow, all else as it is\n";
  Table table({{}, {Table::Align::right}, {Table::Align::right}, {Table::Align::left, 40}});
  table.add({"", "now", "largest", ""});
  for (const Growth& g : growth) {
    std::string note;
    if (g.endless)
      note = g.knob == "mbs" ? "the whole batch of a replica" : "memory does not bound it";
    else if (g.next > 0)
      note = fmt::format("{} would take {}", grouped(g.next), human_bytes(g.next_bytes));
    table.add({g.knob == "seq"   ? "tokens a sequence"
               : g.knob == "mbs" ? "micro-batch"
                                 : "sequences a step",
               grouped(g.now),
               g.largest == 0                 ? "none fits"
               : g.endless && g.knob != "mbs" ? "any"
                                              : grouped(g.largest),
               note});
  }
  return out + table.str(style, 2);
}

}  // namespace plimsoll::report
