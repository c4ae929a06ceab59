// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/layout.hpp"
#include "planner/peak.hpp"
#include "planner/report_bill.hpp"
#include "planner/why.hpp"

/// `explain`: what each item of a job's inventory is and where its formula comes from, and what one
/// step of each layout variable would do to the peak.
namespace plimsoll {

/// A layout that differs from another in one variable, and what follows from it.
struct SingleStep {
  std::string change;  ///< "zero 1 → 2"
  Layout layout;       ///< resolved
  Int128 peak_bytes = 0, hbm_bytes = 0;
  std::int64_t peak_stage = 0;
  std::int64_t nanoseconds = 0;  ///< of a step; 0 where it has no time
  bool fits = false;
  bool excluded = false;  ///< by what the job says: its pins, and requirements on layout variables
};

/// Every possible single step from a resolved layout, smallest peak first; equal ones in the order
/// of the variables.
std::vector<SingleStep> single_steps(const Problem&, const Layout&);

namespace report {

/// The answer, what binds, what it is beside, how far it could grow, what would change it, and each
/// item of a stage (by default of the peak stage), with
/// what it is, its formula for one instance, what divides it, how long it lives, where it comes
/// from.
std::string explain_text(const Problem&, const Heading&, const Bill&,
                         const std::vector<SingleStep>&, const Why&, const Style&,
                         std::optional<std::int64_t> stage = std::nullopt);
/// `plimsoll.explain/1`, one object, ends with a newline.
std::string explain_json(const Heading&, const Bill&, const std::vector<SingleStep>&, const Why&);

// Its parts.
/// \a nanoseconds: of the layout's step; 0 where it has no time.
std::string steps_text(const Bill&, const std::vector<SingleStep>&, const Style&,
                       std::int64_t nanoseconds = 0);
std::string binds_text(const Heading&, const Bill&, const Style&);
std::string rivals_text(const Why&, const Style&);
std::string growth_text(const std::vector<Growth>&, const Style&);

}  // namespace report
}  // namespace plimsoll
