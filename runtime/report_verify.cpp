// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/report_verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "lang/units.hpp"
#include "planner/report_parts.hpp"
#include "runtime/timeline.hpp"

namespace plimsoll::report {

namespace {

using runtime::Difference;
using runtime::RankCheck;
using runtime::Verification;
using runtime::VerifyFailure;

/// Differences that are listed of a rank.
constexpr std::size_t kListed = 12;

bool alike(const RankCheck& a, const RankCheck& b) {
  return a.stage == b.stage && a.predicted == b.predicted && a.observed == b.observed;
}

std::string bytes(std::int64_t n) { return fmt::format("{} B", grouped(n)); }

std::string rank_table(const Verification& v, const Style& style) {
  using Align = Table::Align;
  Table table({{}, {Align::right}, {Align::right}, {Align::right}, {Align::right}});
  table.add({"", "stage", "predicted", "observed", "difference"});
  for (std::size_t i = 0; i < v.ranks.size();) {
    std::size_t end = i + 1;
    while (end < v.ranks.size() && alike(v.ranks[i], v.ranks[end]) &&
           v.ranks[end].rank == v.ranks[end - 1].rank + 1)
      ++end;
    const RankCheck& r = v.ranks[i];
    table.add({end - i == 1 ? fmt::format("rank {}", r.rank)
                            : fmt::format("ranks {}–{}", r.rank, v.ranks[end - 1].rank),
               std::to_string(r.stage), bytes(r.predicted), bytes(r.observed),
               bytes(r.difference())});
    i = end;
  }
  return table.str(style, 2);
}

/// Segments of the allocator, by stage: ranks of one stage differ, for their optimizer states are
/// cut elsewhere.
std::string reserved_table(const Verification& v, const Style& style) {
  using Align = Table::Align;
  Table table({{}, {Align::right}, {Align::right}, {Align::right}});
  table.add({"", "reserved", "in the bill", "the bill's slack"});
  for (std::size_t i = 0; i < v.ranks.size();) {
    std::size_t end = i;
    std::int64_t least = v.ranks[i].reserved, most = least;
    for (; end < v.ranks.size() && v.ranks[end].stage == v.ranks[i].stage; ++end) {
      least = std::min(least, v.ranks[end].reserved);
      most = std::max(most, v.ranks[end].reserved);
    }
    const std::string low = human_bytes(least), high = human_bytes(most);
    const std::int64_t counted = v.ranks[i].bill_reserved;
    table.add({fmt::format("stage {}", v.ranks[i].stage), low == high ? low : low + " – " + high,
               human_bytes(counted), signed_bytes(counted - most)});
    i = end;
  }
  return table.str(style, 2);
}

std::string difference_table(const std::vector<Difference>& list, const Style& style) {
  using Align = Table::Align;
  Table table({{Align::right}, {Align::right}, {Align::right}, {}, {Align::left, 34}});
  table.add({"predicted", "observed", "difference", "", ""});
  for (std::size_t i = 0; i < std::min(list.size(), kListed); ++i)
    table.add({human_bytes(list[i].predicted), human_bytes(list[i].observed),
               signed_bytes(list[i].observed - list[i].predicted),
               std::string(label(list[i].category)), list[i].name});
  std::string out = table.str(style, 2);
  if (list.size() > kListed) out += fmt::format("  {} more: --json.\n", list.size() - kListed);
  return out;
}

const RankCheck& worst(const Verification& v) {
  return *std::max_element(v.ranks.begin(), v.ranks.end(),
                           [](const RankCheck& a, const RankCheck& b) {
                             return std::abs(a.difference()) < std::abs(b.difference());
                           });
}

std::string what_differs(const Verification& v, const Style& style) {
  const RankCheck& r = worst(v);
  std::string out =
      '\n' + paint(style, Paint::bold, fmt::format("What differs on rank {}\n", r.rank));
  out += paragraph(style,
                   fmt::format("The bill has its peak at {}, the run had its own at {}.",
                               r.predicted_moment, r.observed_moment),
                   2);
  out += "By category\n" + difference_table(r.categories, style);
  return out + "By item\n" + difference_table(r.items, style);
}

std::string ran_out(const Problem& p, const VerifyFailure& f, const Style& style) {
  std::string out = '\n' + paint(style, Paint::bold, fmt::format("Live then on rank {}\n", f.rank));
  Table table({{Table::Align::right}, {}});
  for (std::size_t i = 0; i < kCategoryCount; ++i)
    if (f.categories[i] > 0)
      table.add({human_bytes(f.categories[i]), std::string(label(static_cast<Category>(i)))});
  table.add({human_bytes(f.live), "all tensors"});
  if (f.predicted_live)
    table.add({human_bytes(*f.predicted_live), "all tensors at that moment, by the bill"});
  table.add({human_bytes(f.reserved), "segments of the allocator"});
  out += table.str(style, 2);
  (void)p;
  return out;
}

/// Classes of ops that are listed of a GPU's run.
constexpr std::size_t kSlowest = 24;

std::string milliseconds(double seconds) { return fmt::format("{:.3f}", seconds * 1e3); }

std::string on_gpu(const runtime::GpuSeen& g, const Style& style) {
  using Align = Table::Align;
  std::string out =
      '\n' + paint(style, Paint::bold, fmt::format("On one {}, driver {}\n", g.gpu, g.driver));
  Table table({{}, {Align::right}, {Align::right}, {Align::right}});
  table.add({"", "predicted", "observed", "difference"});
  table.add({"the GPU's memory, by the driver", human_bytes(g.predicted_used), human_bytes(g.used),
             signed_bytes(g.used - g.predicted_used)});
  const auto part = [&](const char* what, std::int64_t predicted, std::int64_t seen) {
    table.add({what, human_bytes(predicted), human_bytes(seen), signed_bytes(seen - predicted)});
  };
  part("  segments of the allocator", g.predicted_reserved, g.reserved);
  part("  scratch of this device", g.predicted_scratch, g.scratch);
  part("  context and libraries", g.predicted_context, g.libraries);
  table.add({"in use before the run", "", human_bytes(g.used_before), ""});
  out += table.str(style, 2);
  if (!g.seconds.empty())
    out +=
        paragraph(style,
                  fmt::format("The last step took {:.3f} s; {:.3f} s by the time model, which has "
                              "peers to wait for.",
                              g.seconds.back(), g.predicted_seconds),
                  2);
  if (g.kinds.empty()) return out;
  Table kinds({{}, {}, {Align::right}, {Align::right}, {Align::right}});
  kinds.add({"", "", "runs", "predicted ms", "observed ms"});
  for (std::size_t i = 0; i < std::min(g.kinds.size(), kSlowest); ++i) {
    const auto& k = g.kinds[i];
    kinds.add({k.name, k.backward ? "backward" : "forward", grouped(k.runs),
               k.predicted ? milliseconds(*k.predicted) : "–", milliseconds(k.seconds)});
  }
  return out + paint(style, Paint::bold, "Ops of the last step, by the time model and as seen\n") +
         kinds.str(style, 2);
}

std::string answer(const Problem& p, const Verification& v) {
  if (v.failure) {
    const VerifyFailure& f = *v.failure;
    const std::string when = f.at.step == 0 ? "before the first step"
                                            : fmt::format("after {} of step {}",
                                                          runtime::point_name(p, f.at), f.at.step);
    return fmt::format("out of memory: rank {} could not have {} for '{}', {}", f.rank,
                       human_bytes(f.bytes), f.tensor, when);
  }
  const std::string who = v.ranks.size() == 1
                              ? fmt::format("rank {}", v.ranks.front().rank)
                              : count_of(static_cast<std::int64_t>(v.ranks.size()), "rank");
  if (v.agrees)
    return fmt::format("agrees: {} held what the bill says, to the byte, on {}", who, v.device);
  const RankCheck& r = worst(v);
  return fmt::format("disagrees: rank {} held {} {} than the bill says, on {}", r.rank,
                     human_bytes(std::abs(r.difference())), r.difference() > 0 ? "more" : "less",
                     v.device);
}

}  // namespace

std::string verify_text(const Heading& heading, const Bill& bill, const Problem& p,
                        const Verification& v, const Style& style) {
  const std::string said = paragraph(style, answer(p, v), 2);
  const std::size_t colon = said.find(':');
  std::string out = paint(style, v.agrees ? Paint::green : Paint::red, said.substr(0, colon)) +
                    said.substr(colon);
  if (const std::string range = range_text(bill.range); !range.empty())
    out += paragraph(style,
                     fmt::format("The bill: {}; {}.",
                                 bill.verdict == "edge" ? "on the edge" : bill.verdict, range),
                     2);
  out += title(heading, bill, style);
  if (!v.ranks.empty()) {
    out += '\n' + rank_table(v, style);
    if (p.inventory.counts_blocks) {
      out += '\n' + paint(style, Paint::bold, "Segments of the allocator\n") +
             reserved_table(v, style);
      out += paragraph(style, fmt::format("In the bill: {}.", heading.reserved_note), 2);
    }
  }
  if (v.gpu) out += on_gpu(*v.gpu, style);
  if (!v.losses.empty())
    out += fmt::format("\nThe loss is {:.2f} in step 1, {:.2f} in step {}.\n", v.losses.front(),
                       v.losses.back(), v.losses.size());
  if (v.failure)
    out += ran_out(p, *v.failure, style);
  else if (!v.agrees)
    out += what_differs(v, style);
  return finish(style, out);
}

}  // namespace plimsoll::report
