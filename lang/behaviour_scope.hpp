// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lang/eval.hpp"
#include "lang/module_impl.hpp"

/// Names for checking a framework or optimizer without a job. Private to lang/.
namespace plimsoll {

/// Where in a body an expression stands: what it sees beyond the job.
enum class Site : std::uint8_t { condition, stage, layer, op, weight, communicator, anywhere };

/// Every name that an expression at a place may read, with its kind and dimension, and a value that
/// stays open: both arms of an `if` are checked.
class OpenScope : public eval::Scope {
 public:
  /// \a op: whose values are in sight at Site::op; "": several ops, any name goes.
  OpenScope(Module::Impl&, const Behaviour&, Site, std::string_view op = "");

 protected:
  const eval::Value* make(std::string_view) const override;
  std::vector<std::string> made_names() const override { return {}; }

 private:
  bool any_name_;
  mutable std::map<std::string, eval::Value, std::less<>> made_;
};

/// The values that an op's rule names; empty: not known here.
const std::vector<std::string>& op_values(std::string_view op);

/// Reports words of `recompute NAME { drop = {…} }` that no op is called by, and no weight of any
/// model or block in sight.
void check_recompute_words(Module::Impl&, const ast::Expr& set, Diagnostics&);
/// Reports names that stand twice in the `fuse` entries of a framework.
void check_fuses(const std::vector<const ast::Entry*>&, Diagnostics&);
/// Reports `default`s that depend on themselves.
void check_default_circles(const Behaviour&, Diagnostics&);

/// Checks explicit line items (of jobs, models, blocks) with the names of \a place.
void check_items(Module::Impl&, const std::vector<const ast::Entry*>& items,
                 const eval::Scope& place, Diagnostics&);

}  // namespace plimsoll
