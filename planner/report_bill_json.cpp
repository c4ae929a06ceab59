// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <string>
#include <vector>

#include "lang/diagnostics.hpp"
#include "planner/report_bill.hpp"
#include "planner/report_json.hpp"

namespace plimsoll::report {
namespace {

Json item(const BillLine& line) {
  Json out;
  out["name"] = line.name;
  out["category"] = name(line.category);
  out["bytes"] = integer(line.bytes);
  out["formula"] = line.formula;
  out["lifetime"] = line.lifetime;
  out["source"] = line.source;
  out["divided_by"] = line.divided_by;
  return out;
}

Json categories(const StageBill& stage, bool serve) {
  Json out;
  for (std::size_t i = 0; i < kCategoryCount; ++i) {
    const auto category = static_cast<Category>(i);
    if (serve && category == Category::gradients) {
      PLIMSOLL_ASSERT(stage.categories[i] == 0);
      continue;
    }
    out[std::string(name(category))] = integer(stage.categories[i]);
  }
  return out;
}

Json beside(const OtherMoment& m) {
  Json out;
  out["moment"] = m.name;
  out["bytes"] = integer(m.bytes);
  out["allocated_bytes"] = integer(m.allocated);
  out["live"] = Json::object();
  for (std::size_t i = 0; i < kCategoryCount; ++i)
    if (m.live[i] > 0)
      out["live"][std::string(name(static_cast<Category>(i)))] = integer(m.live[i]);
  out["own"] = Json::array();
  for (const auto& [item, bytes] : m.own)
    out["own"].push_back({{"name", item}, {"bytes", integer(bytes)}});
  return out;
}

Json stage_object(const StageBill& stage, bool serve) {
  Json out;
  out["stage"] = stage.stage;
  out["layers"] = stage.layers;
  Int128 items = 0, sums = 0;
  out["items"] = Json::array();
  for (const BillLine& line : stage.lines) {
    if (line.bytes == 0) continue;
    out["items"].push_back(item(line));
    items += line.bytes;
  }
  for (const Int128 bytes : stage.categories) sums += bytes;
  PLIMSOLL_ASSERT(items == stage.peak_bytes && sums == stage.peak_bytes);
  out["categories"] = categories(stage, serve);
  out["live_bytes"] = integer(stage.live_bytes);
  out["allocated_bytes"] = integer(stage.allocated_bytes);
  out["reserved_bytes"] = integer(stage.reserved_bytes);
  out["peak_bytes"] = integer(stage.peak_bytes);
  out["hbm_bytes"] = integer(stage.hbm_bytes);
  out["peak_moment"] = stage.peak_moment;
  if (serve) return out;
  out["in_flight"] = stage.in_flight;
  out["first_step_bytes"] = integer(stage.first_step_bytes);
  out["steady_bytes"] = integer(stage.steady_bytes);
  out["update_bytes"] = integer(stage.update_bytes);
  out["steady_allocated_bytes"] = integer(stage.steady_allocated_bytes);
  out["beside_steps"] = Json::array();
  for (const OtherMoment& m : stage.others) out["beside_steps"].push_back(beside(m));
  out["moments"] = Json::array();
  for (std::size_t i = 0; i < stage.moments_allocated.size(); ++i) {
    Json moment;
    moment["moment"] = stage.moments[i].first;
    moment["allocated_bytes"] = integer(stage.moments_allocated[i]);
    out["moments"].push_back(std::move(moment));
  }
  return out;
}

std::string word(RecomputeMode mode, const std::vector<std::string>& modes) {
  PLIMSOLL_ASSERT(mode < modes.size());
  return modes[mode];
}

/// Layers of each stage that are recomputed: all where a mode is chosen and nothing more was said.
std::vector<std::int64_t> recomputed(const Layout& layout) {
  if (!layout.recompute_layers.empty()) return layout.recompute_layers;
  if (layout.recompute != 0) return layout.stage_layers;
  return std::vector<std::int64_t>(layout.stage_layers.size(), 0);
}

Json layout_object(const Layout& layout, const std::vector<std::string>& recompute_modes,
                   const std::vector<std::string>& pools) {
  Json out;
  out["tp"] = layout.tp;
  out["pp"] = layout.pp;
  out["vpp"] = layout.vpp;
  out["cp"] = layout.cp;
  out["ep"] = layout.ep;
  out["etp"] = layout.etp;
  out["dp"] = layout.dp;
  out["zero"] = layout.zero;
  out["shard"] = layout.shard;
  out["mbs"] = layout.mbs;
  out["microbatches"] = layout.microbatches;
  out["recompute"] = word(layout.recompute, recompute_modes);
  out["recompute_layers"] = recomputed(layout);
  out["stage_layers"] = layout.stage_layers;
  for (const std::uint32_t pool : layout.stage_pool)
    if (pool < pools.size()) out["stage_pool"].push_back(pools[pool]);
  out["sp"] = layout.sp;
  out["schedule"] = name(layout.schedule);
  out["offload"] = layout.offload.to_double();
  return out;
}

}  // namespace

std::string layout_json(const Layout& layout, const std::vector<std::string>& recompute_modes,
                        const std::vector<std::string>& pools) {
  return layout_object(layout, recompute_modes, pools).dump();
}

namespace {

Json bill_object(const Heading& heading, const Bill& bill) {
  Json out;
  out["schema"] = "plimsoll.bill/1";
  out["job"] = heading.job;
  out["model"] = heading.model;
  out["params"] = integer(bill.params);
  out["framework"] = heading.framework;
  out["layout"] = layout_object(bill.layout, heading.recompute_modes, heading.pools);
  if (heading.serve) {
    out["sequences"] = bill.sequences;
    out["kv_blocks"] = bill.kv_blocks;
    out["kv_tokens"] = bill.kv_tokens ? Json(*bill.kv_tokens) : Json();
  }
  out["stages"] = Json::array();
  for (const StageBill& stage : bill.stages)
    out["stages"].push_back(stage_object(stage, heading.serve));
  out["peak_bytes"] = integer(bill.peak_bytes);
  out["peak_stage"] = bill.peak_stage;
  out["hbm_bytes"] = integer(bill.hbm_bytes);
  const auto hbm = static_cast<double>(bill.hbm_bytes);
  out["headroom"] = hbm == 0 ? 0.0 : static_cast<double>(bill.hbm_bytes - bill.peak_bytes) / hbm;
  out["fits"] = bill.fits;
  out["verdict"] = bill.verdict;
  if (!bill.range.why_none.empty() || !bill.range.of.empty())
    out["range"] = Json::parse(range_json(bill.range));
  if (heading.imbalance != 1) out["imbalance"] = heading.imbalance;
  if (heading.step_seconds) out["step_seconds"] = *heading.step_seconds;
  return out;
}

}  // namespace

std::string range_json(const Range& range) {
  Json out;
  if (range.of.empty()) {
    out["of"] = Json();
    out["reason"] = range.why_none;
    return out.dump();
  }
  out["of"] = range.of;
  out["low_bytes"] = integer(range.low);
  out["high_bytes"] = integer(range.high);
  out["runs"] = range.runs;
  out["share"] = range.share;
  out["runs_of"] = range.runs_of;
  return out.dump();
}

std::string bill_json(const Heading& heading, const Bill& bill) {
  return bill_object(heading, bill).dump(2) + '\n';
}

std::string against_json(const Heading& heading, const Bill& bill, const Heading& other_heading,
                         const Bill& other) {
  Json out;
  out["schema"] = "plimsoll.against/1";
  out["bill"] = bill_object(heading, bill);
  out["against"] = bill_object(other_heading, other);
  return out.dump(2) + '\n';
}

std::string no_bill_json(const Problem& problem, const std::string& why) {
  Json out;
  out["schema"] = "plimsoll.bill/1";
  out["job"] = problem.job->name;
  out["status"] = "infeasible";
  out["reason"] = why;
  return out.dump(2) + '\n';
}

}  // namespace plimsoll::report
