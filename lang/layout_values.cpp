// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/layout_values.hpp"

#include <algorithm>

#include "lang/grouped.hpp"

namespace plimsoll {

namespace {

/// A degree of parallelism, a stage's layers: far above any machine, far below overflow.
constexpr std::int64_t kMaxDegree = 1'000'000'000;

std::string_view example_of(const VariableName& row) {
  switch (row.type) {
    case NameType::boolean:
      return "true";
    case NameType::recompute:
      return "selective";
    case NameType::schedule:
      return "1f1b";
    case NameType::numbers:
      return "[19, 21, 21, 19]";
    case NameType::pools:
      return "[fast, fast, slow, slow]";
    case NameType::number:
      break;
  }
  return row.name == "zero" ? "1" : row.name == "offload" ? "0.5" : "8";
}

std::string_view kind_of(const VariableName& row) {
  switch (row.type) {
    case NameType::boolean:
      return "true or false";
    case NameType::recompute:
    case NameType::schedule:
      return "a word";
    case NameType::numbers:
      return "a list of whole numbers";
    case NameType::pools:
      return "a list of pools";
    case NameType::number:
      break;
  }
  return "a count";
}

bool wrong(const VariableName& row, Span span, const std::string& expected,
           const std::string& found, Diagnostics& diags) {
  diags.error(span, fmt::format("'{}' must be {}, got {}", row.name, expected, found))
      .with_help(fmt::format("for example {} = {}", row.name, example_of(row)));
  return false;
}

bool check_number(Module::Impl& module, const VariableName& row, const eval::Value& value,
                  Span span, Diagnostics& diags) {
  const auto* number = value.as<eval::Number>();
  if (number == nullptr || !number->dimension.is_count())
    return wrong(row, span, std::string(kind_of(row)), value.kind(), diags);
  if (!module.pool.is_constant(number->expr)) return true;  // depends on other variables
  const Rational& n = module.pool.value(number->expr);
  if (row.name == "offload")
    return (n.sign() >= 0 && n <= 1) || wrong(row, span, "a share from 0 to 1", grouped(n), diags);
  if (row.name == "zero")
    return (n.is_integer() && n.sign() >= 0 && n <= 3) ||
           wrong(row, span, "0, 1, 2 or 3", grouped(n), diags);
  if (!n.is_integer()) return wrong(row, span, "a whole number", grouped(n), diags);
  if (n.sign() <= 0) return wrong(row, span, "1 or more", grouped(n), diags);
  return n <= Rational(kMaxDegree) ||
         wrong(row, span, "at most " + grouped(kMaxDegree), grouped(n.num()), diags);
}

bool check_word(const VariableName& row, const eval::Value& value, Span span, Diagnostics& diags) {
  if (value.is_none() && row.type == NameType::recompute) return true;
  if (value.as<eval::OpenWord>() != nullptr) return true;
  const auto* word = value.as<eval::Word>();
  if (word == nullptr) return wrong(row, span, std::string(kind_of(row)), value.kind(), diags);
  return true;  // the evaluator has looked it up
}

bool check_list(Module::Impl& module, const VariableName& row, const eval::Value& value, Span span,
                Diagnostics& diags) {
  const auto* list = value.as<eval::List>();
  if (list == nullptr) return wrong(row, span, std::string(kind_of(row)), value.kind(), diags);
  if (list->items.empty()) return wrong(row, span, "an entry a stage", "an empty list", diags);
  const bool may_be_zero = row.name == "recompute_layers";
  for (const eval::Value& item : list->items) {
    const Span at = item.span ? item.span : span;
    if (row.type == NameType::pools) {
      if (item.as<eval::Word>() == nullptr)
        return wrong(row, at, std::string(kind_of(row)), "one with " + item.kind(), diags);
      continue;
    }
    const std::optional<Rational> n = constant_of(module, item);
    if (!n) return wrong(row, at, std::string(kind_of(row)), "one with " + item.kind(), diags);
    if (!n->is_integer() || n->sign() < (may_be_zero ? 0 : 1) || *n > Rational(kMaxDegree))
      return wrong(
          row, at,
          may_be_zero ? "a list of whole numbers from 0" : "a list of whole numbers from 1",
          grouped(*n), diags);
  }
  return true;
}

}  // namespace

std::optional<Rational> constant_of(const Module::Impl& module, const eval::Value& value) {
  const auto* number = value.as<eval::Number>();
  if (number == nullptr || !number->dimension.is_count() || !module.pool.is_constant(number->expr))
    return std::nullopt;
  return module.pool.value(number->expr);
}

std::vector<std::string> layout_names() {
  std::vector<std::string> names;
  for (const VariableName& row : layout_variables()) names.emplace_back(row.name);
  return names;
}

const eval::Enumeration* words_of(Module::Impl& module, const VariableName& row,
                                  const eval::Enumeration* recompute) {
  switch (row.type) {
    case NameType::recompute:
      return recompute;
    case NameType::schedule:
      return module.enumeration("schedule", {kSchedules.begin(), kSchedules.end()});
    case NameType::pools:
      return &eval::any_words();
    default:
      return nullptr;
  }
}

bool check_layout_value(Module::Impl& module, const VariableName& row, const eval::Value& value,
                        Span span, Diagnostics& diags) {
  switch (row.type) {
    case NameType::number:
      return check_number(module, row, value, span, diags);
    case NameType::boolean:
      return value.as<eval::Boolean>() != nullptr ||
             wrong(row, span, std::string(kind_of(row)), value.kind(), diags);
    case NameType::recompute:
    case NameType::schedule:
      return check_word(row, value, span, diags);
    case NameType::numbers:
    case NameType::pools:
      return check_list(module, row, value, span, diags);
  }
  return true;
}

void check_stage_lists(Module::Impl& module, const std::map<std::string, eval::Value>& values,
                       Diagnostics& diags) {
  std::optional<std::int64_t> stages;
  std::string said_by;
  if (const auto at = values.find("pp"); at != values.end())
    if (const std::optional<Rational> pp = constant_of(module, at->second)) {
      stages = pp->to_int64();
      said_by = fmt::format("pp = {}", *stages);
    }
  for (const char* name : {"stage_layers", "recompute_layers", "stage_pool"}) {
    const auto at = values.find(name);
    const auto* list = at != values.end() ? at->second.as<eval::List>() : nullptr;
    if (list == nullptr) continue;
    const auto length = static_cast<std::int64_t>(list->items.size());
    if (stages && *stages != length)
      diags
          .error(at->second.span, fmt::format("'{}' has {} entr{}, but {}", name, length,
                                              length == 1 ? "y" : "ies", said_by))
          .with_help("lists have an entry a stage of the pipeline, whatever vpp");
    if (!stages) {
      stages = length;
      said_by = fmt::format("'{}' has {}", name, length);
    }
  }
  const auto layers = values.find("stage_layers"), recomputed = values.find("recompute_layers");
  if (layers == values.end() || recomputed == values.end()) return;
  const auto* held = layers->second.as<eval::List>();
  const auto* again = recomputed->second.as<eval::List>();
  if (held == nullptr || again == nullptr) return;
  for (std::size_t i = 0; i < std::min(held->items.size(), again->items.size()); ++i) {
    const auto has = constant_of(module, held->items[i]), of = constant_of(module, again->items[i]);
    if (!has || !of || *of <= *has) continue;
    diags
        .error(recomputed->second.span, fmt::format("stage {} recomputes {} layers, but has {}", i,
                                                    grouped(*of), grouped(*has)))
        .with_help("recompute_layers counts some of each stage's layers");
  }
}

PinScope::PinScope(Module::Impl& module, const std::vector<const ast::Entry*>& entries,
                   const eval::Scope* parent, const eval::Enumeration* recompute,
                   Diagnostics& diags)
    : eval::Scope(parent), module_(module), recompute_(recompute), diags_(diags) {
  for (const ast::Entry* entry : entries)
    if (entry->kind == ast::EntryKind::assign && entry->value &&
        find_name(layout_variables(), entry->name.text) != nullptr)
      entries_[entry->name.text] = entry;
}

const eval::Value* PinScope::value_of(const ast::Entry& entry) const {
  const VariableName* row = find_name(layout_variables(), entry.name.text);
  if (row == nullptr || !entry.value) return nullptr;
  if (const auto at = made_.find(entry.name.text); at != made_.end())
    return at->second ? &*at->second : nullptr;
  std::optional<eval::Value> value;
  if (std::find(busy_.begin(), busy_.end(), entry.name.text) != busy_.end()) {
    diags_
        .error(entry.value->span,
               fmt::format("the value of '{}' depends on itself", entry.name.text))
        .with_help(fmt::format("give it a value of its own: {} = {}", row->name, example_of(*row)));
  } else {
    busy_.push_back(entry.name.text);
    eval::Evaluator evaluator(module_.pool, diags_);
    value = evaluator.eval(*entry.value, *this, plimsoll::words_of(module_, *row, recompute_));
    if (value && value->as<eval::Unknown>() != nullptr) value.reset();
    if (value) value->span = entry.value->span;
    if (value && !check_layout_value(module_, *row, *value, entry.value->span, diags_))
      value.reset();
    busy_.pop_back();
  }
  auto& kept = made_[entry.name.text];
  kept = std::move(value);
  return kept ? &*kept : nullptr;
}

const eval::Value* PinScope::make(std::string_view name) const {
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) return nullptr;
  static const eval::Value kWrong{eval::Unknown{}, {}};
  const eval::Value* value = value_of(*entry->second);
  return value != nullptr ? value : &kWrong;
}

std::vector<std::string> PinScope::made_names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

}  // namespace plimsoll
