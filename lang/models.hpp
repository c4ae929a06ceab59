// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "lang/elaborate.hpp"
#include "lang/module_impl.hpp"

/// Blocks and models as elaboration reads them. Private to lang/.
namespace plimsoll {

struct ModelTables {
  BlockTable prelude_blocks, user_blocks;
  bool prelude_made = false, user_made = false;
  std::vector<std::unique_ptr<BlockSource>> blocks;
  std::map<const ast::Declaration*, std::unique_ptr<ModelSource>> sources;
  std::map<const ast::Declaration*, std::vector<const ast::Entry*>> items;
};

/// Reports mistakes in the user's blocks.
void check_blocks(Module::Impl&, Diagnostics&);
/// The model with its templates applied; nullptr after errors, which are reported once.
const ModelSource* model_source(Module::Impl&, const ast::Declaration&, Diagnostics&);
/// The tensor program, made once; nullptr after errors, which are reported once.
const Program* resolve_program(Module::Impl&, const ast::Declaration&, Diagnostics&);

}  // namespace plimsoll
