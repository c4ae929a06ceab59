// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>

#include "planner/report_bill.hpp"
#include "runtime/timeline.hpp"

/// A timeline as people and programs read it: where the peak is and why there, then the picture.
namespace plimsoll::report {

/// Columns that the picture has in a report of this style.
std::size_t timeline_columns(const Style&);

/// \a t was made with timeline_columns().
std::string timeline_text(const Heading&, const Bill&, const runtime::Timeline& t, const Style&);

/// `plimsoll.timeline/1` (docs/schemas/timeline.schema.json), ends with a newline.
std::string timeline_json(const Heading&, const Bill&, const runtime::Timeline&);

}  // namespace plimsoll::report
