// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <functional>
#include <optional>

#include "cli/command.hpp"
#include "lang/diagnostics.hpp"
#include "planner/layout.hpp"

namespace plimsoll::cli {

/// What a command does with a job that compiled. Mistakes it finds go to the diagnostics.
using WithProblem = std::function<Outcome(const Problem&, Diagnostics&)>;

/// Reads and compiles the file, picks the job that the options mean and hands it to \a command.
/// What was said on the way, warnings included, is put before what the command says; errors take
/// its place.
Outcome with_problem(const Options&, const Terminal&, const WithProblem& command);

/// The layout that the options name or, without a name, the file's only one; else the best that
/// planning finds, or where none fits the one nearest to fitting. nullopt where there is none at
/// all, or after errors.
std::optional<Layout> pick_layout(const Problem&, const Options&, Diagnostics&);

}  // namespace plimsoll::cli
