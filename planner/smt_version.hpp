// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>

namespace plimsoll::smt {

/// Of the Z3 that runs: "4.8.12".
std::string version();

}  // namespace plimsoll::smt
