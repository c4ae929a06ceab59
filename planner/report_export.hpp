// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>

#include "planner/export.hpp"

namespace plimsoll::report {

/// `plimsoll.export/1` (docs/schemas/export.schema.json), ends with a newline.
std::string export_json(const Problem&, const exports::Writer&, const exports::Exported&);

}  // namespace plimsoll::report
