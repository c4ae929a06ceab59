// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

/// What others than the time model itself need of its constants (time_constants.hpp), so that few
/// files see one change.
namespace plimsoll {

struct TimeConstants;
/// What the program uses.
extern const TimeConstants kTimeConstants;

namespace time_constants {
inline constexpr double kTie = 0.05;  ///< predicted differences below it are ties; TIME.md §8
}

}  // namespace plimsoll
