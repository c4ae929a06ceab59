// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "planner/report_json.hpp"
#include "runtime/report_timeline.hpp"

namespace plimsoll::report {

namespace {

using runtime::MomentView;
using runtime::StepPart;
using runtime::StepPoint;
using runtime::StepTimeline;
using runtime::TimelineColumn;

Json categories(const runtime::CategoryBytes& bytes) {
  Json out = Json::object();
  for (std::size_t i = 0; i < kCategoryCount; ++i)
    if (static_cast<Category>(i) != Category::overhead &&
        static_cast<Category>(i) != Category::fragmentation)
      out[std::string(name(static_cast<Category>(i)))] = bytes[i];
  return out;
}

std::string_view word(StepPart part) {
  return part == StepPart::update ? "update" : part == StepPart::between ? "between" : name(part);
}

void put_point(Json& out, const StepPoint& at) {
  out["part"] = word(at.part);
  out["micro_batch"] = at.micro_batch < 0 ? Json() : Json(at.micro_batch);
  out["chunk"] = at.chunk;
}

Json moment(const MomentView& m) {
  Json out;
  out["moment"] = m.name;
  out["number"] = m.number;
  put_point(out, m.at);
  out["bytes"] = m.bytes;
  out["categories"] = categories(m.categories);
  out["items"] = Json::array();
  for (const auto& line : m.lines)
    out["items"].push_back({{"name", line.name},
                            {"category", std::string(name(line.category))},
                            {"bytes", line.bytes}});
  return out;
}

Json columns(const std::vector<TimelineColumn>& list) {
  Json out = Json::array();
  for (const TimelineColumn& c : list) {
    Json column;
    put_point(column, c.at);
    column["moments"] = c.moments;
    if (c.many) column["many"] = true;
    column["bytes"] = c.bytes;
    column["categories"] = categories(c.categories);
    out.push_back(std::move(column));
  }
  return out;
}

Json step(const StepTimeline& s) {
  Json out;
  out["step"] = s.step;
  out["moments"] = s.moments;
  out["peak"] = moment(s.peak);
  out["parts"] = Json::array();
  for (const MomentView& m : s.parts) out["parts"].push_back(moment(m));
  out["columns"] = columns(s.columns);
  return out;
}

}  // namespace

std::string timeline_json(const Heading& heading, const Bill& bill, const runtime::Timeline& t) {
  Json out;
  out["schema"] = "plimsoll.timeline/1";
  out["job"] = heading.job;
  out["model"] = heading.model;
  out["framework"] = heading.framework;
  out["layout"] = Json::parse(layout_json(bill.layout, heading.recompute_modes, heading.pools));
  out["rank"] = t.place.rank;
  out["stage"] = t.place.stage;
  out["microbatches"] = t.micro_batches;
  out["peak_bytes"] = t.steady.peak.bytes;
  out["peak_moment"] = t.steady.peak.name;
  out["first_step"] = step(t.first);
  out["steady_step"] = step(t.steady);
  out["around_peak"] = columns(t.around);
  return out.dump(2) + '\n';
}

}  // namespace plimsoll::report
