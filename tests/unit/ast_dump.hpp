// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>

#include "lang/ast.hpp"

/// A tree as text with every parenthesis, for tests: two trees are equal where their dumps are.
/// Places and comments are left out, documentation is not.
namespace plimsoll::test {

std::string dump(const ast::Expr&);
std::string dump(const ast::Entry&);
std::string dump(const ast::Declaration&);
std::string dump(const ast::File&);

}  // namespace plimsoll::test
