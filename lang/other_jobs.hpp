// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string_view>

#include "lang/module.hpp"

namespace plimsoll {

/// What compile() said, for a command on one job of a file: mistakes in the declarations of other
/// jobs that it does not name (beside) are warnings. Where a declaration has a syntax error, what
/// was said of it stays.
Diagnostics for_job(const Module&, std::string_view job, const Diagnostics&);

}  // namespace plimsoll
