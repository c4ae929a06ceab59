// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include <algorithm>
#include <map>

#include "lang/ast.hpp"
#include "lang/inventory.hpp"
#include "lang/module.hpp"
#include "planner/export_megatron.hpp"

/// A recomputation mode's words as modules of --recompute-modules and --offload-modules: the
/// other way round of planner/import_megatron_job.cpp.
namespace plimsoll::exports {
namespace {

using Words = std::map<std::string, std::vector<std::string>, std::less<>>;

const std::map<std::string, Words, std::less<>>& modules_of() {
  static const std::vector<std::string> kQkv = {"qkv_linear"}, kUp = {"mla_up_proj"};
  static const std::map<std::string, Words, std::less<>> kModules = {
      {"drop",
       {{"attention", {"core_attn"}}, {"experts", {"moe"}}, {"combine", {"moe"}}, {"dropout", {}}}},
      {"discard",
       {{"residual_norms", {"layernorm"}},
        {"expert_activations", {"moe_act"}},
        {"shared_experts", {"shared_experts"}},
        {"dense_mlp", {"mlp"}},
        {"q_up", kUp},
        {"k_up", kUp},
        {"v_up", kUp},
        {"rope", kUp},
        {"concat", kUp}}},
      {"offload",
       {{"residual_norms", {"attn_norm", "mlp_norm"}},
        {"attention", {"core_attn"}},
        {"o", {"attn_proj"}},
        {"expert_first_linears", {"expert_fc1"}},
        {"expert_activations", {"moe_act"}},
        {"q", kQkv},
        {"k", kQkv},
        {"v", kQkv},
        {"q_down", kQkv},
        {"kv_down", kQkv},
        {"k_rope", kQkv},
        {"q_up", kQkv},
        {"k_up", kQkv},
        {"v_up", kQkv}}}};
  return kModules;
}

void add_new(std::vector<std::string>& list, const std::string& word) {
  if (std::find(list.begin(), list.end(), word) == list.end()) list.push_back(word);
}

}  // namespace

RecomputeModules megatron_modules(const Problem& p, RecomputeMode mode) {
  RecomputeModules found;
  const std::string& name = p.inventory.recompute_modes.at(static_cast<std::size_t>(mode));
  const ast::Entry* says = nullptr;  // the last one holds
  for (const ast::Entry* e : p.framework->entries)
    if (e->kind == ast::EntryKind::recompute && e->name.text == name) says = e;
  if (says == nullptr) return found;
  for (const ast::Entry& field : says->body) {
    if (field.kind != ast::EntryKind::assign || !field.value) continue;
    const auto kind = modules_of().find(field.name.text);
    for (const ast::Argument& a : field.value->args) {
      const std::string& word = a.value->text;
      if (kind == modules_of().end() || !kind->second.contains(word)) {
        add_new(found.unsaid, field.name.text + " of " + word);
        continue;
      }
      for (const std::string& module : kind->second.at(word))
        add_new(field.name.text == "offload" ? found.offloaded : found.recomputed, module);
    }
  }
  return found;
}

}  // namespace plimsoll::exports
