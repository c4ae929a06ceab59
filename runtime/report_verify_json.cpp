// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "planner/report_json.hpp"
#include "runtime/report_verify.hpp"
#include "runtime/timeline.hpp"

namespace plimsoll::report {

namespace {

using runtime::Difference;
using runtime::RankCheck;

Json differences(const std::vector<Difference>& list) {
  Json out = Json::array();
  for (const Difference& d : list) {
    Json line;
    line["name"] = d.name;
    line["category"] = name(d.category);
    line["predicted_bytes"] = d.predicted;
    line["observed_bytes"] = d.observed;
    line["difference"] = d.observed - d.predicted;
    out.push_back(std::move(line));
  }
  return out;
}

Json rank(const RankCheck& r) {
  Json out;
  out["rank"] = r.rank;
  out["stage"] = r.stage;
  out["predicted_bytes"] = r.predicted;
  out["observed_bytes"] = r.observed;
  out["difference"] = r.difference();
  out["reserved_bytes"] = r.reserved;
  out["bill_reserved_bytes"] = r.bill_reserved;
  out["predicted_moment"] = r.predicted_moment;
  out["observed_moment"] = r.observed_moment;
  if (r.difference() != 0) {
    out["categories"] = differences(r.categories);
    out["items"] = differences(r.items);
  }
  return out;
}

Json gpu(const runtime::GpuSeen& g) {
  Json out;
  out["gpu"] = g.gpu;
  out["driver"] = g.driver;
  out["predicted_reserved_bytes"] = g.predicted_reserved;
  out["predicted_context_bytes"] = g.predicted_context;
  out["predicted_scratch_bytes"] = g.predicted_scratch;
  out["predicted_used_bytes"] = g.predicted_used;
  out["used_bytes"] = g.used;
  out["used_before_bytes"] = g.used_before;
  out["libraries_bytes"] = g.libraries;
  out["scratch_bytes"] = g.scratch;
  out["step_seconds"] = g.seconds;
  out["predicted_step_seconds"] = g.predicted_seconds;
  out["ops"] = Json::array();
  for (const auto& k : g.kinds) {
    Json line;
    line["name"] = k.name;
    line["backward"] = k.backward;
    line["runs"] = k.runs;
    line["seconds"] = k.seconds;
    if (k.predicted) line["predicted_seconds"] = *k.predicted;
    out["ops"].push_back(std::move(line));
  }
  return out;
}

}  // namespace

std::string verify_json(const Problem& p, const Bill& bill, const runtime::Verification& v) {
  Json out;
  out["schema"] = "plimsoll.verify/1";
  out["device"] = v.device;
  out["ranks"] = Json::array();
  for (const RankCheck& r : v.ranks) out["ranks"].push_back(rank(r));
  out["worst_difference"] = v.worst_difference;
  out["agrees"] = v.agrees;
  out["verdict"] = bill.verdict;
  out["range"] = Json::parse(range_json(bill.range));
  if (!v.losses.empty()) out["losses"] = v.losses;
  if (v.gpu) out["gpu"] = gpu(*v.gpu);
  if (v.failure) {
    Json& f = out["failure"];
    f["rank"] = v.failure->rank;
    f["tensor"] = v.failure->tensor;
    f["bytes"] = v.failure->bytes;
    f["step"] = v.failure->at.step;
    f["moment"] =
        v.failure->at.step == 0 ? "before the first step" : runtime::point_name(p, v.failure->at);
    f["live_bytes"] = v.failure->live;
    f["reserved_bytes"] = v.failure->reserved;
    if (v.failure->predicted_live) f["predicted_live_bytes"] = *v.failure->predicted_live;
    for (std::size_t i = 0; i < kCategoryCount; ++i)
      if (v.failure->categories[i] > 0)
        f["categories"][std::string(name(static_cast<Category>(i)))] = v.failure->categories[i];
  }
  return out.dump(2) + '\n';
}

}  // namespace plimsoll::report
