// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>

#include "planner/enumerate.hpp"
#include "planner/report_bill.hpp"
#include "planner/workshop.hpp"
#include "runtime/timeline.hpp"

/// The answer of a command as one HTML file that needs nothing else: data, style and script are in
/// it. Its numbers are those of the commands' JSON.
namespace plimsoll::cli {

/// What a page shows; parts that are nullptr are left out.
struct Page {
  std::string command;  ///< "plan", "bill", "timeline"
  std::string file;
  std::string answer;  ///< one sentence
  std::string text;    ///< the report as text, for readers without scripts
  const Problem* problem = nullptr;
  const report::Heading* heading = nullptr;
  const Bill* bill = nullptr;
  const PlanResult* plan = nullptr;
  const runtime::Timeline* timeline = nullptr;
  const Workshop* workshop = nullptr;
};

/// Columns of the page's pictures: those of `timeline --json`.
inline constexpr std::size_t kPageColumns = 240;

std::string html(const Page&);

}  // namespace plimsoll::cli
