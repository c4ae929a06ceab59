// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

/// Plimsoll as a library: `find_package(plimsoll)`, link `plimsoll::plimsoll`, include this.
///
///     Diagnostics said;                                         // mistakes of users, as values
///     const Module module = compile("job.plan", text, said);    // lang/module.hpp
///     const Job* job = find_job(module, "", said);
///     auto problem = make_problem(module, *job, said);          // planner/layout.hpp
///     problem->segments = runtime::replayed_segments();         // else by the factor
///     const PlanResult best = plan(*problem, {}, said);         // planner/enumerate.hpp
///     const Bill priced = bill(*problem, best.best->layout);    // planner/peak.hpp
///     const auto seen = runtime::verify_dry(*problem, priced,   // runtime/verify.hpp
///                                           runtime::chosen_ranks(priced, {}), std::nullopt);
///
/// Bytes are Int128 or int64, times nanoseconds or seconds as their names say. A Module owns what
/// its jobs, a Problem and a PlanResult point into: it must outlive them. Nothing here writes to a
/// stream, ends the program or keeps state between calls; what a user got wrong is in Diagnostics
/// (read `has_errors()` after each call that takes one), what we got wrong is an InternalError, and
/// arithmetic that has no answer at a layout is a PriceError. Different Modules may be used from
/// different threads at once; one Module may not.
///
/// Plan files are written as text, as R"( … )"_plan, or with lang/build.hpp.
#include "lang/build.hpp"
#include "lang/diagnostics.hpp"
#include "lang/module.hpp"
#include "planner/enumerate.hpp"
#include "planner/layout.hpp"
#include "planner/peak.hpp"
#include "planner/report_bill.hpp"
#include "planner/report_plan.hpp"
#include "runtime/report_verify.hpp"
#include "runtime/segments.hpp"
#include "runtime/verify.hpp"
