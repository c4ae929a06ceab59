// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lang/diagnostics.hpp"
#include "lang/units.hpp"
#include "planner/explain.hpp"
#include "planner/report_parts.hpp"

namespace plimsoll::report {
namespace {

/// "(8,192, 28,672 / tp)".
std::string shape_text(const ExprPool& pool, const std::vector<Expr>& shape) {
  std::string out;
  for (const Expr& extent : shape) out += (out.empty() ? "" : ", ") + pool.str(extent);
  return out.empty() ? out : fmt::format("({})", out);
}

/// What a row of the inventory is: "activations, bf16 (mbs * seq, 8,192), in the default pool".
std::string what(const Item& item, const ExprPool& pool) {
  std::string out(label(item.category));
  if (!item.dtype.empty()) out += ", " + item.dtype;
  const std::string shape = shape_text(pool, item.shape);
  if (!shape.empty()) out += ' ' + shape;
  if (item.combine == Combine::once) out += ", one for each shape";
  if (item.combine == Combine::max) out += ", one buffer as large as the largest";
  if (item.outside) out += ", outside the framework's allocator";
  if (!item.stream.empty()) out += fmt::format(", in the allocator's pool {}", item.stream);
  return out;
}

std::string entry(const Problem& problem, const BillLine& line, const Style& style) {
  std::string out =
      fmt::format("  {:>10}  {}\n", human_bytes(line.bytes), paint(style, Paint::bold, line.name));
  Table facts({{}, {Table::Align::left, style.width - 26}});
  if (line.item != kNone) {
    const Item& item = problem.inventory.items[line.item];
    const ExprPool& pool = problem.module->pool();
    facts.add({"is", what(item, pool)});
    facts.add({"one", pool.str(item.bytes)});
  } else {
    facts.add({"is", std::string(label(line.category))});
  }
  if (!line.formula.empty()) facts.add({"here", line.formula});
  facts.add({"divided by", line.divided_by.empty() ? "nothing" : line.divided_by});
  if (!line.lifetime.empty()) facts.add({"lives", line.lifetime});
  if (!line.source.empty()) facts.add({"from", line.source});
  return out + facts.str(style, 14);
}

}  // namespace

std::string steps_text(const Bill& bill, const std::vector<SingleStep>& steps, const Style& style,
                       std::int64_t nanoseconds) {
  if (steps.empty()) return "";
  std::string out = "What one step of a layout variable would do\n";
  Table table({{}, {Table::Align::right}, {Table::Align::right}, {Table::Align::right}, {}});
  const bool timed = nanoseconds > 0;
  table.add({"change", "peak", "difference", timed ? "step" : "", ""});
  bool excluded = false;
  for (const SingleStep& step : steps) {
    const std::string verdict = step.fits ? "fits" : "does not fit";
    const double more =
        timed ? static_cast<double>(step.nanoseconds) / static_cast<double>(nanoseconds) - 1 : 0;
    excluded = excluded || step.excluded;
    table.add({step.change, human_bytes(step.peak_bytes),
               signed_bytes(step.peak_bytes - bill.peak_bytes),
               timed && step.nanoseconds > 0 ? fmt::format("{:+.1f} %", more * 100) : "",
               step.excluded ? "excluded" : verdict});
  }
  out += table.str(style, 2);
  if (excluded) out += "  Excluded: by what the job pins or requires.\n";
  return out;
}

std::string explain_text(const Problem& problem, const Heading& heading, const Bill& bill,
                         const std::vector<SingleStep>& steps, const Why& why, const Style& style,
                         std::optional<std::int64_t> chosen) {
  const std::int64_t number = chosen.value_or(bill.peak_stage);
  const StageBill& stage = stage_of(bill, number);
  std::string out = paragraph(style, answer(heading, bill), 2);
  out += title(heading, bill, style);
  if (!heading.serve) out += '\n' + binds_text(heading, bill, style);
  const std::int64_t own = why.own ? why.own->priced.time.nanoseconds : 0;
  for (const std::string& part : {rivals_text(why, style), growth_text(why.growth, style),
                                  steps_text(bill, steps, style, own)})
    if (!part.empty()) out += '\n' + part;
  out += '\n' + paragraph(style, stage_heading(heading, bill, stage), 2);
  for (std::size_t i = 0; i < kCategoryCount; ++i) {
    for (const BillLine* line : lines_of(stage, static_cast<Category>(i)))
      out += entry(problem, *line, style);
  }
  return finish(style, out);
}

}  // namespace plimsoll::report
