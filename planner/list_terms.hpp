// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "lang/conditions.hpp"
#include "planner/layout.hpp"
#include "planner/linear.hpp"

/// Conditions over stage_layers and recompute_layers as terms of a solver. Whatever else they name
/// is a number by then.
namespace plimsoll {

/// The operands of the `and`s that a condition consists of; itself where it is none.
std::vector<const ast::Expr*> conjuncts(const ast::Expr&);
/// Does it name stage_layers, recompute_layers?
bool names_list(const ast::Expr&, std::string_view list);

/// Which entries of the lists decide a condition; nullopt: any may.
struct EntriesRead {
  std::optional<std::set<std::size_t>> stage_layers, recompute_layers;
};
EntriesRead entries_read(const ast::Expr&);
/// Does it name numbers that are known only once a layout is priced, or `bytes("…")`?
bool reads_derived(const Problem&, const ast::Expr&);

class ListTerms {
 public:
  /// \a values: the outer layout's variables and stage_pool; its lists are not read. The lists are
  /// those of terms, an entry a stage. All of them must outlive this.
  ListTerms(const Problem&, const LayoutValues& values, smt::Solver&,
            std::vector<Linear> stage_layers, std::vector<Linear> recompute_layers);
  ~ListTerms();

  /// What must be required for the condition to hold (see eval_condition()), exactly; requires the
  /// definitions of what it introduces. nullopt: it cannot be said in such terms (products of
  /// entries, derived numbers, bytes("…"), what has a value only for some lists): find out on
  /// concrete lists.
  std::optional<smt::Term> lower(const ast::Expr& condition);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plimsoll
