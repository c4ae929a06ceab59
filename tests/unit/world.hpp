// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "lang/module.hpp"
#include "planner/layout.hpp"

namespace plimsoll::testing {

/// A file with one job, compiled and lowered.
struct World {
  Diagnostics diags;
  Module module;
  std::optional<Problem> problem;

  explicit World(std::string text)
      : module(compile("world.plan", std::move(text), diags)), problem(lowered()) {}
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const Problem& operator*() const { return *problem; }

 private:
  std::optional<Problem> lowered() {
    std::optional<Problem> out;
    if (!diags.has_errors()) out = make_problem(module, module.jobs().front(), diags);
    if (!out || diags.has_errors())
      throw std::runtime_error("the test's file: " + diags.render(module.sources(), false));
    return out;
  }
};

}  // namespace plimsoll::testing
