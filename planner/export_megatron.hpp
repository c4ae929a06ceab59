// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>
#include <vector>

#include "planner/export.hpp"

namespace plimsoll::exports {

/// One fact: a flag of Megatron-LM, and the field of Megatron Bridge's configuration.
struct Setting {
  std::string flag;   ///< "--num-layers"; "" where only the field exists
  std::string value;  ///< "" for a switch
  std::string part;   ///< "model", "train", "ddp" …; "" where only the flag exists
  std::string field;
  std::string yaml;  ///< its value there
};

/// Everything that Megatron-LM is told of a job at a layout, in groups.
std::vector<std::vector<Setting>> megatron_settings(const Subject&, Exported&);

/// What a mode of recomputation is in --recompute-modules and --offload-modules; \a unsaid: words
/// that no module is ("drop of glu").
struct RecomputeModules {
  std::vector<std::string> recomputed, offloaded, unsaid;
};
RecomputeModules megatron_modules(const Problem&, RecomputeMode);

/// Layers that each chunk recomputes, its first ones, where `block` can say it; -1 where it cannot.
std::int64_t megatron_block_count(const Problem&, const Layout&);

}  // namespace plimsoll::exports
