// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>

#include "planner/report_bill.hpp"
#include "runtime/verify.hpp"

namespace plimsoll::report {

/// Whether they agree, then a line a rank (equal ones in a row share one), then what differs.
std::string verify_text(const Heading&, const Bill&, const Problem&, const runtime::Verification&,
                        const Style&);

/// `plimsoll.verify/1` (docs/schemas/verify.schema.json), ends with a newline.
std::string verify_json(const Problem&, const Bill&, const runtime::Verification&);

}  // namespace plimsoll::report
