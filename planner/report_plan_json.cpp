// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/report_bill.hpp"
#include "planner/report_json.hpp"
#include "planner/report_plan.hpp"

namespace plimsoll::report {
namespace {

Json choice(const Problem& problem, const Priced& p) {
  Json out;
  std::vector<std::string> pools;
  for (const Pool& pool : problem.cluster->pools) pools.push_back(pool.name);
  out["layout"] = Json::parse(layout_json(p.layout, problem.inventory.recompute_modes, pools));
  out["peak_bytes"] = integer(p.peak_bytes);
  out["headroom"] = p.headroom();
  if (problem.job->serve) {
    out["sequences"] = p.layout.sequences;
    return out;
  }
  const Layout& l = p.layout;
  const auto gpus = static_cast<double>(l.tp * l.pp * l.cp * l.dp);
  out["step_seconds"] = static_cast<double>(p.time.nanoseconds) / 1e9;
  out["tokens_per_second"] = p.time.tokens_per_second;
  out["tokens_per_second_per_gpu"] = p.time.tokens_per_second / gpus;
  out["tflops_per_gpu"] = p.time.tflops_per_gpu;
  out["mfu"] = p.time.mfu;
  out["bubble"] = p.time.bubble_share;
  if (p.days) out["days"] = p.days->to_double();
  if (p.cost) out["cost"] = p.cost->to_double();
  // What the job left open besides the layout.
  const auto open = [&](const char* name, std::int64_t value) {
    const auto it = problem.job->layout.find(name);
    if (it != problem.job->layout.end() && it->second.values.size() > 1) out[name] = value;
  };
  open("seq", l.seq);
  open("batch", l.batch);
  if (problem.cluster->nodes_are_free()) out["nodes"] = l.nodes;
  return out;
}

Json preferences(const Problem& problem, const PlanResult& result) {
  const Sources& sources = problem.module->sources();
  Json out = Json::array();
  for (const PreferenceCost& p : result.preferences) {
    const Span span = p.preference->span;
    Json one;
    one["name"] = p.preference->name;
    one["file"] = sources[span.file].name();
    one["line"] = sources[span.file].position(span.begin).line;
    one["met"] = p.met;
    one["cost"] = p.cost ? Json(*p.cost) : Json();
    one["proven"] = p.proven;
    one["other"] = p.other ? choice(problem, *p.other) : Json();
    out.push_back(std::move(one));
  }
  return out;
}

Json gpus(const Problem& problem, const std::vector<OnGpu>& rows) {
  Json out = Json::array();
  for (const OnGpu& row : rows) {
    Json one;
    one["gpu"] = row.gpu;
    one["own"] = row.own;
    one["status"] = std::string(name(row.status));
    if (!row.why.empty()) one["reason"] = row.why;
    one["best"] = row.best ? choice(problem, *row.best) : Json();
    one["plan_text"] = row.plan_text;
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace

std::string plan_json(const Problem& problem, const PlanResult& result,
                      const std::vector<OnGpu>& on) {
  Json out;
  out["schema"] = "plimsoll.plan/1";
  out["status"] = std::string(name(result.status));
  if (!result.why.empty()) out["reason"] = result.why;
  out["best"] = result.best ? choice(problem, *result.best) : Json();
  if (result.best) {
    const Bill full = peak_bill(problem, result.best->layout);
    out["best"]["verdict"] = full.verdict;
    out["best"]["range"] = Json::parse(range_json(full.range));
  }
  out["alternatives"] = Json::array();
  for (const Priced& p : result.alternatives) out["alternatives"].push_back(choice(problem, p));
  Json search;
  search["space"] = result.space;
  search["feasible"] = result.feasible_count;
  search["evaluated"] = result.evaluated;
  search["solver_queries"] = result.solver_queries;
  if (result.proof)
    search["proof"] = {{"points", result.proof->points},
                       {"rules", result.proof->rules},
                       {"nogoods", result.proof->nogoods}};
  if (result.status == PlanResult::feasible && result.gap < 1e300) search["gap"] = result.gap;
  if (!result.unproven.empty()) search["unproven"] = result.unproven;
  out["search"] = std::move(search);
  if (!result.preferences.empty()) out["preferences"] = preferences(problem, result);
  if (!result.growth.empty()) out["growth"] = growth_json(result.growth);
  if (!result.pareto.empty()) {
    out["pareto"] = Json::array();
    for (const Priced& p : result.pareto) out["pareto"].push_back(choice(problem, p));
  }
  if (!on.empty()) out["on"] = gpus(problem, on);
  out["core"] = Json::array();
  for (const CoreItem& item : result.core) {
    Json one = {{"name", item.name}, {"file", item.file}, {"line", item.line}};
    if (item.bytes) one["bytes"] = integer(*item.bytes);
    out["core"].push_back(std::move(one));
  }
  if (result.core_over > 0) out["core_over_bytes"] = integer(result.core_over);
  if (!result.never.empty()) out["never"] = result.never;
  out["relaxations"] = Json::array();
  for (const Relaxation& r : result.relaxations) {
    Json one;
    one["change"] = r.change;
    one["value"] = r.value;
    one["plan_text"] = r.plan_text;
    one["best"] = choice(problem, r.best);
    out["relaxations"].push_back(std::move(one));
  }
  return out.dump(2) + '\n';
}

}  // namespace plimsoll::report
