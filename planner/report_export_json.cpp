// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/report_export.hpp"
#include "planner/report_json.hpp"

namespace plimsoll::report {

std::string export_json(const Problem& p, const exports::Writer& writer,
                        const exports::Exported& made) {
  Json out;
  out["schema"] = "plimsoll.export/1";
  out["job"] = p.job->name;
  out["tool"] = writer.tool;
  out["text"] = made.text;
  out["warnings"] = made.warnings;
  return out.dump(2) + '\n';
}

}  // namespace plimsoll::report
