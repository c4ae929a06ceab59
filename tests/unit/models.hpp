// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lang/elaborate.hpp"
#include "lang/parse.hpp"

namespace plimsoll::test {

/// Models and blocks of texts, resolved as simply as can be (no shadowing, no `use`), to test
/// elaboration by itself.
class Models {
 public:
  void add(std::string name, std::string text);
  /// The programs of lang/prelude that declare blocks and models.
  void add_prelude();
  std::optional<Program> build(const std::string& model);
  ModelSource source(const std::string& model);
  std::string said() const { return diagnostics.render(sources, false); }

  Sources sources;
  Diagnostics diagnostics;
  ExprPool pool;
  std::vector<const ast::Entry*> items;

 private:
  std::deque<ast::File> files_;
  std::map<std::string, const ast::Declaration*> models_;
  std::deque<BlockSource> block_sources_;
  BlockTable blocks_;
};

/// The program of `m` in \a text, which must have no errors.
struct Built {
  Models models;
  Program program;
  explicit Built(std::string text);
};

/// What is said of \a text, whose model `m` (or \a model) has errors or warnings.
std::string said_of(std::string text, const std::string& model = "m");

/// Ops in a line each: "3 linear q (2) -> 4 [128 column/4]".
std::string dump(const Program&, const ExprPool&);

std::string read_file(const std::string& path);

}  // namespace plimsoll::test
