// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "cli/page/data.hpp"

#include <limits>

#include "planner/report_plan.hpp"
#include "planner/report_plan_parts.hpp"

namespace plimsoll::cli {

namespace {

/// As the commands' JSON writes it.
Json integer(Int128 value) {
  if (value >= std::numeric_limits<std::int64_t>::min() &&
      value <= std::numeric_limits<std::int64_t>::max())
    return static_cast<std::int64_t>(value);
  return static_cast<double>(value);
}

Json stage(const StageBill& of, Strings& strings) {
  Json out;
  out["stage"] = of.stage;
  out["layers"] = of.layers;
  out["inFlight"] = of.in_flight;
  out["categories"] = Json::array();
  for (const Int128 bytes : of.categories) out["categories"].push_back(integer(bytes));
  out["live"] = integer(of.live_bytes);
  out["allocated"] = integer(of.allocated_bytes);
  out["reserved"] = integer(of.reserved_bytes);
  out["peak"] = integer(of.peak_bytes);
  out["hbm"] = integer(of.hbm_bytes);
  out["moment"] = strings.add(of.peak_moment);
  out["items"] = Json::array();
  for (const BillLine& line : of.lines)
    if (line.bytes != 0)
      out["items"].push_back({strings.add(line.name), static_cast<int>(line.category),
                              integer(line.bytes), strings.add(line.formula),
                              strings.add(line.lifetime), strings.add(line.source)});
  return out;
}

/// One more or less of the text of each choice: what `--json` leaves to its readers.
Json choice_texts(const Page& page, const Priced& p, const Priced* best) {
  Json out;
  out["describe"] = describe(*page.problem, p.layout);
  out["line"] = report::layout_line(*page.problem, p.layout, "best");
  if (best != nullptr && best != &p && !page.problem->job->serve)
    out["loses"] = report::lost_time(*best, p);
  return out;
}

Json columns(const std::vector<runtime::TimelineColumn>& list,
             std::map<std::pair<std::string, Category>, std::size_t>& rows) {
  Json out = Json::array();
  std::map<std::size_t, std::int64_t> before;
  for (const runtime::TimelineColumn& c : list) {
    std::map<std::size_t, std::int64_t> now;
    for (const runtime::LiveLine& line : c.lines)
      now[rows.emplace(std::pair(line.name, line.category), rows.size()).first->second] +=
          line.bytes;
    Json changes = Json::array();
    for (const auto& [row, bytes] : now)
      if (const auto at = before.find(row); at == before.end() || at->second != bytes) {
        changes.push_back(row);
        changes.push_back(bytes);
      }
    for (const auto& [row, bytes] : before)
      if (!now.contains(row)) {
        changes.push_back(row);
        changes.push_back(0);
      }
    out.push_back({static_cast<int>(c.at.part), c.at.micro_batch, c.at.chunk, c.moments,
                   c.many ? 1 : 0, c.bytes, std::move(changes)});
    before = std::move(now);
  }
  return out;
}

std::size_t holding(const std::vector<runtime::TimelineColumn>& list, std::int64_t number) {
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i].number == number) return i;
  return 0;
}

}  // namespace

std::size_t Strings::add(const std::string& text) {
  const auto [at, added] = index_.emplace(text, all_.size());
  if (added) all_.push_back(text);
  return at->second;
}

Json page_bill(const Page& page, Strings& strings) {
  const Bill& bill = *page.bill;
  Json out;
  out["peakStage"] = bill.peak_stage;
  out["peak"] = integer(bill.peak_bytes);
  out["hbm"] = integer(bill.hbm_bytes);
  out["params"] = integer(bill.params);
  out["verdict"] = bill.verdict;
  out["fits"] = bill.fits;
  out["layout"] = describe(*page.problem, bill.layout);
  out["line"] = report::layout_line(*page.problem, bill.layout,
                                    page.plan == nullptr ? "this"
                                    : page.plan->best    ? "best"
                                                         : "nearest");
  if (page.heading->step_seconds) out["stepSeconds"] = *page.heading->step_seconds;
  if (page.heading->serve) {
    out["sequences"] = bill.sequences;
    out["context"] = page.heading->context;
  }
  out["stages"] = Json::array();
  for (const StageBill& one : bill.stages) out["stages"].push_back(stage(one, strings));
  return out;
}

Json page_plan(const Page& page) {
  const PlanResult& r = *page.plan;
  Json out = Json::parse(report::plan_json(*page.problem, r));
  const Priced* best = r.best ? &*r.best : nullptr;
  if (best != nullptr) {
    out["best"].update(choice_texts(page, *best, nullptr));
    out["causes"] = Json::array();
    if (!page.problem->job->serve)
      for (const report::Cause& cause : report::kCauses)
        if (const double s = best->time.*cause.seconds; s >= report::seconds(*best) * 5e-4)
          out["causes"].push_back({cause.name, s});
  }
  for (std::size_t i = 0; i < r.alternatives.size(); ++i)
    out["alternatives"][i].update(choice_texts(page, r.alternatives[i], best));
  for (std::size_t i = 0; i < r.pareto.size(); ++i)
    out["pareto"][i].update(choice_texts(page, r.pareto[i], best));
  for (std::size_t i = 0; i < r.relaxations.size(); ++i) {
    out["relaxations"][i].erase("plan_text");  // the whole file, each time
    out["relaxations"][i]["best"]["describe"] = r.relaxations[i].layout;
  }
  out["minimize"] = r.minimize;
  out["objective"] = r.objective;
  return out;
}

Json page_timeline(const Page& page, Strings& strings) {
  const runtime::Timeline& t = *page.timeline;
  std::map<std::pair<std::string, Category>, std::size_t> rows;
  Json out;
  out["rank"] = t.place.rank;
  out["stage"] = t.place.stage;
  out["microbatches"] = t.micro_batches;
  out["chunks"] = t.chunks;
  out["moments"] = t.steady.moments;
  out["peak"] = {{"bytes", t.steady.peak.bytes},
                 {"moment", t.steady.peak.name},
                 {"number", t.steady.peak.number},
                 {"step", holding(t.steady.columns, t.steady.peak.number)},
                 {"around", holding(t.around, t.steady.peak.number)}};
  out["step"] = columns(t.steady.columns, rows);
  out["around"] = columns(t.around, rows);
  out["rows"] = Json::array();
  std::vector<const std::pair<std::string, Category>*> in_order(rows.size());
  for (const auto& [row, number] : rows) in_order[number] = &row;
  for (const auto* row : in_order)
    out["rows"].push_back({strings.add(row->first), static_cast<int>(row->second)});
  return out;
}

Json page_workshop(const Workshop& shop) {
  std::map<Int128, std::size_t> index;
  Json values = Json::array();
  const auto number = [&](Int128 value) {
    const auto [at, added] = index.emplace(value, values.size());
    if (added) values.push_back(integer(value));
    return at->second;
  };
  Json out;
  out["models"] = Json::array();
  for (const Workshop::Model& model : shop.models)
    out["models"].push_back({model.name, integer(model.params)});
  out["attentions"] = shop.attentions;
  out["recomputes"] = shop.recomputes;
  out["zeros"] = shop.zeros;
  out["seqs"] = shop.seqs;
  out["batches"] = shop.batches;
  out["own"] = {0, shop.attention, shop.recompute, shop.zero, shop.batch, shop.seq};
  Json points = Json::array();
  for (const Workshop::Point& point : shop.points) {
    if (!point.possible) {
      points.push_back(0);
      continue;
    }
    // Stage, memory, then categories to the last that holds something.
    Json one = {point.stage, number(point.hbm_bytes)};
    std::size_t last = kCategoryCount;
    while (last > 0 && point.categories[last - 1] == 0) --last;
    for (std::size_t i = 0; i < last; ++i) one.push_back(number(point.categories[i]));
    points.push_back(std::move(one));
  }
  out["values"] = std::move(values);
  out["points"] = std::move(points);
  return out;
}

}  // namespace plimsoll::cli
