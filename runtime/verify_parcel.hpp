// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <optional>

#include "runtime/parcel.hpp"
#include "runtime/verify.hpp"

/// What a rank saw, in a message to rank 0: what is put is taken as it was.
namespace plimsoll::runtime {

void put(Parcel&, const LivePeak&);
void take(Parcel&, LivePeak&);

void put(Parcel&, const std::optional<VerifyFailure>&);
void take(Parcel&, std::optional<VerifyFailure>&);

}  // namespace plimsoll::runtime
