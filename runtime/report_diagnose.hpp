// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>

#include "planner/report_bill.hpp"
#include "runtime/diagnose.hpp"

namespace plimsoll::report {

/// The verdict, the log's figures beside the bill's, the request that failed, what would explain a
/// difference and what would have fitted.
std::string diagnose_text(const Heading&, const Bill&, const runtime::Diagnosis&, const Style&);

/// `plimsoll.diagnose/1` (docs/schemas/diagnose.schema.json), ends with a newline.
std::string diagnose_json(const Heading&, const runtime::Diagnosis&);

}  // namespace plimsoll::report
