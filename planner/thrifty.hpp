// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "planner/inner.hpp"
#include "planner/judge.hpp"
#include "planner/space.hpp"

/// The layouts of a job that hold the least, for questions of what fits.
namespace plimsoll {

/// The layouts of every way to cut the model over the GPUs that hold the least: the smallest
/// micro-batch, then the highest ZeRO stage, the largest shard group, full recomputation and the
/// most offloaded, of what the requirements admit. Until \a each returns false. \a space is set to
/// the layout at each call.
void thrifty_layouts(Space& space, const std::function<bool(const Layout&)>& each);

/// Readies \a inner for an outer layout, to which \a env is set: under the memory that the GPUs and
/// the requirements leave a stage. False where that is none.
bool set_within_memory(Inner& inner, const Problem&, const Layout& outer, Judge&, Env& env);

/// The outer layout with the way of dealing its layers that needs the least memory, at most \a cap
/// bytes a stage, and those bytes; nullopt where none does.
struct LeastPeak {
  Layout layout;
  std::int64_t bytes = 0;  ///< of the fullest stage, of what \a inner counts
};
std::optional<LeastPeak> least_peak(Inner& inner, const Problem&, const Layout& outer,
                                    std::int64_t cap = Inner::kNoLimit);

/// That of the thrifty layouts that needs the least; of equal ones the first. Layouts without a
/// price are passed over.
std::optional<LeastPeak> least_of_all(Inner& inner, const Problem&, Space& space);

}  // namespace plimsoll
