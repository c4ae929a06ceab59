// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <functional>

#include "cli/command.hpp"
#include "lang/diagnostics.hpp"
#include "planner/layout.hpp"
#include "planner/peak.hpp"

namespace plimsoll::cli {

/// What a command does with a job that compiled. Mistakes it finds go to the diagnostics.
using WithProblem = std::function<Outcome(const Problem&, Diagnostics&)>;

/// Reads and compiles the file, picks the job that the options mean and hands it to \a command.
/// What was said on the way, warnings included, is put before what the command says; errors take
/// its place.
Outcome with_problem(const Options&, const Terminal&, const WithProblem& command);

/// What a command does with a layout and its bill.
using WithBill = std::function<Outcome(const Layout&, const Bill&)>;

/// Prices the layout that the options name or, without a name, the file's only one; else the best
/// that planning finds, or where none fits the one nearest to fitting. \a replayed: the bill's
/// segments are wanted; else they are the framework's factor, which takes no time.
Outcome with_bill(const Problem&, const Options&, Diagnostics&, const WithBill& command,
                  bool replayed = true);

}  // namespace plimsoll::cli
