// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lang/expr.hpp"
#include "lang/module.hpp"
#include "lang/units.hpp"

/// The names that expressions see without anybody declaring them, with what they are. Private to
/// lang/.
namespace plimsoll {

enum class NameType : std::uint8_t { number, boolean, recompute, schedule, numbers, pools };

struct VariableName {
  std::string_view name;
  Var var;  ///< of a list: unused
  NameType type = NameType::number;
  Dimension dimension = kCount;
};

/// tp … offload, and the lists of stages.
std::span<const VariableName> layout_variables();
/// peak, headroom … : what the planner derives.
std::span<const VariableName> derived_numbers();
/// stage, first, last …: what items see of their stage.
std::span<const VariableName> stage_numbers();
const VariableName* find_name(std::span<const VariableName>, std::string_view);

/// In the order of planner's Schedule.
inline constexpr std::array<std::string_view, 6> kSchedules = {
    "1f1b", "interleaved", "gpipe", "zb_h1", "zb_v", "dualpipe_v"};
const eval::Enumeration* recompute_words(const Module&, const Job&);
std::vector<std::string> attention_words(const Module&, const Job&);
std::vector<std::string> pool_names(const Module&, const Job&);

}  // namespace plimsoll
