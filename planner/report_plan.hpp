// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>
#include <vector>

#include "planner/enumerate.hpp"
#include "planner/on.hpp"
#include "planner/report_style.hpp"

/// A plan as people and programs read it. Text is for a terminal, the answer first; JSON is
/// `plimsoll.plan/1` (docs/schemas/plan.schema.json). The same result gives the same bytes.
namespace plimsoll::report {

/// A `layout` declaration that means \a layout, on one line, to be pasted into the file.
std::string layout_line(const Problem&, const Layout&, const std::string& name);

std::string plan_text(const Problem&, const PlanResult&, const Style&);
/// \a on: what plan_on() gave, "on" of the object; left out where empty.
std::string plan_json(const Problem&, const PlanResult&, const std::vector<OnGpu>& on = {});

/// The answer of `--on`: a line a GPU.
std::string on_text(const Problem&, const PlanResult&, const std::vector<OnGpu>&, const Style&);
/// The answer of `--pareto`: step time against memory left.
std::string pareto_text(const Problem&, const PlanResult&, const Style&);

}  // namespace plimsoll::report
