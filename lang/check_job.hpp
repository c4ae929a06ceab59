// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include "lang/module.hpp"

namespace plimsoll {

/// Pins that cannot hold whatever else is chosen: a degree that does not divide the GPUs, the
/// heads, the experts or the batch, stages that do not add up to the layers. Private to lang/.
void check_degrees(const Module&, const Job&, const Program&, Diagnostics&);

}  // namespace plimsoll
