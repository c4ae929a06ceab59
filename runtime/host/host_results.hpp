// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <vector>

#include "runtime/host/host_run.hpp"

/// Private to runtime/host/: how ranks that are processes bring together what they saw.
namespace plimsoll::runtime::host {

/// Rank 0 gets the results, losses (by rank and step), tensors and the first failure of all ranks.
void bring_together(Wire&, HostWorld&, std::vector<std::vector<double>>& losses, HostRun&);

}  // namespace plimsoll::runtime::host
