// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lang/fields.hpp"
#include "lang/names.hpp"

/// Values of layout variables, as jobs pin and narrow them and layouts give them. Private to lang/.
namespace plimsoll {

/// The names in sight of a layout's values: first the variables that the same body gives (they may
/// be read in any order), then those of the parent, which may be open.
class PinScope : public eval::Scope {
 public:
  PinScope(Module::Impl& module, const std::vector<const ast::Entry*>& entries,
           const eval::Scope* parent, const eval::Enumeration* recompute, Diagnostics& diags);

  /// The value of one entry, evaluated once; nullptr after an error.
  const eval::Value* value_of(const ast::Entry&) const;

 protected:
  const eval::Value* make(std::string_view name) const override;
  std::vector<std::string> made_names() const override;

 private:
  Module::Impl& module_;
  const eval::Enumeration* recompute_;
  Diagnostics& diags_;
  std::map<std::string, const ast::Entry*, std::less<>> entries_;
  mutable std::map<std::string, std::optional<eval::Value>, std::less<>> made_;
  mutable std::vector<std::string> busy_;
};

/// The words that a layout variable takes, or nullptr.
const eval::Enumeration* words_of(Module::Impl&, const VariableName&,
                                  const eval::Enumeration* recompute);
/// Is \a value of the right kind and in range for \a row? False after an error.
bool check_layout_value(Module::Impl&, const VariableName& row, const eval::Value& value, Span,
                        Diagnostics&);
/// Lists have an entry a stage: their lengths agree with pp and with each other.
void check_stage_lists(Module::Impl&, const std::map<std::string, eval::Value>& values,
                       Diagnostics&);
/// A constant of a number, or nullopt.
std::optional<Rational> constant_of(const Module::Impl&, const eval::Value&);
std::vector<std::string> layout_names();

}  // namespace plimsoll
