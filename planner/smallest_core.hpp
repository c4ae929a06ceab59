// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

/// Which few of many named things cannot hold together.
namespace plimsoll {

/// Can the chosen ones of n things hold together? Monotone: with fewer of them it is no less so.
using Satisfiable = std::function<bool(const std::vector<bool>& chosen)>;

struct CoreBudget {
  std::int64_t calls = 4'000;       ///< of the oracle
  std::int64_t units = 20'000'000;  ///< of the solver, see smt.hpp
  /// Asked before each call of the oracle; true ends the search with what is known.
  std::function<bool()> stop;
};

struct SmallestCore {
  std::vector<std::size_t> members;  ///< ascending; they cannot hold together
  bool minimal = false;              ///< without any one of them the rest can
  bool smallest = false;             ///< and no lighter set clashes
  std::int64_t calls = 0;            ///< of the oracle
};

/// The lightest set of things that cannot hold together, by implicit hitting sets: whatever can
/// hold together, grown until nothing can be added, leaves out at least one member of every core;
/// the lightest set that meets all that was left out so far is asked about next, and is the answer
/// once it cannot hold. Where the budget runs out, the core by deletion. \a weights: each >= 1.
/// nullopt: all of them can hold together.
std::optional<SmallestCore> smallest_core(std::span<const std::int64_t> weights, const Satisfiable&,
                                          const CoreBudget& = {});

/// A core that is minimal, not the smallest: leaves out one after the other, the heaviest first. At
/// most n + 1 calls.
std::optional<SmallestCore> core_by_deletion(std::span<const std::int64_t> weights,
                                             const Satisfiable&, const CoreBudget& = {});

}  // namespace plimsoll
