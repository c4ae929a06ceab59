// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/command.hpp"
#include "cli/page/page.hpp"

namespace plimsoll::cli {

/// What `--html` cannot be combined with, or nullopt. Asked before any work.
std::optional<Outcome> html_mistake(const Options&);

struct PageOf {
  const Bill* bill = nullptr;
  const PlanResult* plan = nullptr;
  std::optional<std::int64_t> rank = std::nullopt;  ///< of the timeline; else the fullest stage's
};

/// Writes the page that the options ask for, in one step, and says so in the outcome; the outcome
/// as it is where they ask for none. \a text: the report without colour.
Outcome add_page(const Options&, const Problem&, const PageOf&, const std::string& text,
                 Outcome outcome);

}  // namespace plimsoll::cli
