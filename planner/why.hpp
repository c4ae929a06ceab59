// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "planner/enumerate.hpp"
#include "planner/growth.hpp"

/// Why a layout is what it is: what it is beside, and how far it could grow.
namespace plimsoll {

/// A layout that another is set beside.
struct Rival {
  Priced priced;
  std::string layout;                               ///< describe()
  std::array<Int128, kCategoryCount> categories{};  ///< at the peak of its tightest stage
};

inline constexpr std::int64_t kMoreMemory = 2;

struct Why {
  std::optional<Rival> own;   ///< the layout itself; none where a step has no time
  std::vector<Rival> others;  ///< the best that fit beside it, best first
  bool proven = true;         ///< the search for them came to its end
  /// Faster ones that only want of memory keeps away: what planning finds on GPUs of the same kind
  /// with kMoreMemory times the memory. Their hbm_bytes are what there is.
  std::vector<Rival> beyond;
  std::vector<Growth> growth;
};

/// \a options: of the searches; its top is how many others are wanted.
Why why(const Problem&, const Layout&, const PlanOptions& options);

}  // namespace plimsoll
