// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/switches.hpp"

namespace plimsoll {

std::string switch_of(const Problem& p, std::string_view name) {
  const auto set = p.job->switches.find(std::string(name));
  if (set != p.job->switches.end()) {
    const eval::Value& v = set->second;
    if (const auto* word = v.as<eval::Word>()) return word->text;
    if (const auto* text = v.as<eval::String>()) return text->text;
    const ExprPool& pool = p.module->pool();
    if (const auto* flag = v.as<eval::Boolean>(); flag && pool.is_constant(flag->expr))
      return pool.value(flag->expr).is_zero() ? "false" : "true";
    if (const auto* number = v.as<eval::Number>(); number && pool.is_constant(number->expr))
      return pool.value(number->expr).str();
    return "";
  }
  if (p.framework == nullptr) return "";
  const auto param = p.framework->params.find(name);
  if (param == p.framework->params.end() || param->second.value == nullptr) return "";
  return param->second.value->text;
}

bool is_on(const Problem& p, std::string_view name) { return switch_of(p, name) == "true"; }

}  // namespace plimsoll
