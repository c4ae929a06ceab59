// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>

#include "planner/peak.hpp"

namespace plimsoll {

/// The bill of a serving job: weights, cache of \a layout.sequences full contexts, activations of a prefill.
Bill serve_bill(const Problem&, const Layout&);

}  // namespace plimsoll
