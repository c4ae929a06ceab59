// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <array>
#include <optional>

#include "planner/certificate.hpp"
#include "planner/domains.hpp"
#include "planner/layout.hpp"

/// What the cores of a search are (nodes seq batch tp cp pp ep etp vpp mbs), stated once more for a
/// proof: docs/planner.md's values, what must divide what, and the job's requirements on them. It
/// shares the numbers of the Problem with the search, and none of the search's code.
namespace plimsoll {

inline constexpr std::size_t kCoreKnobs = static_cast<std::size_t>(Knob::mbs) + 1;

struct CoreClaim {
  Claim claim;
  std::array<std::size_t, kCoreKnobs> at{};  ///< place of each knob in the claim's points

  std::array<std::int64_t, kCoreKnobs> core(ClaimValues point) const {
    std::array<std::int64_t, kCoreKnobs> out{};
    for (std::size_t k = 0; k < kCoreKnobs; ++k) out[k] = point[at[k]];
    return out;
  }
};

/// nullopt where a rule is about too many combinations to be looked at one by one.
std::optional<CoreClaim> core_claim(const Problem&);

}  // namespace plimsoll
