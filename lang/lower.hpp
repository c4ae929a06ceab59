// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <optional>

#include "lang/diagnostics.hpp"
#include "lang/inventory.hpp"
#include "lang/module.hpp"

namespace plimsoll {

struct LowerInput {
  const Module* module = nullptr;
  const Job* job = nullptr;
  const Cluster* cluster = nullptr;
  const Program* program = nullptr;
  const Behaviour* framework = nullptr;
  const Behaviour* optimizer = nullptr;  ///< nullptr: a serve job
};

/// Derives the inventory of a job: the states of its weights, what each op keeps and needs under
/// its framework, the framework's, optimizer's, model's and job's own line items, and the traces of
/// every segment under every recomputation mode. nullopt after errors in \a diags.
std::optional<Inventory> lower(const LowerInput&, Diagnostics& diags);

}  // namespace plimsoll
