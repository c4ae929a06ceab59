// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lang/ast.hpp"
#include "lang/module.hpp"

/// What editors ask of a file: what stands at a place, what could stand there, what it holds. Works
/// on files with errors too, as far as their text can be understood. Offsets are bytes of the file.
namespace plimsoll::assist {

/// What a word of a file means.
struct Symbol {
  Span span;          ///< the word (of an item: its label)
  std::string title;  ///< "model llama3_8b = llama", "tp", "field seq of a train job"
  std::string text;   ///< what it comes to: "32 layers, 8,030,261,248 parameters"
  std::string doc;    ///< its `##` lines, or what the language says of it
  Span defined_at;    ///< where it is declared or assigned; empty: nowhere, it is built in
  std::string kind;   ///< of a declaration: "model", "train" …; else ""
  std::string name;   ///< of a declaration
  Span item;          ///< of a line item or state: the entry, as Item::origin has it
};

/// nullopt where nothing stands that has a meaning.
std::optional<Symbol> symbol_at(const Module&, std::uint32_t file, std::uint32_t offset);

enum class Candidate : std::uint8_t {
  keyword,
  field,
  declaration,
  variable,
  word,
  function,
  unit,
};

struct Completion {
  std::string label;
  Candidate kind = Candidate::word;
  std::string insert;  ///< what is put in place of the word at the cursor
  std::string detail;  ///< in a few words
  std::string doc;
};

struct Completions {
  std::uint32_t begin = 0;  ///< of the word that the cursor stands in or after
  std::vector<Completion> candidates;
};

/// What may stand at \a offset of a file of the module. All that fit the place, whatever is typed
/// of the word so far: editors choose by it.
Completions completions_at(const Module&, std::uint32_t file, std::uint32_t offset);

/// What a file of the module declares, in source order.
struct Outline {
  std::string kind, name, text;
  Span span, name_span;
};
std::vector<Outline> outline(const Module&, std::uint32_t file);

/// Does the offset lie in a comment, or after one on its line?
bool in_comment(std::string_view text, const std::vector<ast::Comment>&, std::uint32_t offset);

/// What the language says of a word that nobody declares: a layout variable, a derived number, a
/// field, an op, a function, a keyword; "" where it is none.
std::string_view word_doc(std::string_view word);

/// The words of the language by what they are, as grammars of editors colour them.
struct Vocabulary {
  std::vector<std::string> keywords;   ///< reserved, and those known by their place
  std::vector<std::string> kinds;      ///< of declarations
  std::vector<std::string> variables;  ///< of layouts, and derived numbers
  std::vector<std::string> calls;      ///< ops and functions
  std::vector<std::string> units;
  std::vector<std::string> constants;  ///< true, false, none
};
Vocabulary vocabulary();

}  // namespace plimsoll::assist
