// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lang/ast.hpp"
#include "planner/enumerate.hpp"

/// What would have to change where nothing fits: single edits of the file, each of which is
/// compiled and planned again; only those with a layout that fits are told. \a stop as in
/// PlanOptions: what was found by then is told.
namespace plimsoll {

std::vector<Relaxation> suggest(const Problem&, std::function<bool()> stop = {},
                                const CompileOptions& = {});

/// The text of a file with one field of one declaration set (`kind name { field = value }`), added
/// to its body where it is not there. nullopt where the declaration is not in the file.
std::optional<std::string> with_field(const Sources&, const ast::File&, std::string_view kind,
                                      std::string_view name, std::string_view field,
                                      std::string_view value);
/// Likewise with the field taken out; nullopt where it is not there.
std::optional<std::string> without_entry(const Sources&, const ast::File&, std::string_view kind,
                                         std::string_view name, std::string_view field);

}  // namespace plimsoll
