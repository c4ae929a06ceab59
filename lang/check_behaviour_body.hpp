// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lang/behaviour_scope.hpp"
#include "lang/conditions.hpp"
#include "lang/fields.hpp"

/// The lines in a body of `state`, `item` and `on`. Private to check_behaviour*.cpp.
namespace plimsoll {

/// An entry's own body, with the same field twice reported.
std::vector<const ast::Entry*> lines_of(const ast::Entry&, Diagnostics&);
/// The value of the line \a name, or nullptr.
const ast::Expr* line_of(const std::vector<const ast::Entry*>& lines, std::string_view name);
/// What an entry is called by.
ast::Name label_of(const ast::Entry&);

/// Checks values where a place's names are in sight.
class BodyChecker {
 public:
  BodyChecker(Module::Impl&, const Behaviour&, const eval::Scope& place, Diagnostics&);

  std::optional<Expr> condition(const ast::Expr& e) { return evaluator_.condition(e, scope_); }
  std::optional<Expr> count(const ast::Expr& e) { return evaluator_.count(e, scope_); }
  /// A count that the layout may decide; where it is a constant it is in the field's range.
  void number(const Field&, const ast::Expr&);
  void dtype(const ast::Expr&);
  /// Every line that an item or a state may have.
  void lines(const std::vector<const ast::Entry*>&);

 private:
  /// What one GPU holds, in bytes or elements: not below nothing.
  void amount(const ast::Expr&, std::string_view field, Dimension);
  /// A bare word of a closed list.
  void word(const ast::Expr&, std::string_view field, const std::vector<std::string>& words);
  void lifetime(const ast::Expr&);
  void text(const ast::Expr&, std::string_view field);
  void flag(const ast::Expr&, std::string_view field);
  void stream(const ast::Expr&);
  bool is_dtype(std::string_view name) const;

  Module::Impl& module_;
  Diagnostics& diags_;
  eval::Evaluator evaluator_;
  BehaviourScope scope_;
};

}  // namespace plimsoll
