// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/report_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lang/print.hpp"
#include "lang/units.hpp"
#include "planner/peak.hpp"
#include "planner/report_bill.hpp"
#include "planner/report_parts.hpp"
#include "planner/report_plan_parts.hpp"
#include "planner/time_defaults.hpp"

namespace plimsoll::report {
namespace {

std::string counts(const PlanResult& r) {
  if (r.space == 0) return "No combination of the variables' values is possible.";
  return fmt::format(
      "{} layouts in the space, {} looked at, {} found to fit and to meet every "
      "requirement.",
      grouped(r.space), grouped(r.evaluated), grouped(r.feasible_count));
}

std::string how_sure(const PlanResult& r, bool serve) {
  if (r.status == PlanResult::optimal) {
    if (serve) return "Nothing else in that space is better.";
    std::string text =
        "Nothing else in that space is better, by the time model: every layout that was not looked "
        "at has a lower bound past the last one listed.";
    if (r.proof)
      text += fmt::format(
          " Z3 checked that none was left out: {} ways to cut the model over the GPUs, by {} "
          "rules.",
          grouped(r.proof->points), grouped(r.proof->rules));
    return text;
  }
  if (r.status != PlanResult::feasible) return "";
  std::string text = r.stopped             ? "Stopped before the end: the best so far."
                     : !r.unproven.empty() ? "Not proven: " + r.unproven + "."
                                           : "The budget ended the search: the best so far.";
  if (r.gap < 1e300)
    text += fmt::format(" Nothing in that space is better by more than {:.1f} %.", r.gap * 100);
  return text;
}

void add_time(Table& table, const Priced& p) {
  const double total = seconds(p);
  for (const Cause& cause : kCauses) {
    const double s = p.time.*cause.seconds;
    if (s < total * 5e-4) continue;
    table.add({std::string(cause.name), duration(s), percent(s, total)});
  }
}

/// "the step 3.1 % longer", "peak 2.0 % worse"; \a better: the other way round.
std::string difference(const PlanResult& r, double share, bool better, bool proven) {
  const bool time = r.objective == "step_time";
  const char* word = time ? (better ? "shorter" : "longer") : better ? "better" : "worse";
  const bool tie = time && share < time_constants::kTie;
  return fmt::format("{} {}{:.1f} % {}{}", time ? "the step" : r.objective,
                     proven   ? ""
                     : better ? "at least "
                              : "at most ",
                     share * 100, word, tie ? " (a tie)" : "");
}

/// What a preference cost, in words.
std::string cost_text(const PlanResult& r, const PreferenceCost& p) {
  if (!p.other) {
    if (p.met) return "met";
    return p.proven ? "not met, and no layout that fits meets it" : "not met";
  }
  const double cost = p.cost.value_or(0);
  if (!p.met)
    return fmt::format("not met; it would make {}: {}", difference(r, cost, false, p.proven),
                       p.layout);
  if (cost < 5e-4) return "met, at no cost";
  return fmt::format("met; without it {}: {}", difference(r, cost, true, p.proven), p.layout);
}

void add_preferences(Table& facts, const PlanResult& r) {
  for (const PreferenceCost& p : r.preferences)
    facts.add({"prefers", fmt::format("{}: {}", p.preference->name, cost_text(r, p))});
  if (r.preferences.empty())
    for (const Condition* c : r.best->unmet) facts.add({"prefers", c->name + ": not met"});
}

/// The value that was asked for, in its unit; "" where that is the time, which is always told.
std::string asked_for(const PlanResult& r) {
  const Rational& value = r.best->value;
  const std::string& what = r.objective;
  const double number = value.to_double();
  if (what == "step_time" || what == "tokens_per_second") return "";
  if (what == "gpus") return fmt::format("{} GPUs, ", whole(number));
  if (what == "seq") return fmt::format("{} tokens a sequence, ", whole(number));
  if (what == "batch") return fmt::format("{} sequences a step, ", whole(number));
  if (what == "peak") return fmt::format("{} at the peak, ", human_bytes(r.best->peak_bytes));
  if (what == "days") return fmt::format("{} days, ", days_text(number));
  if (what == "cost") return fmt::format("{} USD, ", whole(number));
  if (what == "mfu" || what == "bubble" || what == "headroom")
    return fmt::format("{} {:.1f} %, ", what, number * 100);
  if (value.is_integer()) return fmt::format("{} = {}, ", what, whole(number));
  return fmt::format("{} = {:.4g}, ", what, number);
}

/// "seq to 12,288; 13,312 would take 80.1 GiB".
std::string growth_line(const Growth& g) {
  if (g.endless && g.knob != "mbs") return g.knob + " without end: memory does not bound it";
  std::string out = g.largest > g.now
                        ? fmt::format("{} to {}", g.knob, grouped(g.largest))
                        : fmt::format("{} no further than {}", g.knob, grouped(g.now));
  if (g.endless)
    out += ", the whole batch of a replica";
  else if (g.next > 0)
    out += fmt::format("; {} would take {}", grouped(g.next), human_bytes(g.next_bytes));
  return out;
}

std::string best_text(const Problem& problem, const PlanResult& r, const Heading& heading,
                      const Style& style) {
  const Priced& best = *r.best;
  const Layout& l = best.layout;
  const auto gpus = static_cast<double>(l.tp * l.pp * l.cp * l.dp);
  const bool serve = problem.job->serve;
  std::string out;
  const std::string answer =
      serve ? fmt::format("{} sequences of {} tokens", grouped(l.sequences), grouped(l.seq))
            : fmt::format("{}{} a step, {} tokens/s", asked_for(r), duration(seconds(best)),
                          whole(best.time.tokens_per_second));
  out += paint(
      style, Paint::bold,
      fmt::format("{}: {}\n\n", r.status == PlanResult::optimal ? "best" : "best so far", answer));
  out += plan_title(problem, heading, style) + "\n";
  out += "  " + paint(style, Paint::green, layout_line(problem, l, "best")) + "\n";
  if (const std::string open = open_fields(problem, l); !open.empty())
    out += "  # with " + open + "\n";
  out += "\n";
  Table facts({{}, {Table::Align::left, style.width - 14}});
  const Bill full = peak_bill(problem, l);
  facts.add({"peak", memory(best)});
  if (const std::string range = range_text(full.range); !range.empty())
    facts.add(
        {"how sure", fmt::format("{}{}", full.verdict == "edge" ? "on the edge; " : "", range)});
  if (best.host_bytes > 0)
    facts.add({"host", fmt::format("{} of {} a GPU, of {} of its node's memory",
                                   human_bytes(best.host_bytes), on_host(problem, l),
                                   human_bytes(best.host_share))});
  const StageBill& stage = peak_stage(full);
  const std::string where =
      full.stages.size() == 1 ? "each GPU" : fmt::format("stage {}", full.peak_stage);
  facts.add({"bound by", fmt::format("{}{}: {}", where,
                                     stage.peak_moment.empty() ? "" : ", at " + stage.peak_moment,
                                     largest(stage, 4))});
  if (!serve) {
    facts.add({"step", fmt::format("{}, {} of {}", duration(seconds(best)),
                                   count_of(l.microbatches, "micro-batch"), l.mbs)});
    facts.add({"rate", fmt::format("{} tokens/s, {} a GPU; {:.1f} TFLOP/s a GPU, MFU {}",
                                   whole(best.time.tokens_per_second),
                                   whole(best.time.tokens_per_second / gpus),
                                   best.time.tflops_per_gpu, percent(best.time.mfu, 1))});
    if (best.days)
      facts.add(
          {"run", fmt::format("{} days{}", days_text(best.days->to_double()),
                              best.cost ? fmt::format(", {} USD", whole(best.cost->to_double()))
                                        : "; add a line such as price = 2.5 USD/h "
                                          "to the cluster to see the cost")});
  }
  add_preferences(facts, r);
  for (std::size_t i = 0; i < r.growth.size(); ++i)
    facts.add({i == 0 ? "could grow" : "", growth_line(r.growth[i])});
  out += facts.str(style, 2);
  if (serve) return out;
  out += "\n  where a step goes\n";
  Table time({{}, {Table::Align::right}, {Table::Align::right}});
  add_time(time, best);
  return out + time.str(style, 4);
}

std::string runners_up(const Problem& problem, const PlanResult& r, const Style& style) {
  if (r.alternatives.empty()) return "";
  const Priced& best = *r.best;
  const bool serve = problem.job->serve;
  const std::size_t room = style.width > 62 ? style.width - 62 : 18;
  Table table({{Table::Align::right},
               {Table::Align::right},
               {Table::Align::left, 30},
               {Table::Align::right},
               {Table::Align::left, std::max<std::size_t>(room, 24)}});
  table.add({"", serve ? "sequences" : "step", "loses", "peak", "layout"});
  const bool by_time = r.objective == "step_time";
  bool tie = false;
  for (std::size_t i = 0; i < r.alternatives.size(); ++i) {
    const Priced& p = r.alternatives[i];
    std::string loss;
    if (!serve) {
      loss = by_time ? lost_time(best, p) : lost_value(r, best, p);
      tie = tie || (by_time && is_tie(best, p));
      for (const Condition* c : p.unmet)
        if (std::find(best.unmet.begin(), best.unmet.end(), c) == best.unmet.end())
          loss += fmt::format(", not {}", c->name);
    }
    const std::string open = open_fields(problem, p.layout);
    table.add({fmt::format("{}", i + 2), serve ? grouped(p.layout.sequences) : duration(seconds(p)),
               loss, human_bytes(p.peak_bytes),
               describe(problem, p.layout) + (open.empty() ? "" : " · " + open)});
  }
  std::string out = "\n  runners-up\n" + table.str(style, 2);
  if (tie)
    out += paragraph(style,
                     fmt::format("Steps that differ by less than {:.0f} % are ties: the time "
                                 "model tells no finer.",
                                 time_constants::kTie * 100),
                     2);
  return out;
}

std::string relaxations(const PlanResult& r, const Style& style) {
  if (r.relaxations.empty()) return "";
  Table table({{Table::Align::left, 40}, {Table::Align::left, style.width - 46}});
  for (const Relaxation& x : r.relaxations) {
    const std::string gives =
        x.best.time.nanoseconds > 0
            ? fmt::format("{} a step or less: {}", duration(seconds(x.best)), x.layout)
            : fmt::format("{} sequences or more: {}", grouped(x.best.layout.sequences), x.layout);
    table.add({x.change, gives});
  }
  return "\n  changes that would do, each checked in the changed file\n" + table.str(style, 2);
}

/// A requirement that has a label with what it says: "inside a node: tp <= 8".
std::string in_full(const Problem& problem, const CoreItem& item) {
  for (const Condition& c : problem.job->require) {
    const std::string says = print(*c.expr);
    if (c.name == item.name && !item.bytes && says != item.name)
      return fmt::format("{}: {}", item.name, says);
  }
  return item.name;
}

/// What cannot hold together, a line each: what it is, what it takes, where it is written.
std::string core_text(const Problem& problem, const PlanResult& r, const Style& style) {
  Table table({{Table::Align::left, style.width / 2}, {Table::Align::right}, {}});
  for (const CoreItem& item : r.core)
    table.add({in_full(problem, item), item.bytes ? human_bytes(*item.bytes) : "",
               item.file.empty() ? "" : fmt::format("{}:{}", item.file, item.line)});
  std::string out = fmt::format("  {} cannot hold{}\n", r.core.size() == 1 ? "this" : "these",
                                r.core.size() == 1   ? ""
                                : r.core.size() == 2 ? " both"
                                                     : " all together");
  out += table.str(style, 4);
  if (r.core_over > 0)
    out += fmt::format("    over by {} at the least\n", human_bytes(r.core_over));
  return out;
}

std::string nothing_text(const Problem& problem, const PlanResult& r, const Style& style) {
  const bool no = r.status == PlanResult::infeasible;
  std::string answer = no ? "nothing fits" : "nothing found that fits";
  if (r.space == 0 || (no && r.evaluated == 0 && !r.why.empty()))
    answer =
        r.why.empty() ? "no layout is possible" : fmt::format("no layout is possible: {}", r.why);
  std::string detail;
  if (r.tightest) {
    const Priced& t = *r.tightest;
    const Int128 over = t.peak_bytes - t.hbm_bytes;
    if (t.host_bytes > t.host_share)
      answer += fmt::format(
          ": at the nearest layout a GPU keeps {} of {} in host memory, and its share of its "
          "node's is {}",
          human_bytes(t.host_bytes), on_host(problem, t.layout), human_bytes(t.host_share));
    else if (over > 0)
      answer += fmt::format(": the nearest layout needs {} of {} ({} over)",
                            human_bytes(t.peak_bytes), human_bytes(t.hbm_bytes), human_bytes(over));
    else
      answer = no ? "no layout that fits meets every requirement"
                  : "none found that meets every requirement";
    const Bill full = peak_bill(problem, t.layout);
    const StageBill& stage = peak_stage(full);
    Table facts({{}, {Table::Align::left, style.width - 14}});
    facts.add({"nearest", describe(problem, t.layout)});
    facts.add({"peak", memory(t)});
    facts.add(
        {"where", fmt::format("{}{}",
                              full.stages.size() == 1 ? std::string("each GPU")
                                                      : fmt::format("stage {}", full.peak_stage),
                              stage.peak_moment.empty() ? "" : ", at " + stage.peak_moment)});
    facts.add({"made of", largest(stage, 6)});
    facts.add({"items", largest_items(stage, 5)});
    detail = "\n" + facts.str(style, 2);
  }
  if (r.space == 0 && r.core.empty() && !r.emptied_by.empty())
    detail += paragraph(
        style, fmt::format("Most were turned away by the requirement '{}'.", r.emptied_by), 2);
  Heading head;
  const Layout shown = r.tightest ? r.tightest->layout : Layout{};
  if (r.tightest) head = heading(problem, shown);
  std::string out = paint(style, Paint::bold, paragraph(style, answer, 2)) + "\n";
  if (r.tightest) out += plan_title(problem, head, style);
  if (!detail.empty()) out += detail + "\n";
  if (!r.core.empty()) out += core_text(problem, r, style) + "\n";
  out += paragraph(style, counts(r), 2);
  if (r.status == PlanResult::unknown)
    out += paragraph(style,
                     r.stopped ? "Stopped before the end: a layout may fit all the same."
                               : "The budget ended the search: a layout may fit all the same.",
                     2);
  if (!r.never.empty())
    out += paragraph(style, fmt::format("No number of GPUs would do: {}.", r.never), 2);
  out += relaxations(r, style);
  if (no && r.space > 0 && r.relaxations.empty())
    out += paragraph(style, "No single change that was tried makes it fit.", 2);
  return out;
}

}  // namespace

std::string plan_text(const Problem& problem, const PlanResult& r, const Style& style) {
  if (!r.best) return finish(style, nothing_text(problem, r, style));
  const Heading head = heading(problem, r.best->layout);
  std::string out = best_text(problem, r, head, style);
  out += runners_up(problem, r, style) + "\n";
  out += paragraph(style, counts(r), 2);
  out += paragraph(style, how_sure(r, problem.job->serve), 2);
  return finish(style, out);
}

}  // namespace plimsoll::report
