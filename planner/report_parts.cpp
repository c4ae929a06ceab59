// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/report_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "lang/diagnostics.hpp"
#include "lang/units.hpp"

namespace plimsoll::report {
namespace {

/// A column of a bar, in halves.
struct Bar {
  std::size_t cells;
  std::size_t line;  ///< the column that the GPU's memory ends at
  Int128 scale;      ///< bytes that `cells` columns stand for

  /// Half columns up to \a bytes, rounded.
  std::size_t halves(Int128 bytes) const {
    const double share = static_cast<double>(bytes) / static_cast<double>(scale);
    return static_cast<std::size_t>(share * static_cast<double>(2 * cells) + 0.5);
  }

  std::string draw(Int128 from, Int128 to, const Style& style) const {
    const std::size_t begin = halves(from), end = std::max(halves(to), begin);
    std::string out, over;
    for (std::size_t cell = 0; cell <= cells; ++cell) {
      const bool left = begin <= 2 * cell && 2 * cell < end;
      const bool right = begin <= 2 * cell + 1 && 2 * cell + 1 < end;
      std::string_view mark = cell == line ? "│" : " ";
      if (left || right) mark = left ? (right ? "█" : "▌") : "▐";
      // Too little to see is still there.
      else if (begin == end && to > from && std::min(begin / 2, cells) == cell)
        mark = "▏";
      (cell < line ? out : over) += mark;
    }
    return out + paint(style, Paint::red, over);
  }
};

struct Group {
  std::string_view heading;
  std::vector<Category> categories;
};

const std::vector<Group>& groups(bool wide) {
  static const std::vector<Group> kFine = {
      {"weights", {Category::weights}},
      {"gradients", {Category::gradients}},
      {"optimizer", {Category::master, Category::moments}},
      {"activations", {Category::activations}},
      {"KV cache", {Category::kv_cache}},
      {"buffers", {Category::buffers, Category::workspace}},
      {"rest", {Category::overhead, Category::fragmentation}},
  };
  static const std::vector<Group> kCoarse = {
      {"states", {Category::weights, Category::gradients, Category::master, Category::moments}},
      {"activations", {Category::activations, Category::kv_cache}},
      {"rest",
       {Category::buffers, Category::workspace, Category::overhead, Category::fragmentation}},
  };
  return wide ? kFine : kCoarse;
}

Int128 sum(const StageBill& stage, const Group& group) {
  Int128 bytes = 0;
  for (const Category category : group.categories)
    bytes += stage.categories[static_cast<std::size_t>(category)];
  return bytes;
}

bool alike(const StageBill& a, const StageBill& b) {
  return a.layers == b.layers && a.in_flight == b.in_flight && a.categories == b.categories &&
         a.peak_bytes == b.peak_bytes;
}

/// First and last index of each run of equal stages.
std::vector<std::pair<std::size_t, std::size_t>> runs(const Bill& bill) {
  std::vector<std::pair<std::size_t, std::size_t>> out;
  for (std::size_t i = 0; i < bill.stages.size(); ++i) {
    if (!out.empty() && alike(bill.stages[out.back().second], bill.stages[i]))
      out.back().second = i;
    else
      out.emplace_back(i, i);
  }
  return out;
}

}  // namespace

std::string_view label(Category category) {
  if (category == Category::kv_cache) return "KV cache";
  return name(category);
}

std::string count_of(Int128 count, std::string_view noun) {
  return fmt::format("{} {}{}", grouped(count), noun,
                     count == 1 ? "" : (noun == kMicroBatch ? "es" : "s"));
}

std::string signed_bytes(Int128 bytes) {
  if (bytes == 0) return "0 B";
  return (bytes < 0 ? "−" : "+") + human_bytes(bytes < 0 ? -bytes : bytes);
}

std::string title(const Heading& heading, const Bill& bill, const Style& style) {
  std::string out = paragraph(
      style,
      fmt::format("{} · {}, {} parameters", heading.job, heading.model, grouped(bill.params)), 2);
  out += paragraph(style, fmt::format("{} on {}", heading.framework, heading.cluster), 2);
  std::string layout = heading.layout;
  if (heading.imbalance != 1)
    layout += fmt::format("{}routed tokens {:.3g} of balanced", layout.empty() ? "" : " · ",
                          heading.imbalance);
  if (!layout.empty()) out += paragraph(style, layout, 2);
  return out;
}

const StageBill& stage_of(const Bill& bill, std::int64_t stage) {
  for (const StageBill& candidate : bill.stages)
    if (candidate.stage == stage) return candidate;
  throw InternalError(fmt::format("the bill has no stage {}", stage));
}

std::string stage_heading(const Heading& heading, const Bill& bill, const StageBill& stage) {
  std::string out = bill.stages.size() == 1 ? "each GPU" : fmt::format("stage {}", stage.stage);
  out += fmt::format(", {}", count_of(stage.layers, "layer"));
  if (!heading.serve) out += fmt::format(", {} in flight", count_of(stage.in_flight, kMicroBatch));
  if (stage.stage != bill.peak_stage && !stage.peak_moment.empty())
    out += fmt::format(", at {}", stage.peak_moment);
  return out;
}

std::vector<const BillLine*> lines_of(const StageBill& stage, Category category) {
  std::vector<const BillLine*> lines;
  for (const BillLine& line : stage.lines)
    if (line.category == category && line.bytes != 0) lines.push_back(&line);
  std::stable_sort(lines.begin(), lines.end(),
                   [](const BillLine* a, const BillLine* b) { return a->bytes > b->bytes; });
  return lines;
}

std::string bars(const StageBill& stage, Int128 hbm_bytes, const Style& style) {
  constexpr std::size_t kLabel = 15, kValue = 11, kShare = 10;
  const Int128 scale = std::max<Int128>({hbm_bytes, stage.peak_bytes, 1});
  Bar bar{style.width - kLabel - kValue - kShare - 2, 0, scale};
  bar.line = bar.halves(hbm_bytes) / 2;
  const auto row = [&](std::string_view text, Int128 from, Int128 to) {
    return fmt::format("  {:<13}{}{:>11}{:>10}\n", text, bar.draw(from, to, style),
                       human_bytes(to - from),
                       percent(static_cast<double>(to - from), static_cast<double>(hbm_bytes)));
  };
  std::string mark = "HBM " + human_bytes(hbm_bytes) + " ▼";
  const std::size_t at = kLabel + bar.line + 1;
  std::string out = std::string(at - std::min(at, columns(mark)), ' ') + mark + '\n';
  Int128 so_far = 0;
  for (std::size_t i = 0; i < kCategoryCount; ++i) {
    const Int128 bytes = stage.categories[i];
    if (bytes <= 0) continue;
    out += row(label(static_cast<Category>(i)), so_far, so_far + bytes);
    so_far += bytes;
  }
  return out + row("peak", 0, stage.peak_bytes);
}

std::string stage_table(const Heading& heading, const Bill& bill, const Style& style) {
  const auto lines = runs(bill);
  const auto make = [&](bool wide) {
    std::vector<Group> shown;
    for (const Group& group : groups(wide)) {
      const bool any = std::any_of(bill.stages.begin(), bill.stages.end(),
                                   [&](const StageBill& stage) { return sum(stage, group) != 0; });
      if (any) shown.push_back(group);
    }
    Table table(std::vector<Table::Column>(shown.size() + 4, {Table::Align::right}));
    std::vector<std::string> cells = {"", "layers", heading.serve ? "" : "in flight"};
    for (const Group& group : shown) cells.emplace_back(group.heading);
    cells.emplace_back("peak");
    table.add(cells);
    for (const auto& [from, to] : lines) {
      const StageBill& stage = bill.stages[from];
      cells = {from == to ? fmt::format("stage {}", from) : fmt::format("stages {}–{}", from, to),
               grouped(stage.layers), heading.serve ? "" : grouped(stage.in_flight)};
      for (const Group& group : shown) cells.push_back(human_bytes(sum(stage, group)));
      cells.push_back(human_bytes(stage.peak_bytes));
      table.add(cells);
    }
    return table;
  };
  const Table fine = make(true);
  return fine.width() + 2 <= style.width ? fine.str(style, 2) : make(false).str(style, 2);
}

}  // namespace plimsoll::report
