// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include "lang/ast.hpp"
#include "lang/diagnostics.hpp"
#include "lang/source.hpp"

namespace plimsoll {

/// Limits that keep hostile input from exhausting the machine; passing one is a clear error.
inline constexpr std::uint32_t kMaxFileBytes = 16u << 20;
inline constexpr int kMaxNesting = 200;  ///< of brackets of all kinds, blocks of entries included
inline constexpr int kMaxDepth = 500;  ///< of the tree of one expression: long chains of operators
inline constexpr int kMaxErrors = 10'000;  ///< after so many a file is given up

/// Parses one file of \a sources. Every independent syntax error is reported; what could be
/// understood is returned even then. The only door to the grammar (Boost.Spirit X3 stays behind
/// it).
ast::File parse(const Sources& sources, std::uint32_t file, Diagnostics&);
/// The same of a part of a file: whole lines that hold whole declarations.
ast::File parse(const Sources& sources, Span part, Diagnostics&);

}  // namespace plimsoll
