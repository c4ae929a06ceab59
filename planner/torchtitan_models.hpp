// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string_view>

/// torchtitan names shapes by a model and a flavor (torchtitan/models/*/__init__.py, 0.2.2); these
/// are the prelude's of the same shape.
namespace plimsoll {

struct TitanModel {
  std::string_view name, flavor, model;
};

inline constexpr TitanModel kTitanModels[] = {
    {"llama3", "8B", "llama3_8b"},
    {"llama3", "70B", "llama3_70b"},
    {"llama3", "405B", "llama3_405b"},
    {"llama4", "17bx16e", "llama4_scout"},
    {"llama4", "17bx128e", "llama4_maverick"},
    {"qwen3", "0.6B", "qwen3_0_6b"},
    {"qwen3", "1.7B", "qwen3_1_7b"},
    {"qwen3", "4B", "qwen3_4b"},
    {"qwen3", "8B", "qwen3_8b"},
    {"qwen3", "14B", "qwen3_14b"},
    {"qwen3", "32B", "qwen3_32b"},
    {"qwen3", "30B-A3B", "qwen3_30b_a3b"},
    {"qwen3", "235B-A22B", "qwen3_235b_a22b"},
    {"deepseek_v3", "16B", "deepseek_v2_lite"},
    {"deepseek_v3", "671B", "deepseek_v3"},
    {"gpt_oss", "20b", "gpt_oss_20b"},
    {"gpt_oss", "120b", "gpt_oss_120b"},
};

}  // namespace plimsoll
