// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>

#include "planner/explain.hpp"
#include "planner/report_json.hpp"
#include "planner/report_parts.hpp"
#include "planner/report_plan_parts.hpp"

namespace plimsoll::report {
namespace {

Json times(const StepTime& time) {
  Json out;
  for (const Cause& cause : kCauses) {
    std::string key = cause.name;
    std::replace_if(
        key.begin(), key.end(), [](char c) { return c == ' ' || c == '-'; }, '_');
    out[key] = time.*cause.seconds;
  }
  return out;
}

Json rival(const Rival& r, const Heading& heading, const Rival* own) {
  Json out;
  out["layout"] = Json::parse(layout_json(r.priced.layout, heading.recompute_modes, heading.pools));
  out["step_seconds"] = seconds(r.priced);
  out["peak_bytes"] = integer(r.priced.peak_bytes);
  out["hbm_bytes"] = integer(r.priced.hbm_bytes);
  if (own != nullptr) out["tie"] = is_tie(own->priced, r.priced);
  out["seconds"] = times(r.priced.time);
  Json bytes;
  for (std::size_t c = 0; c < kCategoryCount; ++c)
    bytes[std::string(name(static_cast<Category>(c)))] = integer(r.categories[c]);
  out["bytes"] = std::move(bytes);
  return out;
}

Json binds(const Bill& bill) {
  const StageBill& stage = peak_stage(bill);
  Json out;
  out["stage"] = stage.stage;
  out["moment"] = stage.peak_moment;
  out["peak_bytes"] = integer(stage.peak_bytes);
  out["hbm_bytes"] = integer(stage.hbm_bytes);
  out["moments"] = Json::array();
  for (const auto& [moment, bytes] : stage.moments)
    out["moments"].push_back({{"moment", moment}, {"bytes", integer(bytes)}});
  return out;
}

}  // namespace

Json growth_json(const std::vector<Growth>& growth) {
  Json out = Json::array();
  for (const Growth& g : growth) {
    Json one;
    one["variable"] = g.knob;
    one["now"] = g.now;
    one["largest"] = g.largest;
    one["bounded"] = !g.endless;
    if (g.next > 0) {
      one["next"] = g.next;
      one["next_bytes"] = integer(g.next_bytes);
    }
    out.push_back(std::move(one));
  }
  return out;
}
std::string explain_json(const Heading& heading, const Bill& bill,
                         const std::vector<SingleStep>& steps, const Why& why) {
  Json out;
  out["schema"] = "plimsoll.explain/1";
  out["bill"] = Json::parse(bill_json(heading, bill));
  out["binds"] = binds(bill);
  const Rival* own = why.own ? &*why.own : nullptr;
  out["own"] = own != nullptr ? rival(*own, heading, nullptr) : Json();
  out["others"] = Json::array();
  for (const Rival& r : why.others) out["others"].push_back(rival(r, heading, own));
  out["proven"] = why.proven;
  out["beyond_memory"] = Json::array();
  for (const Rival& r : why.beyond) out["beyond_memory"].push_back(rival(r, heading, own));
  out["growth"] = growth_json(why.growth);
  out["steps"] = Json::array();
  for (const SingleStep& step : steps) {
    Json one;
    one["change"] = step.change;
    one["layout"] = Json::parse(layout_json(step.layout, heading.recompute_modes, heading.pools));
    one["peak_bytes"] = integer(step.peak_bytes);
    one["hbm_bytes"] = integer(step.hbm_bytes);
    one["fits"] = step.fits;
    one["excluded"] = step.excluded;
    if (step.nanoseconds > 0) one["step_seconds"] = static_cast<double>(step.nanoseconds) / 1e9;
    out["steps"].push_back(std::move(one));
  }
  return out.dump(2) + '\n';
}

}  // namespace plimsoll::report
