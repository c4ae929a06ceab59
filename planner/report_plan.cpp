// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/report_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lang/units.hpp"
#include "planner/peak.hpp"
#include "planner/report_bill.hpp"
#include "planner/time_constants.hpp"

namespace plimsoll::report {
namespace {

double seconds(const Priced& p) { return static_cast<double>(p.time.nanoseconds) * 1e-9; }

/// "5.231 s", "812.4 ms".
std::string duration(double s) {
  if (s >= 100) return fmt::format("{:.1f} s", s);
  if (s >= 1) return fmt::format("{:.3f} s", s);
  if (s >= 1e-3) return fmt::format("{:.1f} ms", s * 1e3);
  return fmt::format("{:.1f} us", s * 1e6);
}

std::string whole(double v) { return grouped(static_cast<Int128>(std::llround(v))); }

std::string list_text(const std::vector<std::int64_t>& list) {
  std::string out = "[";
  for (const std::int64_t v : list) out += fmt::format("{}{}", out.size() > 1 ? ", " : "", v);
  return out + "]";
}

/// What the job leaves open besides the layout: "seq = 16384  nodes = 4"; "" where nothing.
std::string open_fields(const Problem& problem, const Layout& l) {
  std::string out;
  const auto open = [&](const char* name, std::int64_t value) {
    const auto it = problem.job->layout.find(name);
    if (it != problem.job->layout.end() && it->second.values.size() > 1)
      out += fmt::format(
          "{}{} = {}", out.empty() ? "" : "  ", name,
          value % 1024 == 0 ? fmt::format("{}Ki", value / 1024) : std::to_string(value));
  };
  open("seq", l.seq);
  open("batch", l.batch);
  if (problem.cluster->nodes_are_free())
    out += fmt::format("{}nodes = {}", out.empty() ? "" : "  ", l.nodes);
  return out;
}

/// Used of what there is: "61.32 GiB of 79.18 GiB (22.6 % left)".
std::string memory(const Priced& p) {
  const Int128 left = p.hbm_bytes - p.peak_bytes;
  if (left < 0)
    return fmt::format("{} of {} ({} over)", human_bytes(p.peak_bytes), human_bytes(p.hbm_bytes),
                       human_bytes(-left));
  return fmt::format("{} of {} ({} left, {})", human_bytes(p.peak_bytes), human_bytes(p.hbm_bytes),
                     human_bytes(left),
                     percent(static_cast<double>(left), static_cast<double>(p.hbm_bytes)));
}

struct Cause {
  const char* name;
  double StepTime::*seconds;
};
constexpr Cause kCauses[] = {{"compute", &StepTime::compute},
                             {"recomputation", &StepTime::recompute},
                             {"tensor-parallel traffic", &StepTime::tp},
                             {"context-parallel traffic", &StepTime::cp},
                             {"expert traffic", &StepTime::ep},
                             {"data-parallel traffic", &StepTime::dp},
                             {"sends between stages", &StepTime::p2p},
                             {"pipeline bubble", &StepTime::bubble},
                             {"optimizer", &StepTime::optimizer}};

/// What a runner-up spends more on than the best: the largest difference.
std::string lost_on(const Priced& best, const Priced& other) {
  const Cause* most = nullptr;
  double difference = 0;
  for (const Cause& cause : kCauses) {
    const double d = other.time.*cause.seconds - best.time.*cause.seconds;
    if (d > difference) difference = d, most = &cause;
  }
  return most == nullptr ? "" : most->name;
}

bool is_tie(const Priced& best, const Priced& other) {
  return std::abs(seconds(other) / seconds(best) - 1) < time_constants::kTie;
}

/// "+2.0 %, a tie: pipeline bubble".
std::string lost_time(const Priced& best, const Priced& other) {
  const double more = seconds(other) / seconds(best) - 1;
  const std::string on = more <= 0 ? "" : lost_on(best, other);
  return fmt::format("{:+.1f} %{}{}", more * 100, is_tie(best, other) ? ", a tie" : "",
                     on.empty() ? "" : ": " + on);
}

/// "peak +4.2 %": of another objective, whatever preferences add to it.
std::string lost_value(const PlanResult& r, const Priced& best, const Priced& other) {
  const double a = best.value.to_double(), b = other.value.to_double();
  if (best.value == other.value) return fmt::format("same {}", r.objective);
  return a == 0 ? fmt::format("{} {}", r.objective, other.value.str())
                : fmt::format("{} {:+.1f} %", r.objective, (b / a - 1) * 100);
}

std::string title(const Problem& problem, const Heading& heading, const Style& style) {
  return paragraph(
      style,
      fmt::format("{} · {}, {} parameters · {} · {}", heading.job, heading.model,
                  grouped(problem.program->parameter_count()), heading.framework, heading.cluster),
      2);
}

/// The categories of the peak stage at its peak, largest first: "activations 31.20 GiB, …".
std::string largest(const StageBill& stage, std::size_t how_many) {
  std::vector<std::pair<Int128, std::string>> all;
  for (std::size_t c = 0; c < kCategoryCount; ++c)
    if (stage.categories[c] > 0)
      all.emplace_back(stage.categories[c], std::string(name(static_cast<Category>(c))));
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string out;
  for (std::size_t i = 0; i < all.size() && i < how_many; ++i)
    out += fmt::format("{}{} {}", i == 0 ? "" : ", ", all[i].second, human_bytes(all[i].first));
  return out;
}

std::string largest_items(const StageBill& stage, std::size_t how_many) {
  std::vector<const BillLine*> lines;
  for (const BillLine& line : stage.lines)
    if (line.bytes > 0) lines.push_back(&line);
  std::stable_sort(lines.begin(), lines.end(),
                   [](const BillLine* a, const BillLine* b) { return a->bytes > b->bytes; });
  std::string out;
  for (std::size_t i = 0; i < lines.size() && i < how_many; ++i)
    out += fmt::format("{}{} {}", i == 0 ? "" : ", ", lines[i]->name, human_bytes(lines[i]->bytes));
  return out;
}

const StageBill& peak_stage(const Bill& bill) {
  return bill.stages[static_cast<std::size_t>(bill.peak_stage)];
}

std::string counts(const PlanResult& r) {
  if (r.space == 0) return "No combination of the variables' values is possible.";
  return fmt::format(
      "{} layouts in the space, {} looked at, {} found to fit and to meet every "
      "requirement.",
      grouped(r.space), grouped(r.evaluated), grouped(r.feasible_count));
}

std::string how_sure(const PlanResult& r, bool serve) {
  switch (r.status) {
    case PlanResult::optimal:
      if (serve) return "Nothing else in that space is better.";
      return "Nothing else in that space is better, by the time model: every layout that was not "
             "looked at has a lower bound past the last one listed.";
    case PlanResult::feasible:
      return r.stopped ? "Stopped before the end: the best so far."
                       : "The budget ended the search: the best so far.";
    case PlanResult::infeasible:
    case PlanResult::unknown:
      break;
  }
  return "";
}

void add_time(Table& table, const Priced& p) {
  const double total = seconds(p);
  for (const Cause& cause : kCauses) {
    const double s = p.time.*cause.seconds;
    if (s < total * 5e-4) continue;
    table.add({std::string(cause.name), duration(s), percent(s, total)});
  }
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
            : fmt::format("{} a step, {} tokens/s", duration(seconds(best)),
                          whole(best.time.tokens_per_second));
  out += paint(
      style, Paint::bold,
      fmt::format("{}: {}\n\n", r.status == PlanResult::optimal ? "best" : "best so far", answer));
  out += title(problem, heading, style) + "\n";
  out += "  " + paint(style, Paint::green, layout_line(problem, l, "best")) + "\n";
  if (const std::string open = open_fields(problem, l); !open.empty())
    out += "  # with " + open + "\n";
  out += "\n";
  Table facts({{}, {Table::Align::left, style.width - 14}});
  facts.add({"peak", memory(best)});
  const Bill full = bill(problem, l);
  const StageBill& stage = peak_stage(full);
  const std::string where =
      full.stages.size() == 1 ? "each GPU" : fmt::format("stage {}", full.peak_stage);
  facts.add({"bound by", fmt::format("{}{}: {}", where,
                                     stage.peak_moment.empty() ? "" : ", at " + stage.peak_moment,
                                     largest(stage, 4))});
  if (!serve) {
    facts.add({"step", fmt::format("{}, {} micro-batches of {}", duration(seconds(best)),
                                   grouped(l.microbatches), l.mbs)});
    facts.add({"rate", fmt::format("{} tokens/s, {} a GPU; {:.1f} TFLOP/s a GPU, MFU {}",
                                   whole(best.time.tokens_per_second),
                                   whole(best.time.tokens_per_second / gpus),
                                   best.time.tflops_per_gpu, percent(best.time.mfu, 1))});
    if (best.days)
      facts.add(
          {"run", fmt::format("{:.1f} days{}", best.days->to_double(),
                              best.cost ? fmt::format(", {} USD", whole(best.cost->to_double()))
                                        : ", no price of the GPU is given")});
  }
  for (const Condition* c : best.unmet) facts.add({"not met", fmt::format("prefer {}", c->name)});
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
            ? fmt::format("{} a step: {}", duration(seconds(x.best)), x.layout)
            : fmt::format("{} sequences: {}", grouped(x.best.layout.sequences), x.layout);
    table.add({x.change, gives});
  }
  return "\n  changes that would do, each planned again\n" + table.str(style, 2);
}

std::string nothing_text(const Problem& problem, const PlanResult& r, const Style& style) {
  const bool no = r.status == PlanResult::infeasible;
  std::string answer = no ? "nothing fits" : "nothing found that fits";
  if (r.space == 0)
    answer =
        r.why.empty() ? "no layout is possible" : fmt::format("no layout is possible: {}", r.why);
  std::string detail;
  if (r.tightest) {
    const Priced& t = *r.tightest;
    const Int128 over = t.peak_bytes - t.hbm_bytes;
    if (over > 0)
      answer += fmt::format(": the nearest layout needs {} of {} ({} over)",
                            human_bytes(t.peak_bytes), human_bytes(t.hbm_bytes), human_bytes(over));
    else
      answer = no ? "no layout that fits meets every requirement"
                  : "none found that meets every requirement";
    const Bill full = bill(problem, t.layout);
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
  if (r.space == 0 && !r.emptied_by.empty())
    detail += paragraph(
        style, fmt::format("Most were turned away by the requirement '{}'.", r.emptied_by), 2);
  Heading head;
  const Layout shown = r.tightest ? r.tightest->layout : Layout{};
  if (r.tightest) head = heading(problem, shown);
  std::string out = paint(style, Paint::bold, answer + "\n\n");
  if (r.tightest) out += title(problem, head, style);
  out += detail + "\n";
  out += paragraph(style, counts(r), 2);
  if (r.status == PlanResult::unknown)
    out += paragraph(style,
                     r.stopped ? "Stopped before the end: a layout may fit all the same."
                               : "The budget ended the search: a layout may fit all the same.",
                     2);
  out += relaxations(r, style);
  if (no && r.space > 0 && r.relaxations.empty())
    out += paragraph(style, "No single change that was tried makes it fit.", 2);
  return out;
}

}  // namespace

std::string layout_line(const Problem& problem, const Layout& l, const std::string& name) {
  std::string out = "layout " + name + " {";
  const auto add = [&](std::string_view what, const std::string& value) {
    out += fmt::format(" {} = {} ", what, value);
  };
  const auto number = [&](std::string_view what, std::int64_t value, std::int64_t unnamed) {
    if (value != unnamed) add(what, std::to_string(value));
  };
  const auto framework_says = [&](Var v) {
    const auto& defaults = problem.inventory.defaults;
    return std::any_of(defaults.begin(), defaults.end(),
                       [&](const auto& d) { return d.first == v; });
  };
  number("tp", l.tp, problem.job->serve ? 0 : 1);
  number("pp", l.pp, 1);
  number("vpp", l.vpp, 1);
  number("cp", l.cp, 1);
  number("ep", l.ep, 1);
  number("etp", l.etp, 1);
  const bool serve = problem.job->serve;
  if (!serve) {
    number("zero", l.zero, framework_says(Var::zero) ? -1 : 0);
    number("shard", l.shard, l.dp * l.cp);
    add("mbs", std::to_string(l.mbs));
    const auto& modes = problem.inventory.recompute_modes;
    if (l.recompute != 0 || framework_says(Var::recompute))
      add("recompute", l.recompute < modes.size() ? modes[l.recompute] : "none");
    if (!l.recompute_layers.empty() && l.recompute_layers != l.stage_layers)
      add("recompute_layers", list_text(l.recompute_layers));
  }
  if (l.stage_layers != default_stage_layers(problem.program->layer_count, l.pp))
    add("stage_layers", list_text(l.stage_layers));
  if (!l.stage_pool.empty()) {
    std::string pools = "[";
    for (const std::uint32_t p : l.stage_pool)
      pools += (pools.size() > 1 ? ", " : "") + problem.cluster->pools[p].name;
    add("stage_pool", pools + "]");
  }
  if (!serve && (l.tp > 1 || l.sp)) add("sp", l.sp ? "true" : "false");
  const Schedule unnamed = l.vpp > 1 ? Schedule::interleaved : Schedule::one_f_one_b;
  if (!serve && l.schedule != unnamed) add("schedule", std::string(plimsoll::name(l.schedule)));
  if (l.offload.sign() != 0) add("offload", l.offload.str());
  return out + (out.back() == '{' ? " }" : "}");
}

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
