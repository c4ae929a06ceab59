// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <utility>

#include "lang/fields.hpp"
#include "lang/module_impl.hpp"

namespace plimsoll {

namespace {

/// What makes an entry of an override stand for one of its template: '=' a field, else the kind
/// of entry and its name. Empty: it adds up.
std::string key_of(const ast::Entry& entry) {
  switch (entry.kind) {
    case ast::EntryKind::assign:
    case ast::EntryKind::narrow:
      return "=" + entry.name.text;
    case ast::EntryKind::param:
      return "param " + entry.name.text;
    case ast::EntryKind::state:
      return "state " + entry.name.text;
    case ast::EntryKind::fuse:
      return "fuse " + entry.name.text;
    case ast::EntryKind::default_:
      return "default " + entry.name.text;
    case ast::EntryKind::recompute:
      return "recompute " + entry.name.text;
    case ast::EntryKind::pool:
      return "pool " + entry.name.text;
    case ast::EntryKind::beside:
      return "beside " + entry.name.text;
    case ast::EntryKind::item:
      return entry.label.empty() ? "" : "item " + entry.label;
    case ast::EntryKind::require:
    case ast::EntryKind::prefer:
      return entry.label.empty() ? "" : "condition " + entry.label;
    case ast::EntryKind::minimize:
    case ast::EntryKind::maximize:
      return "objective";
    default:
      return "";
  }
}

/// Entries that stand once in a body; items and requirements may share a name.
bool stands_once(const ast::Entry& entry) {
  switch (entry.kind) {
    case ast::EntryKind::item:
    case ast::EntryKind::require:
    case ast::EntryKind::prefer:
      return false;
    default:
      return true;
  }
}

std::string twice(const ast::Entry& entry) {
  switch (entry.kind) {
    case ast::EntryKind::assign:
    case ast::EntryKind::narrow:
      return fmt::format("'{}' is given twice", entry.name.text);
    case ast::EntryKind::minimize:
    case ast::EntryKind::maximize:
      return "a job has one objective, got a second";
    default:
      return fmt::format("{} is declared twice", key_of(entry));
  }
}

/// A tensor program's body assigns names again and again; all else says a thing once.
bool is_program(Kind kind, const ast::Declaration& declaration) {
  return kind == Kind::block || (kind == Kind::model && !declaration.base);
}

void check_repeats(Kind kind, const ast::Declaration& declaration, Diagnostics& diags) {
  std::map<std::string, const ast::Entry*> seen;
  for (const ast::Entry& entry : declaration.entries) {
    if (!stands_once(entry)) continue;
    if (is_program(kind, declaration) && entry.kind != ast::EntryKind::param) continue;
    const std::string key = key_of(entry);
    if (key.empty()) continue;
    const auto [at, added] = seen.emplace(key, &entry);
    if (added) continue;
    const bool objective = key == "objective";
    const Span here = objective ? entry.keyword : entry.name.span;
    const Span there = objective ? at->second->keyword : at->second->name.span;
    diags.error(here, twice(entry))
        .label(there, objective ? "the first is here" : "first given here")
        .with_help(objective ? "keep one; the other can be a 'prefer'" : "keep one of them");
  }
}

/// A base of another kind, or none at all.
const ast::Declaration* find_base(Module::Impl& module, Kind kind,
                                  const ast::Declaration& declaration, Diagnostics& diags) {
  const ast::Name& base = *declaration.base;
  const bool from_prelude = module.is_prelude(base.span);
  const ast::Declaration* found = module.find(kind, base.text, from_prelude);
  // `gpu h100_sxm = h100_sxm { … }` refines the prelude's.
  if (found == &declaration && !from_prelude) {
    const ast::Declaration* theirs = module.find(kind, base.text, true);
    return theirs != nullptr ? theirs : found;
  }
  if (found != nullptr) return found;
  for (std::size_t i = 0; i < kKindCount; ++i) {
    const Kind other = static_cast<Kind>(i);
    const ast::Declaration* of_other = module.find(other, base.text, from_prelude);
    if (of_other == nullptr) continue;
    diags
        .error(base.span, fmt::format("expected {} as template, got {} '{}'",
                                      with_article(noun(kind)), noun(other), base.text))
        .label(of_other->name.span, "declared here")
        .with_help(fmt::format("{} copies another {}", with_article(noun(kind)), noun(kind)));
    return nullptr;
  }
  unknown_name(module, kind, base.text, base.span, diags);
  return nullptr;
}

/// The declaration and its templates, itself first; empty after errors.
std::vector<const ast::Declaration*> chain_of(Module::Impl& module, Kind kind,
                                              const ast::Declaration& declaration,
                                              Diagnostics& diags) {
  std::vector<const ast::Declaration*> chain{&declaration};
  while (chain.back()->base) {
    const ast::Declaration& last = *chain.back();
    const ast::Declaration* base = find_base(module, kind, last, diags);
    if (base == nullptr) return {};
    const auto again = std::find(chain.begin(), chain.end(), base);
    if (again != chain.end()) {
      std::string text;
      for (auto at = again; at != chain.end(); ++at) text += (*at)->name.text + " = ";
      // Reported where the circle closes, so that each of its members says the same.
      const auto least = *std::min_element(again, chain.end(), [](const auto* a, const auto* b) {
        return std::pair(a->span.file, a->span.begin) < std::pair(b->span.file, b->span.begin);
      });
      text.clear();
      std::size_t at =
          static_cast<std::size_t>(std::find(again, chain.end(), least) - chain.begin());
      const std::size_t first = static_cast<std::size_t>(again - chain.begin());
      for (std::size_t n = 0; n < chain.size() - first; ++n) {
        text += chain[at]->name.text + " = ";
        if (++at == chain.size()) at = first;
      }
      diags
          .error(least->base->span, fmt::format("{} '{}' is made from itself: {}{}", noun(kind),
                                                least->name.text, text, least->name.text))
          .with_help("one of them must be written out, without a template");
      return {};
    }
    if (chain.size() >= kMaxTemplateDepth) {
      diags
          .error(declaration.base->span,
                 fmt::format("a chain of more than {} templates", kMaxTemplateDepth))
          .with_help("copy a template nearer to the first one");
      return {};
    }
    chain.push_back(base);
  }
  return chain;
}

}  // namespace

const ast::Entry* Merged::field(std::string_view name) const {
  for (const ast::Entry* entry : entries)
    if ((entry->kind == ast::EntryKind::assign || entry->kind == ast::EntryKind::narrow) &&
        entry->name.text == name)
      return entry;
  return nullptr;
}

const ast::Declaration* Module::Impl::find(Kind kind, std::string_view name,
                                           bool from_prelude) const {
  const auto i = static_cast<std::size_t>(kind);
  if (!from_prelude)
    if (const auto at = user[i].find(name); at != user[i].end()) return at->second;
  return prelude().find(kind, name);
}

std::vector<std::string> Module::Impl::names(Kind kind, bool from_prelude) const {
  const auto i = static_cast<std::size_t>(kind);
  const std::vector<std::string> theirs = prelude().names(kind);
  std::set<std::string> all(theirs.begin(), theirs.end());
  if (!from_prelude)
    for (const auto& [name, declaration] : user[i]) all.insert(name);
  return {all.begin(), all.end()};
}

const eval::Enumeration* Module::Impl::enumeration(std::string name,
                                                   std::vector<std::string> words) {
  const std::string key = fmt::format("{}: {}", name, fmt::join(words, " "));
  const auto at = enumeration_by_words.find(key);
  if (at != enumeration_by_words.end()) return at->second;
  enumerations.push_back(
      std::make_unique<eval::Enumeration>(eval::Enumeration{std::move(name), std::move(words)}));
  return enumeration_by_words[key] = enumerations.back().get();
}

std::string suggest(std::string_view name, const std::vector<std::string>& candidates,
                    std::string_view what) {
  const std::string near = did_you_mean(name, candidates);
  if (!near.empty()) return fmt::format("did you mean '{}'?", near);
  constexpr std::size_t kShown = 16;
  if (candidates.empty()) return fmt::format("there are no {}", what);
  if (candidates.size() <= kShown)
    return fmt::format("{} are: {}", what, fmt::join(candidates, ", "));
  return fmt::format("{} are: {} … ({} in all)", what,
                     fmt::join(candidates.begin(), candidates.begin() + kShown, ", "),
                     candidates.size());
}

void unknown_name(Module::Impl& module, Kind kind, std::string_view name, Span span,
                  Diagnostics& diags) {
  if (module.incomplete) return;
  const std::vector<std::string> known = module.names(kind, module.is_prelude(span));
  const std::string near = did_you_mean(name, known);
  Diagnostic& error = diags.error(span, fmt::format("unknown {} '{}'", noun(kind), name));
  if (!near.empty()) {
    const ast::Declaration* meant = module.find(kind, near, module.is_prelude(span));
    if (meant != nullptr && !module.is_prelude(meant->name.span))
      error.label(meant->name.span, "declared here");
  }
  // A name of another kind is no misspelling: say what it is.
  for (std::size_t i = 0; near.empty() && i < kKindCount; ++i) {
    const ast::Declaration* other = module.find(static_cast<Kind>(i), name, false);
    if (other != nullptr && !module.is_prelude(other->name.span))
      error.label(other->name.span,
                  fmt::format("'{}' is {}", name, with_article(noun(static_cast<Kind>(i)))));
  }
  error.with_help(known.empty() ? fmt::format("declare it: {} {} {{ … }}", word(kind), name)
                                : suggest(name, known, fmt::format("known {}s", noun(kind))));
}

const Merged* merge(Module::Impl& module, Kind kind, const ast::Declaration& declaration,
                    Diagnostics& diags) {
  const auto [at, added] = module.merged.try_emplace(&declaration);
  Merged& merged = at->second;
  if (!added) return merged.declaration != nullptr ? &merged : nullptr;
  const std::vector<const ast::Declaration*> chain = chain_of(module, kind, declaration, diags);
  if (chain.empty()) return nullptr;
  for (const ast::Declaration* link : chain)
    if (module.broken.contains(link)) return nullptr;
  check_repeats(kind, declaration, diags);
  std::vector<const ast::Entry*> entries;
  std::map<std::string, std::size_t> place;
  for (auto link = chain.rbegin(); link != chain.rend(); ++link) {
    const bool program = is_program(kind, **link);
    std::map<std::string, std::size_t> own;
    for (const ast::Entry& entry : (*link)->entries) {
      const std::string key = key_of(entry);
      const bool replaceable = !key.empty() && (!program || entry.kind == ast::EntryKind::param ||
                                                entry.kind == ast::EntryKind::item);
      const auto before = replaceable ? place.find(key) : place.end();
      if (before != place.end()) {
        entries[before->second] = &entry;
      } else {
        if (replaceable) own.emplace(key, entries.size());
        entries.push_back(&entry);
      }
    }
    place.insert(own.begin(), own.end());
  }
  merged.declaration = &declaration;
  merged.bases.assign(chain.begin() + 1, chain.end());
  merged.entries = std::move(entries);
  return &merged;
}

}  // namespace plimsoll
