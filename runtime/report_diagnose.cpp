// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/report_diagnose.hpp"

#include <fmt/format.h>

#include "lang/units.hpp"
#include "planner/report_json.hpp"
#include "planner/report_parts.hpp"

namespace plimsoll::report {
namespace {

using runtime::Beside;
using runtime::Cause;
using runtime::Diagnosis;
using runtime::Explanation;
using runtime::Fix;
using runtime::Request;
using Align = Table::Align;

bool is_good(Cause cause) { return cause == Cause::agrees || cause == Cause::less; }

std::string figures(const Diagnosis& d, const Style& style) {
  Table table({{}, {Align::right}, {Align::right}, {Align::right}});
  table.add({"", "log", "bill", "log over bill"});
  for (const Beside& f : d.figures)
    table.add({f.what, f.seen ? human_bytes(*f.seen) : "", f.billed ? human_bytes(*f.billed) : "",
               f.seen && f.billed ? signed_bytes(Int128{*f.seen} - *f.billed) : ""});
  return table.str(style, 2);
}

std::string requests(const Diagnosis& d, const Style& style) {
  if (!d.segment) return "";
  std::string out = '\n' + paint(style, Paint::bold, "What was asked for") + '\n';
  if (!d.telling)
    return out +
           paragraph(style,
                     fmt::format("  A segment of {}: it holds any tensor {}, so its size does "
                                 "not say which.",
                                 human_bytes(d.segment->bytes),
                                 d.segment->bytes < 10 << 20 ? "of up to 1 MiB" : "of 1 to 10 MiB"),
                     2);
  if (d.requests.empty())
    return out + paragraph(style,
                           fmt::format("  No tensor of this layout asks for {}: another layout, "
                                       "sequence length or version than the file's, or an "
                                       "evaluation or checkpoint, which no bill has.",
                                       human_bytes(d.segment->bytes)),
                           2);
  Table table({{Align::right}, {Align::left, 26}, {}, {Align::left, 24}});
  table.add({"bytes", "most likely", "in use then", "at"});
  for (const Request& r : d.requests)
    table.add({human_bytes(r.bytes), r.item, human_bytes(r.allocated), r.moment});
  return out + table.str(style, 2);
}

std::string explanations(const Diagnosis& d, const Style& style) {
  if (!d.tried) return "";
  std::string out =
      '\n' + paint(style, Paint::bold, "What would explain it, each tried in the file") + '\n';
  if (d.explanations.empty())
    return out + paragraph(style,
                           "  No single change that was tried comes within 3 %: micro-batch, "
                           "sequence, recomputation, ZeRO stage, precision, attention, loss, "
                           "framework.",
                           2);
  Table table({{Align::left, 34}, {Align::right}});
  table.add({"if it ran with", "then in use"});
  for (const Explanation& e : d.explanations) table.add({e.change, human_bytes(e.allocated)});
  return out + table.str(style, 2);
}

std::string slower(const Fix& f) {
  if (!f.slower) return "";
  const double percent = 100 * *f.slower;
  if (percent > -0.05 && percent < 0.05) return "as quick";
  return fmt::format("{:.1f} % {}", percent < 0 ? -percent : percent,
                     percent < 0 ? "shorter" : "longer");
}

std::string fixes(const Diagnosis& d, const Style& style) {
  if (d.fixes.empty()) return "";
  std::string out = '\n' + paint(style, Paint::bold, "What would have fitted, each priced") + '\n';
  Table table({{Align::left, 38}, {Align::right}, {Align::left, 24}});
  table.add({"change", "peak", "a step"});
  for (const Fix& f : d.fixes)
    table.add({f.change, human_bytes(f.peak), f.layout.empty() ? slower(f) : f.layout});
  out += table.str(style, 2);
  if (d.over > 0)
    out += paragraph(style,
                     fmt::format("  They fit with the {} added that the log has over the bill.",
                                 human_bytes(d.over)),
                     2);
  return out;
}

}  // namespace

std::string diagnose_text(const Heading& heading, const Bill& bill, const Diagnosis& d,
                          const Style& style) {
  const std::string said = paragraph(style, d.verdict, 2);
  const std::size_t colon = std::min(said.find_first_of(":,"), said.size() - 1);
  std::string out =
      paint(style, is_good(d.cause) ? Paint::green : Paint::red, said.substr(0, colon)) +
      said.substr(colon);
  out += title(heading, bill, style);
  out += '\n';
  if (d.figures.empty()) {
    out += paragraph(style, fmt::format("The log ({}) has no figures.", d.from), 2);
  } else {
    const std::string whose =
        bill.stages.size() == 1 ? "each GPU" : fmt::format("stage {}", d.stage);
    out += paint(style, Paint::bold,
                 fmt::format("The log ({}) beside the bill of {}", d.from, whose)) +
           '\n' + figures(d, style);
  }
  out += requests(d, style) + explanations(d, style) + fixes(d, style);
  if (!d.notes.empty()) out += '\n';
  for (const std::string& note : d.notes) out += paragraph(style, note, 2);
  return finish(style, out);
}

std::string diagnose_json(const Heading& heading, const Diagnosis& d) {
  const auto or_null = [](const std::optional<std::int64_t>& n) { return n ? Json(*n) : Json(); };
  Json out;
  out["schema"] = "plimsoll.diagnose/1";
  out["job"] = heading.job;
  out["layout"] = heading.layout;
  out["cause"] = name(d.cause);
  out["verdict"] = d.verdict;
  out["from"] = d.from;
  out["stage"] = d.stage;
  out["over_bytes"] = d.over;
  out["figures"] = Json::array();
  for (const Beside& f : d.figures)
    out["figures"].push_back(
        {{"what", f.what}, {"log_bytes", or_null(f.seen)}, {"bill_bytes", or_null(f.billed)}});
  out["segment_bytes"] = d.segment ? Json(d.segment->bytes) : Json();
  out["requests"] = Json::array();
  if (d.telling)
    for (const Request& r : d.requests)
      out["requests"].push_back({{"item", r.item},
                                 {"category", plimsoll::name(r.category)},
                                 {"moment", r.moment},
                                 {"bytes", r.bytes},
                                 {"allocated_bytes", r.allocated}});
  out["explanations"] = Json::array();
  for (const Explanation& e : d.explanations)
    out["explanations"].push_back({{"change", e.change}, {"allocated_bytes", e.allocated}});
  out["fixes"] = Json::array();
  for (const Fix& f : d.fixes)
    out["fixes"].push_back({{"change", f.change},
                            {"peak_bytes", f.peak},
                            {"slower", f.slower ? Json(*f.slower) : Json()},
                            {"layout", f.layout}});
  out["notes"] = d.notes;
  return out.dump(2) + '\n';
}

}  // namespace plimsoll::report
