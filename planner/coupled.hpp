// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "lang/ast.hpp"
#include "planner/inner.hpp"

/// The inner problem under conditions that couple stages: decided by a solver over small integers
/// (layers and recomputed layers of each stage), with every byte and nanosecond in tables that the
/// evaluator made.
namespace plimsoll {

/// What the lists of one outer layout must meet.
struct CoupledConditions {
  /// Over stage_layers and recompute_layers (0 for each stage unless recompute is full); everything
  /// else that they name is read from the outer layout. Those that name derived numbers or
  /// `bytes("…")` are left to `accept`.
  std::vector<const ast::Expr*> require;
  /// One of these, where there are any.
  std::vector<std::vector<std::int64_t>> stage_layers, recompute_layers;
  /// Asked of each way of dealing the layers that might be the answer, in the order of time. What
  /// it asks for is not known, so more recomputation than memory needs is looked at too: leave it
  /// empty where nothing but the above matters.
  std::function<bool(const InnerSolution&)> accept;
};

struct CoupledBudget {
  std::int64_t units = 40'000'000;    ///< of the solver, see smt.hpp
  std::int64_t turned_away = 10'000;  ///< ways that `accept` may turn away
  /// Asked between and, from another thread, during checks of the solver; true ends the search with
  /// what is known.
  std::function<bool()> stop;
};

struct CoupledResult {
  enum Status {
    optimal,  ///< `best` is the fastest, and the first among equals in the order of solve()
    none,     ///< proven: no way meets the conditions within the cutoff
    unknown,  ///< the budget ran out; `best` may hold the best so far
  };
  Status status = unknown;
  std::optional<InnerSolution> best;
  bool first_of_equals = true;  ///< false: the units did not suffice to find the first
  /// No way that meets the conditions takes fewer nanoseconds (kNoLimit: none at all).
  std::int64_t lower_bound = 0;
  std::int64_t units = 0;   ///< spent by the solver
  std::int64_t checks = 0;  ///< of it; 0: the dynamic programme sufficed
};

/// The fastest way to deal the layers of \a outer, on which \a inner was set, that fits, meets the
/// conditions and takes at most \a cutoff nanoseconds. Throws InternalError, with what the solver
/// was asked, where its answer does not hold at the evaluator.
CoupledResult solve_coupled(Inner& inner, const Problem&, const Layout& outer,
                            const CoupledConditions&, std::int64_t cutoff = Inner::kNoLimit,
                            const CoupledBudget& = {});

}  // namespace plimsoll
