// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/prelude.hpp"

#include <algorithm>

#include "lang/lexer.hpp"
#include "lang/module_impl.hpp"
#include "lang/parse.hpp"

namespace plimsoll {

namespace {

/// The word that a text begins with, which is taken off it with the blanks behind.
std::string_view take_word(std::string_view& text) {
  const auto end = std::find_if_not(text.begin(), text.end(), syntax::is_word_character);
  const std::string_view word = text.substr(0, static_cast<std::size_t>(end - text.begin()));
  text.remove_prefix(word.size());
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return word;
}

}  // namespace

Prelude::Prelude() {
  for (unsigned i = 0; i < lang::kPreludeFileCount; ++i)
    find_declarations(sources_.add(lang::kPreludeFiles[i].name, lang::kPreludeFiles[i].text, true));
}

/// Written as `fmt` writes: what begins at the start of a line and is no comment or bracket is a
/// declaration, and the comments above it are its own.
void Prelude::find_declarations(std::uint32_t file) {
  const std::string_view text = sources_[file].text();
  Span* last = nullptr;
  std::size_t comments = std::string_view::npos;  // where those before the line begin
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (line.empty()) continue;
    if (line.front() == '#') {
      comments = std::min(comments, begin);
      continue;
    }
    if (syntax::is_word_character(line.front())) {
      const std::optional<Kind> kind = find_kind(take_word(line));
      PLIMSOLL_ASSERT(kind);
      const auto from = static_cast<std::uint32_t>(std::min(comments, begin));
      if (last != nullptr) last->end = from;
      const auto [at, added] = places_[static_cast<std::size_t>(*kind)].emplace(
          take_word(line), Span{file, from, static_cast<std::uint32_t>(text.size())});
      PLIMSOLL_ASSERT(added);
      last = &at->second;
    }
    comments = std::string_view::npos;
  }
}

const ast::Declaration& Prelude::parsed(Kind kind, const std::string& name, Span place) const {
  DeclarationTable& known = parsed_[static_cast<std::size_t>(kind)];
  if (const auto at = known.find(name); at != known.end()) return *at->second;
  Diagnostics diags;
  files_.push_back(parse(sources_, place, diags));
  if (diags.has_errors())
    throw InternalError("the prelude has errors:\n" + diags.render(sources_, false));
  PLIMSOLL_ASSERT(files_.back().declarations.size() == 1);
  const ast::Declaration& declaration = files_.back().declarations.front();
  PLIMSOLL_ASSERT(declaration.name.text == name);
  return *known.emplace(name, &declaration).first->second;
}

const ast::Declaration* Prelude::find(Kind kind, std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const Places& places = places_[static_cast<std::size_t>(kind)];
  const auto at = places.find(name);
  return at != places.end() ? &parsed(kind, at->first, at->second) : nullptr;
}

const DeclarationTable& Prelude::all(Kind kind) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, place] : places_[static_cast<std::size_t>(kind)])
    parsed(kind, name, place);
  return parsed_[static_cast<std::size_t>(kind)];
}

std::vector<std::string> Prelude::names(Kind kind) const {
  std::vector<std::string> names;
  for (const auto& [name, place] : places_[static_cast<std::size_t>(kind)]) names.push_back(name);
  return names;
}

const Prelude& prelude() {
  // Never destroyed: a process that ends need not take the trees apart.
  static const Prelude* const kPrelude = new Prelude;
  return *kPrelude;
}

}  // namespace plimsoll
