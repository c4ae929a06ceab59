// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/time_path.hpp"

#include "lang/conditions.hpp"

namespace plimsoll {

namespace {

std::string word_of(const Problem& p, std::string_view name) {
  const auto value = framework_switch(*p.module, *p.job, name);
  if (!value) return "";
  const auto* word = value->as<eval::Word>();
  return word == nullptr ? "" : word->text;
}

bool is_true(const Problem& p, std::string_view name, bool otherwise) {
  const auto value = framework_switch(*p.module, *p.job, name);
  const auto* boolean = value ? value->as<eval::Boolean>() : nullptr;
  if (boolean == nullptr || !p.module->pool().is_constant(boolean->expr)) return otherwise;
  return !p.module->pool().value(boolean->expr).is_zero();
}

}  // namespace

TimePath time_path(const Problem& p) {
  TimePath path;
  const std::string launch = word_of(p, "launch");
  if (launch == "graphs") path.launch = TimePath::Launch::graphs;
  if (launch == "partial") path.launch = TimePath::Launch::partial;
  if (launch == "legacy") path.launch = TimePath::Launch::legacy;
  const std::string kernels = word_of(p, "kernels");
  if (kernels == "y2023") path.kernels = TimePath::Kernels::y2023;
  if (kernels == "te") path.kernels = TimePath::Kernels::te;
  path.fused_experts = word_of(p, "moe_kernels") == "fused";
  const std::string dispatcher = word_of(p, "dispatcher");
  if (dispatcher == "deepep") path.dispatch = TimePath::Dispatch::deepep;
  if (dispatcher == "hybridep") path.dispatch = TimePath::Dispatch::hybridep;
  path.tp_overlap = is_true(p, "tp_overlap", false);
  path.ep_overlap = is_true(p, "moe_overlap", false);
  path.fp8_attention = p.job->precision == "fp8" && is_true(p, "fp8_attention", false);
  path.rowwise = word_of(p, "fp8_recipe") == "rowwise";
  // Megatron launches in its own way; every other stack is a trainer of PyTorch's own.
  path.torch = launch.empty() && p.framework != nullptr &&
               (!kernels.empty() || p.framework->name == "huggingface" ||
                p.framework->name == "deepspeed" || p.framework->name == "torchtitan");
  path.eager =
      path.torch && path.kernels == TimePath::Kernels::current && !is_true(p, "compile", false);
  path.stops_early = path.torch && path.kernels == TimePath::Kernels::current &&
                     p.framework->name != "huggingface" && p.framework->name != "deepspeed";
  path.unfused = p.inventory.facts.variant.attention == "unfused";
  path.precision = p.job->precision;
  return path;
}

}  // namespace plimsoll
