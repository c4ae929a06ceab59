// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/check_behaviour_body.hpp"

#include <algorithm>
#include <map>

#include "lang/grouped.hpp"
#include "lang/inventory.hpp"
#include "lang/names.hpp"

namespace plimsoll {

namespace {

std::vector<std::string> category_words() {
  std::vector<std::string> words;
#define X(name) words.emplace_back(#name);
  PLIMSOLL_CATEGORIES(X)
#undef X
  return words;
}

}  // namespace

std::vector<const ast::Entry*> lines_of(const ast::Entry& entry, Diagnostics& diags) {
  std::vector<const ast::Entry*> lines;
  std::map<std::string, const ast::Entry*> seen;
  for (const ast::Entry& line : entry.body) {
    lines.push_back(&line);
    if (!is_field(line)) continue;
    const auto [at, added] = seen.emplace(line.name.text, &line);
    if (!added)
      diags.error(line.name.span, fmt::format("'{}' is given twice", line.name.text))
          .label(at->second->name.span, "first given here")
          .with_help("keep one of them");
  }
  return lines;
}

ast::Name label_of(const ast::Entry& entry) {
  return entry.label_span
             ? ast::Name{entry.label, entry.label_span}
             : ast::Name{entry.name.text, entry.name.span ? entry.name.span : entry.keyword};
}

const ast::Expr* line_of(const std::vector<const ast::Entry*>& lines, std::string_view name) {
  for (const ast::Entry* entry : lines)
    if (entry->kind == ast::EntryKind::assign && entry->name.text == name)
      return entry->value.get();
  return nullptr;
}

BodyChecker::BodyChecker(Module::Impl& module, const Behaviour& behaviour, const eval::Scope& place,
                         Diagnostics& diags)
    : module_(module),
      diags_(diags),
      evaluator_(module.pool, diags),
      scope_(behaviour, nullptr, place, evaluator_) {}

bool BodyChecker::is_dtype(std::string_view name) const {
  const auto& words = module_.dtype_words->words;
  return std::find(words.begin(), words.end(), name) != words.end();
}

void BodyChecker::amount(const ast::Expr& e, std::string_view field, Dimension dimension) {
  const std::optional<Expr> found = evaluator_.quantity(e, scope_, dimension);
  if (!found || !module_.pool.is_constant(*found)) return;
  const Rational& value = module_.pool.value(*found);
  if (value.sign() >= 0) return;
  diags_
      .error(e.span, fmt::format("'{}' must be 0 or more, got {}", field,
                                 dimension.is_count() ? grouped(value) : human({value, dimension})))
      .with_help("an item says what one GPU holds; leave out what it does not hold");
}

void BodyChecker::number(const Field& field, const ast::Expr& e) {
  const std::optional<Expr> found = count(e);
  if (!found || !module_.pool.is_constant(*found)) return;
  const eval::Scope empty;
  FieldReader(module_, "framework", empty, diags_)
      .check_number(field, {eval::Number{*found, kCount}, e.span}, e.span);
}

void BodyChecker::dtype(const ast::Expr& e) {
  const auto value = evaluator_.eval(e, scope_, module_.dtype_words);
  if (!value || value->as<eval::Unknown>() != nullptr) return;
  const eval::Enumeration* of = nullptr;
  if (const auto* word = value->as<eval::Word>()) {
    of = word->of;
    if (is_dtype(word->text)) return;
  } else if (const auto* open = value->as<eval::OpenWord>()) {
    of = open->of;
  }
  const bool all = of != nullptr && std::all_of(of->words.begin(), of->words.end(),
                                                [&](const auto& w) { return is_dtype(w); });
  if (all) return;
  diags_.error(e.span, fmt::format("expected a dtype, got {}", value->kind()))
      .with_help(value->as<eval::Word>() != nullptr
                     ? suggest(value->as<eval::Word>()->text, module_.dtype_words->words, "dtypes")
                     : "for example fp32, or if(precision == fp16, fp16, fp32)");
}

void BodyChecker::word(const ast::Expr& e, std::string_view field,
                       const std::vector<std::string>& words) {
  const bool known =
      e.kind == ast::ExprKind::name && std::find(words.begin(), words.end(), e.text) != words.end();
  if (known) return;
  diags_.error(e.span, fmt::format("expected a word for '{}', got {}", field, describe(e)))
      .with_help(suggest(e.kind == ast::ExprKind::name ? e.text : "", words,
                         fmt::format("words of '{}'", field)));
}

void BodyChecker::lifetime(const ast::Expr& e) {
  static const std::vector<std::string> kEvents = {"forward", "backward", "update"};
  static const std::vector<std::string> kWords = {
      "always",   "from_first_step", "step",  "microbatch", "op",   "forward",
      "backward", "update",          "start", "load",       "save", "evaluate"};
  if (e.kind == ast::ExprKind::binary && e.op == ast::Op::range) {
    for (const ast::Argument& end : e.args) word(*end.value, "lifetime", kEvents);
    return;
  }
  word(e, "lifetime", kWords);
}

void BodyChecker::text(const ast::Expr& e, std::string_view field) {
  if (e.kind == ast::ExprKind::string) return;
  diags_.error(e.span, fmt::format("expected a string for '{}', got {}", field, describe(e)))
      .with_help(
          fmt::format("for example {} = \"a paper, or the stack and the place in it\"", field));
}

void BodyChecker::flag(const ast::Expr& e, std::string_view field) {
  const bool ok = e.kind == ast::ExprKind::boolean ||
                  (e.kind == ast::ExprKind::number && (e.text == "0" || e.text == "1"));
  if (!ok)
    diags_.error(e.span, fmt::format("expected 0 or 1 for '{}', got {}", field, describe(e)))
        .with_help(fmt::format("for example {} = 1", field));
}

void BodyChecker::stream(const ast::Expr& e) {
  if (e.kind == ast::ExprKind::name) return;
  diags_.error(e.span, fmt::format("expected a name for 'stream', got {}", describe(e)))
      .with_help("streams are named freely: stream = gather");
}

void BodyChecker::lines(const std::vector<const ast::Entry*>& entries) {
  static const std::vector<std::string> kCombine = {"add", "max"};
  if (const auto* e = line_of(entries, "where")) condition(*e);
  if (const auto* e = line_of(entries, "elements")) amount(*e, "elements", kCount);
  if (const auto* e = line_of(entries, "bytes")) amount(*e, "bytes", kBytes);
  if (const auto* e = line_of(entries, "category")) word(*e, "category", category_words());
  if (const auto* e = line_of(entries, "lifetime")) lifetime(*e);
  if (const auto* e = line_of(entries, "combine")) word(*e, "combine", kCombine);
  if (const auto* e = line_of(entries, "stream")) stream(*e);
  if (const auto* e = line_of(entries, "source")) text(*e, "source");
  if (const auto* e = line_of(entries, "replaces")) text(*e, "replaces");
  for (const char* field : {"early", "late"})
    if (const auto* e = line_of(entries, field)) flag(*e, field);
}

}  // namespace plimsoll
