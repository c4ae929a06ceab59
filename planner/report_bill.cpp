// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/report_bill.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "lang/diagnostics.hpp"
#include "lang/units.hpp"
#include "planner/report_parts.hpp"

namespace plimsoll::report {
namespace {

/// Items below this share of a stage's peak are listed as one line a category.
constexpr Int128 kSmallShare = 2000;
/// Fewer small items than this are listed all the same.
constexpr std::size_t kFewItems = 3;
/// Candidate moments that are listed.
constexpr std::size_t kMoments = 4;

double as_double(Int128 value) { return static_cast<double>(value); }

Paint verdict_paint(const Bill& bill) {
  if (bill.verdict == "edge") return Paint::yellow;
  return bill.fits ? Paint::green : Paint::red;
}

/// "91.20 GiB of 79.18 GiB (12.02 GiB over)".
std::string need(const Bill& bill) {
  const Int128 left = bill.hbm_bytes - bill.peak_bytes;
  if (left < 0) {
    return fmt::format("{} of {} ({} over)", human_bytes(bill.peak_bytes),
                       human_bytes(bill.hbm_bytes), human_bytes(-left));
  }
  return fmt::format("{} of {} ({} left, {})", human_bytes(bill.peak_bytes),
                     human_bytes(bill.hbm_bytes), human_bytes(left),
                     percent(as_double(left), as_double(bill.hbm_bytes)));
}

/// Which GPUs the answer speaks of.
std::string who(const Bill& bill, std::int64_t stage) {
  return bill.stages.size() == 1 ? "each GPU" : fmt::format("stage {}", stage);
}

// --- items ---

std::string source_number(std::vector<std::string>& sources, const std::string& source) {
  if (source.empty()) return "";
  auto found = std::find(sources.begin(), sources.end(), source);
  if (found == sources.end()) found = sources.insert(sources.end(), source);
  return fmt::format("[{}]", found - sources.begin() + 1);
}

/// One table for all categories, so that its columns are the same in each.
class ItemTable {
 public:
  explicit ItemTable(const Style& style)
      : style_(style),
        wide_(style.width >= 110),
        table_({{Table::Align::right},
                {Table::Align::left, wide_ ? std::size_t{30} : std::size_t{25}},
                {Table::Align::left, wide_ ? style.width - 88 : std::size_t{0}},
                {Table::Align::left, 19},
                {Table::Align::left, 13},
                {}}) {
    table_.add({"bytes", "item", wide_ ? "formula" : "", "lifetime", "divided by", "from"});
  }

  void category(Category category, const StageBill& stage) {
    const auto lines = lines_of(stage, category);
    if (lines.empty()) return;
    std::string text(label(category));
    if (lines.size() > 1) {
      const Int128 sum = stage.categories[static_cast<std::size_t>(category)];
      text += fmt::format(" · {}", human_bytes(sum));
    }
    table_.add_heading(text);
    std::vector<const BillLine*> small;
    for (const BillLine* line : lines)
      if (line->bytes < stage.peak_bytes / kSmallShare) small.push_back(line);
    if (small.size() < kFewItems) small.clear();
    for (std::size_t i = 0; i + small.size() < lines.size(); ++i) item(*lines[i]);
    if (small.empty()) return;
    Int128 rest = 0;
    for (const BillLine* line : small) rest += line->bytes;
    table_.add({human_bytes(rest), fmt::format("{} smaller items", small.size()), "", "", "", ""});
    hidden_ = true;
  }

  std::string str() const {
    std::string out = table_.str(style_, 2);
    Table notes({{Table::Align::right}, {Table::Align::left, style_.width - 10}});
    for (std::size_t i = 0; i < sources_.size(); ++i)
      notes.add({fmt::format("[{}]", i + 1), sources_[i]});
    out += notes.str(style_, 2);
    if (hidden_) out += "  Smaller items, one by one: --json.\n";
    return out;
  }

 private:
  void item(const BillLine& line) {
    // A formula without variables says no more than the bytes do.
    const bool speaks = std::any_of(line.formula.begin(), line.formula.end(), [](char c) {
      return std::isalpha(static_cast<unsigned char>(c)) != 0;
    });
    const std::string formula = speaks ? line.formula : "";
    table_.add({human_bytes(line.bytes), line.name, wide_ ? formula : "", line.lifetime,
                line.divided_by, source_number(sources_, line.source)});
    if (!wide_ && speaks) table_.add_note(1, "= " + formula);
  }

  const Style& style_;
  bool wide_;
  Table table_;
  std::vector<std::string> sources_;
  bool hidden_ = false;
};

std::string items(const StageBill& stage, const Style& style) {
  ItemTable table(style);
  for (std::size_t i = 0; i < kCategoryCount; ++i) table.category(static_cast<Category>(i), stage);
  return table.str();
}

// --- from tensors to what the driver sees ---

std::string counters(const Heading& heading, const StageBill& stage, const Style& style) {
  Table table({{}, {Table::Align::right}, {Table::Align::left, style.width - 40}});
  table.add({"live tensors", human_bytes(stage.live_bytes), ""});
  table.add({"allocated", human_bytes(stage.allocated_bytes),
             fmt::format("{} of rounding", human_bytes(stage.allocated_bytes - stage.live_bytes))});
  table.add({"reserved", human_bytes(stage.reserved_bytes), heading.reserved_note});
  table.add({"outside the allocator", human_bytes(stage.peak_bytes - stage.reserved_bytes),
             "context, libraries, communicators"});
  table.add(
      {"peak", human_bytes(stage.peak_bytes), fmt::format("{} B", grouped(stage.peak_bytes))});
  return table.str(style, 2);
}

/// "weights, gradients, activations 1.50 GiB": what is live, and how much of what passes; then what
/// is there at this moment alone.
std::string live_then(const OtherMoment& m) {
  std::string out;
  for (std::size_t i = 0; i < kCategoryCount; ++i) {
    const auto category = static_cast<Category>(i);
    if (m.live[i] <= 0) continue;
    out += (out.empty() ? "" : ", ") + std::string(label(category));
    if (category == Category::activations) out += ' ' + human_bytes(m.live[i]);
  }
  for (const auto& [item, bytes] : m.own)
    out += fmt::format("{}{} {}", &item == &m.own.front().first ? "; then only: " : ", ", item,
                       human_bytes(bytes));
  return out;
}

std::string beside_the_step(const StageBill& stage, const Style& style) {
  Table table({{Table::Align::right}, {}, {Table::Align::left, style.width - 38}});
  for (const OtherMoment& m : stage.others) {
    const bool over = m.bytes > stage.hbm_bytes && stage.peak_bytes <= stage.hbm_bytes;
    table.add(
        {human_bytes(m.bytes), m.name, (over ? "more than the GPU has! " : "") + live_then(m)});
  }
  table.add({human_bytes(stage.steady_bytes), "between steps", ""});
  return table.str(style, 2);
}

std::string other_moments(const Heading& heading, const StageBill& stage, const Style& style) {
  std::string out;
  if (!stage.moments.empty()) {
    Table table({{Table::Align::right}, {Table::Align::left, style.width - 14}});
    std::vector<std::string_view> said;
    for (const auto& [moment, bytes] : stage.moments) {
      if (said.size() == kMoments) break;
      if (std::find(said.begin(), said.end(), moment) != said.end()) continue;
      said.push_back(moment);
      table.add({human_bytes(bytes), moment});
    }
    out += "Highest moments\n" + table.str(style, 2);
  }
  if (!stage.others.empty()) {
    out += "Beside the steady step\n" + beside_the_step(stage, style);
  } else if (!heading.serve) {
    out += paragraph(style,
                     fmt::format("First step {} · between steps {} · optimizer step {}",
                                 human_bytes(stage.first_step_bytes),
                                 human_bytes(stage.steady_bytes), human_bytes(stage.update_bytes)),
                     2);
  }
  return out;
}

std::string verdict(const Heading& heading, const Bill& bill) {
  if (!heading.serve) return bill.fits ? "fits" : "does not fit";
  const std::string tokens = count_of(heading.context, kToken);
  if (bill.sequences == 0) return fmt::format("not one sequence of {} fits", tokens);
  const bool one = bill.sequences == 1;
  return fmt::format("{} of {} {}", count_of(bill.sequences, kSequence), tokens,
                     bill.fits ? (one ? "fits" : "fit") : (one ? "does not fit" : "do not fit"));
}

}  // namespace

std::string answer(const Heading& heading, const Bill& bill) {
  const StageBill& peak = stage_of(bill, bill.peak_stage);
  std::string said = verdict(heading, bill);
  // Nearer to the line than the framework's own error: nobody should promise.
  if (bill.verdict == "edge") said += ", on the edge";
  std::string out = fmt::format("{}: {} needs {}", said, who(bill, bill.peak_stage), need(bill));
  if (!peak.peak_moment.empty()) out += fmt::format(", at {}", peak.peak_moment);
  const std::string range = range_text(bill.range);
  return out + (range.empty() ? "" : "; " + range);
}

std::string range_text(const Range& range) {
  if (!range.why_none.empty()) return "no range is known: " + range.why_none;
  if (range.of.empty()) return "";
  const std::string share =
      range.share < 1 ? fmt::format("{:.0f} % of ", 100 * range.share) : "all ";
  return fmt::format("{}range {} to {} ({}{} measured {})",
                     range.of == "kv_cache" ? "the cache's " : "", human_bytes(range.low),
                     human_bytes(range.high), share, range.runs,
                     range.of == "kv_cache" ? "start-ups" : "runs");
}

std::string bill_text(const Heading& heading, const Bill& bill, const Style& style,
                      std::optional<std::int64_t> chosen) {
  const StageBill& stage = stage_of(bill, chosen.value_or(bill.peak_stage));
  const std::string said = paragraph(style, answer(heading, bill), 2);
  const std::size_t colon = said.find(':');
  std::string out = paint(style, verdict_paint(bill), said.substr(0, colon)) + said.substr(colon);
  out += title(heading, bill, style);
  out += '\n' + paint(style, Paint::bold, paragraph(style, stage_heading(heading, bill, stage), 2));
  out += bars(stage, bill.hbm_bytes, style);
  if (heading.serve && bill.kv_blocks > 0) {
    out += paragraph(
        style,
        fmt::format("  The cache holds {}{}.", count_of(bill.kv_blocks, kBlock),
                    bill.kv_tokens ? fmt::format(", {}", count_of(*bill.kv_tokens, kToken))
                                   : std::string()),
        2);
  }
  if (bill.stages.size() > 1) out += "\nAll stages\n" + stage_table(heading, bill, style);
  out += "\nItems\n" + items(stage, style);
  out += "\nCounters\n" + counters(heading, stage, style);
  out += '\n' + other_moments(heading, stage, style);
  return finish(style, out);
}

}  // namespace plimsoll::report
