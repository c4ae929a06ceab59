// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lang/ast.hpp"
#include "lang/diagnostics.hpp"
#include "lang/expr.hpp"
#include "lang/program.hpp"

/// From a model's declaration to its tensor program: repeats unrolled, blocks called, every op
/// checked. What a name means across files (templates, `use`, shadowing) is decided before.
namespace plimsoll {

struct BlockSource;

/// The blocks that a declaration sees, by name: the user's and the prelude's for a user's file, the
/// prelude's alone for the prelude's own.
using BlockTable = std::map<std::string, const BlockSource*, std::less<>>;

/// A block, its templates applied. Points into syntax trees that outlive it.
struct BlockSource {
  struct Parameter {
    std::string name;
    Span span;
    const ast::Expr* default_value = nullptr;  ///< after overrides; sees the parameters before it
  };
  std::string name;
  Span span;  ///< its name where it is declared
  std::vector<Parameter> parameters;
  std::vector<const ast::Entry*> entries;  ///< assign, repeat, ret, item, in order
  const BlockTable* sees = nullptr;        ///< the blocks that its body may call
};

/// A model, its templates applied. Points into syntax trees that outlive it.
struct ModelSource {
  struct Parameter {
    const ast::Entry* entry = nullptr;  ///< the `param` (name, and the set after `in`)
    const ast::Expr* value = nullptr;   ///< the last override or the default; nullptr: none
  };
  std::string name;
  Span span;                               ///< its name where it is declared
  std::vector<Parameter> parameters;       ///< each sees all others; cycles are errors
  std::vector<const ast::Entry*> entries;  ///< assign, repeat, item, in order
  const BlockTable* sees = nullptr;
};

/// The parameters without a value: a model that has some is a template and cannot be elaborated.
std::vector<std::string> missing_parameters(const ModelSource&);

/// The tensor program, or nullopt after errors. Widths, counts and weights are checked numbers;
/// tokens are expressions of \a pool over seq and target. Line items that the model and the blocks
/// it calls declare are appended to \a items where it is given, each once.
std::optional<Program> elaborate(const ModelSource&, ExprPool& pool, Diagnostics&,
                                 std::vector<const ast::Entry*>* items = nullptr);

/// Names that calls mean whatever a file declares: ops and built-in functions. A block may not
/// take one.
bool is_builtin_call(std::string_view name);

/// Bounds on what a model may unroll to; passing one is an error at the place.
inline constexpr std::size_t kMaxOps = 1u << 17;
inline constexpr std::size_t kMaxTurns = 1u << 16;
inline constexpr std::size_t kMaxBlockDepth = 64;
inline constexpr std::size_t kMaxBlockCalls = 1u << 18;

}  // namespace plimsoll
