// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/names.hpp"

namespace plimsoll {

namespace {

constexpr VariableName kLayout[] = {
    {"tp", Var::tp},
    {"pp", Var::pp},
    {"vpp", Var::vpp},
    {"cp", Var::cp},
    {"ep", Var::ep},
    {"etp", Var::etp},
    {"dp", Var::dp},
    {"zero", Var::zero},
    {"shard", Var::shard},
    {"mbs", Var::mbs},
    {"sp", Var::sp, NameType::boolean},
    {"recompute", Var::recompute, NameType::recompute},
    {"schedule", Var::schedule, NameType::schedule},
    {"offload", Var::offload},
    {"stage_layers", Var::layers_on_stage, NameType::numbers},
    {"recompute_layers", Var::layers_on_stage, NameType::numbers},
    {"stage_pool", Var::stage, NameType::pools},
};

constexpr Dimension kPerSecond{0, 0, -1, 0};
constexpr VariableName kDerived[] = {
    {"peak", Var::peak, NameType::number, kBytes},
    {"headroom", Var::headroom},
    {"hbm", Var::hbm, NameType::number, kBytes},
    {"step_time", Var::step_time, NameType::number, kSeconds},
    {"tokens_per_second", Var::tokens_per_second, NameType::number, kPerSecond},
    {"mfu", Var::mfu},
    {"bubble", Var::bubble},
    {"microbatches", Var::microbatches},
    {"params", Var::params_on_gpu},  // a constant of the job
    {"gpus", Var::gpus},
    {"days", Var::days},
    {"cost", Var::cost, NameType::number, kMoney},
};

constexpr VariableName kStage[] = {
    {"stage", Var::stage},
    {"first", Var::first, NameType::boolean},
    {"last", Var::last, NameType::boolean},
    {"receiving", Var::receiving},
    {"params_on_gpu", Var::params_on_gpu},
};

}  // namespace

std::span<const VariableName> layout_variables() { return kLayout; }
std::span<const VariableName> derived_numbers() { return kDerived; }
std::span<const VariableName> stage_numbers() { return kStage; }

const VariableName* find_name(std::span<const VariableName> names, std::string_view name) {
  for (const VariableName& candidate : names)
    if (candidate.name == name) return &candidate;
  return nullptr;
}

}  // namespace plimsoll
