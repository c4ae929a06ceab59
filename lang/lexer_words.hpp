// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string_view>

#include "lang/lexer.hpp"

/// What the lexer knows by heart: words and punctuation, and characters of other languages.
namespace plimsoll::syntax {

struct WordRow {
  std::string_view text;
  Kind kind;
  Soft soft;
};

/// The row of a word with a meaning, or of punctuation of one character; null for others.
const WordRow* find_word(std::string_view text);

/// Characters that people paste or are used to, what this language writes instead, and the token
/// they were meant as, so that nothing else is reported. Kind::end: none.
struct Habit {
  std::string_view text;
  std::string_view help;
  Kind meant;
};

/// The habit that \a text begins with, or null.
const Habit* find_habit(std::string_view text);

}  // namespace plimsoll::syntax
