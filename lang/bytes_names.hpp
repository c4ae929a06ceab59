// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include "lang/module.hpp"

/// What `bytes("…")` may ask for. Private to lang/.
namespace plimsoll {

/// Reports the calls of `bytes` in a job's condition that name no category, no declared item or
/// state, and no op or weight (whose saved values have rows of their own). False after errors.
bool check_bytes_names(const Module&, const Job&, const ast::Expr&, Diagnostics&);

}  // namespace plimsoll
