// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include "planner/peak.hpp"

/// How sure a bill is: published runs of the same framework and feature, each priced from its own
/// flags, say by how much their measured bytes differed from their bills (residuals.hpp, written
/// from tests/data/residuals.csv). Nothing of a bill is fitted to them.
namespace plimsoll {

/// The range of a stage's peak at a layout: its reserved bytes (where runs' segments are known,
/// else what its allocator reports) stretched by the residuals, and what lies outside the
/// allocator.
Range measured_range(const Problem&, const Layout&, const StageBill&);

/// The range of a server's pool of cache blocks of \a pool bytes.
Range measured_room(const Problem&, Int128 pool);

/// "edge" where the memory lies within the framework's margin of the peak, or inside the range;
/// else whether the peak fits.
std::string verdict(const Problem&, Int128 peak, Int128 hbm, const Range&);

/// Routed tokens over balanced ones that a share \a quantile of measured runs of dropless experts
/// stayed below, between neighbours in proportion; nullopt beyond what as many runs can tell.
std::optional<Rational> measured_imbalance(const Rational& quantile);
/// The quantiles that the runs can tell, and how many they are.
struct Imbalances {
  Rational least, most;
  std::int64_t runs = 0;
};
Imbalances measured_imbalances();

}  // namespace plimsoll
