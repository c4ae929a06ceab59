// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lang/lexer.hpp"

/// Private to lang/assist*.cpp: where in an unfinished text the cursor stands. By the tokens before
/// it, not by the tree, which there is none of.
namespace plimsoll::assist {

/// A bracket that stands open at the cursor.
struct Frame {
  enum Type : std::uint8_t { body, group } type = body;
  std::string keyword;  ///< body: what opened it: "train", "item", "repeat" …
  std::string field;    ///< of the entry that is being written: the name before '=' or 'in'
  std::string entry;    ///< its keyword: "require"; "" for a field
  bool due = false;     ///< an operand is due
};

/// Where the cursor stands.
struct Place {
  std::vector<Frame> open;  ///< the declaration's body first; empty: at the top level
  std::string kind;         ///< of the declaration that is being written; "" between them
  std::string base;         ///< its template
  bool named = false;       ///< its name has been written
  bool base_due = false;    ///< after "kind name ="
  std::string before;       ///< the token before the cursor
  bool after_number = false;
  std::map<std::string, std::string> given;  ///< NAME = WORD of the declaration, cursor or not
  std::vector<std::string> locals;           ///< parameters and assigned names of it
};

/// \a tokens: of all of \a text.
Place place_at(std::string_view text, const std::vector<syntax::Token>& tokens,
               std::uint32_t cursor);

}  // namespace plimsoll::assist
