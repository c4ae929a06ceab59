// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>

#include "lang/ast.hpp"
#include "lang/source.hpp"

namespace plimsoll {

/// The file in canonical form (`plimsoll fmt`): comments kept, idempotent, parse(print(x)) = x.
std::string print(const ast::File&, const Sources&);
/// One expression on one line, in canonical form.
std::string print(const ast::Expr&);

}  // namespace plimsoll
