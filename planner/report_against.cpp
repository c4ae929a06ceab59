// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "lang/diagnostics.hpp"
#include "lang/units.hpp"
#include "planner/report_parts.hpp"

namespace plimsoll::report {
namespace {

/// Item differences that are listed.
constexpr std::size_t kLargest = 12;

struct Pair {
  std::size_t order;  ///< of the first bill, then of the second
  Int128 here = 0, there = 0;
};
using ItemKey = std::pair<Category, std::string>;

/// Items of both stages, matched by category and name.
std::vector<std::pair<ItemKey, Pair>> matched(const StageBill& here, const StageBill& there) {
  std::map<ItemKey, Pair> pairs;
  for (const BillLine& line : here.lines)
    pairs.try_emplace({line.category, line.name}, Pair{pairs.size()}).first->second.here +=
        line.bytes;
  for (const BillLine& line : there.lines)
    pairs.try_emplace({line.category, line.name}, Pair{pairs.size()}).first->second.there +=
        line.bytes;
  std::vector<std::pair<ItemKey, Pair>> out(pairs.begin(), pairs.end());
  const auto size = [](const Pair& pair) {
    const Int128 difference = pair.here - pair.there;
    return difference < 0 ? -difference : difference;
  };
  std::erase_if(out, [&](const auto& entry) { return size(entry.second) == 0; });
  std::sort(out.begin(), out.end(), [&](const auto& a, const auto& b) {
    const Int128 x = size(a.second), y = size(b.second);
    return x != y ? x > y : a.second.order < b.second.order;
  });
  return out;
}

std::string sentence(const Heading& heading, const Bill& bill, const Heading& other_heading,
                     const Bill& other) {
  const Int128 difference = bill.peak_bytes - other.peak_bytes;
  const std::string start =
      fmt::format("{} needs {}, {} {}", heading.framework, human_bytes(bill.peak_bytes),
                  other_heading.framework, human_bytes(other.peak_bytes));
  if (difference == 0) return start + ": the same";
  return fmt::format("{}: {} {} ({})", start,
                     human_bytes(difference < 0 ? -difference : difference),
                     difference < 0 ? "less" : "more",
                     percent(static_cast<double>(difference < 0 ? -difference : difference),
                             static_cast<double>(other.peak_bytes)));
}

}  // namespace

std::string against_text(const Heading& heading, const Bill& bill, const Heading& other_heading,
                         const Bill& other, const Style& style) {
  const StageBill& here = stage_of(bill, bill.peak_stage);
  const StageBill& there = stage_of(other, other.peak_stage);
  std::string out = paragraph(style, sentence(heading, bill, other_heading, other), 2);
  out += paragraph(style,
                   fmt::format("{} · {}, {} parameters · {}", heading.job, heading.model,
                               grouped(bill.params), heading.cluster),
                   2);
  if (!heading.layout.empty()) out += paragraph(style, heading.layout, 2);
  if (bill.stages.size() > 1) {
    out += paragraph(style,
                     fmt::format("Set side by side: stage {} and stage {}, the peak of each.",
                                 here.stage, there.stage),
                     2);
  }

  Table sums({{}, {Table::Align::right}, {Table::Align::right}, {Table::Align::right}});
  sums.add({"", heading.framework, other_heading.framework, "difference"});
  for (std::size_t i = 0; i < kCategoryCount; ++i) {
    const Int128 a = here.categories[i], b = there.categories[i];
    if (a == 0 && b == 0) continue;
    sums.add({std::string(label(static_cast<Category>(i))), human_bytes(a), human_bytes(b),
              signed_bytes(a - b)});
  }
  sums.add({"peak", human_bytes(here.peak_bytes), human_bytes(there.peak_bytes),
            signed_bytes(here.peak_bytes - there.peak_bytes)});
  out += '\n' + sums.str(style, 2);

  const auto pairs = matched(here, there);
  if (pairs.empty()) return finish(style, out);
  Table items({{Table::Align::right},
               {Table::Align::left, style.width - 52},
               {},
               {Table::Align::right},
               {Table::Align::right}});
  items.add({"difference", "item", "", heading.framework, other_heading.framework});
  for (std::size_t i = 0; i < std::min(kLargest, pairs.size()); ++i) {
    const auto& [key, pair] = pairs[i];
    items.add({signed_bytes(pair.here - pair.there), key.second, std::string(label(key.first)),
               pair.here == 0 ? "none" : human_bytes(pair.here),
               pair.there == 0 ? "none" : human_bytes(pair.there)});
  }
  out += "\nLargest differences\n" + items.str(style, 2);
  if (pairs.size() > kLargest)
    out += fmt::format("  and {} smaller ones\n",
                       grouped(static_cast<Int128>(pairs.size() - kLargest)));
  return finish(style, out);
}

}  // namespace plimsoll::report
