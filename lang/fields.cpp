// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/fields.hpp"

#include <algorithm>

#include "lang/grouped.hpp"

namespace plimsoll {

namespace {

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) words.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

/// "8k" and "1M", but not "8Ki": the multiplier is a power of 1000.
bool is_power_of_ten(const ast::Expr& e) {
  return e.kind == ast::ExprKind::number && !e.text.empty() &&
         std::string_view("kMGT").find(e.text.back()) != std::string_view::npos;
}

}  // namespace

std::string_view keyword(ast::EntryKind kind) {
  switch (kind) {
    case ast::EntryKind::assign:
    case ast::EntryKind::narrow:
      return "a field";
    case ast::EntryKind::param:
      return "'param'";
    case ast::EntryKind::repeat:
      return "'repeat'";
    case ast::EntryKind::ret:
      return "'return'";
    case ast::EntryKind::item:
      return "'item'";
    case ast::EntryKind::require:
      return "'require'";
    case ast::EntryKind::prefer:
      return "'prefer'";
    case ast::EntryKind::minimize:
      return "'minimize'";
    case ast::EntryKind::maximize:
      return "'maximize'";
    case ast::EntryKind::state:
      return "'state'";
    case ast::EntryKind::on:
      return "'on'";
    case ast::EntryKind::save:
      return "'save'";
    case ast::EntryKind::fuse:
      return "'fuse'";
    case ast::EntryKind::default_:
      return "'default'";
    case ast::EntryKind::recompute:
      return "'recompute'";
    case ast::EntryKind::pool:
      return "'pool'";
    case ast::EntryKind::observed:
      return "'observed'";
    case ast::EntryKind::beside:
      return "'beside'";
  }
  return "an entry";
}

std::string with_article(std::string_view noun) {
  const bool vowel = !noun.empty() && std::string_view("aeiou").find(noun[0]) != noun.npos;
  return fmt::format("{} {}", vowel ? "an" : "a", noun);
}

std::string describe(const ast::Expr& e) {
  switch (e.kind) {
    case ast::ExprKind::number:
      return e.unit_text.empty() ? "a number" : fmt::format("{} {}", e.text, e.unit_text);
    case ast::ExprKind::string:
      return "a string";
    case ast::ExprKind::boolean:
      return e.flag ? "'true'" : "'false'";
    case ast::ExprKind::name:
      return fmt::format("'{}'", e.text);
    case ast::ExprKind::call:
      return fmt::format("a call of '{}'", e.text);
    case ast::ExprKind::set:
      return "a set";
    case ast::ExprKind::list:
      return "a list";
    default:
      return "an expression";
  }
}

std::string FieldReader::example(const Field& field) const {
  return fmt::format("for example {} = {}", field.name, field.example);
}

std::optional<eval::Value> FieldReader::value(const ast::Expr& e, const eval::Enumeration* words) {
  std::optional<eval::Value> found = evaluator_.eval(e, scope_, words);
  if (found && found->as<eval::Unknown>() != nullptr) return std::nullopt;
  return found;
}

std::optional<Rational> FieldReader::number(const Field& field, const ast::Expr& e) {
  if (field.type == FieldType::tokens) warn_of_powers_of_ten(field, e);
  const std::optional<eval::Value> found = value(e);
  if (!found) return std::nullopt;
  return check_number(field, *found, e.span);
}

std::optional<Rational> FieldReader::check_number(const Field& field, const eval::Value& found,
                                                  Span span) {
  const auto* number = found.as<eval::Number>();
  if (number == nullptr || number->dimension != field.dimension) {
    diags_
        .error(span, fmt::format("expected {} for '{}', got {}", field.dimension.str(), field.name,
                                 found.kind()))
        .with_help(example(field));
    return std::nullopt;
  }
  if (!module_.pool.is_constant(number->expr)) {
    diags_
        .error(span, fmt::format("expected a number for '{}', got one that depends on the layout",
                                 field.name))
        .with_help(example(field));
    return std::nullopt;
  }
  const Rational& value = module_.pool.value(number->expr);
  const auto fail = [&](std::string_view expected) {
    const Quantity found_quantity{value, number->dimension};
    diags_
        .error(span,
               fmt::format("'{}' must be {}, got {}", field.name, expected,
                           number->dimension.is_count() ? grouped(value) : human(found_quantity)))
        .with_help(example(field));
    return std::nullopt;
  };
  if (field.type == FieldType::tokens && number->unit == "sequences") {
    diags_.error(span, fmt::format("'{}' counts tokens, got sequences", field.name))
        .with_help(example(field));
    return std::nullopt;
  }
  if (field.type == FieldType::share) {
    if (value.sign() < 0 || value > 1) return fail("a share from 0 to 1");
    return value;
  }
  const bool whole = field.type == FieldType::integer || field.type == FieldType::tokens;
  if (whole && !value.is_integer()) return fail("a whole number");
  if (value.sign() < 0 && field.range == Range::non_negative) return fail("0 or more");
  if (value.sign() <= 0 && field.range == Range::positive)
    return fail(whole ? "1 or more" : "above 0");
  if (whole && value > Rational(field.most)) return fail("at most " + grouped(field.most));
  // A rate of 10^30 is no rate; what is kept must survive products of some of them.
  if (value > Rational(kMaxCount) * Rational(kMaxCount)) return fail("a size that exists");
  return value;
}

std::optional<std::int64_t> FieldReader::integer(const Field& field, const ast::Expr& e) {
  const std::optional<Rational> found = number(field, e);
  if (!found) return std::nullopt;
  return found->to_int64();
}

void FieldReader::warn_of_powers_of_ten(const Field& field, const ast::Expr& e) {
  if (is_power_of_ten(e)) {
    const std::string digits = e.text.substr(0, e.text.size() - 1);
    diags_
        .warning(e.span,
                 fmt::format("{} is {} tokens, not a power of two", e.text, human(e.quantity)))
        .with_help(fmt::format("write {} = {}{}i for {} * {}", field.name, digits,
                               e.text.back() == 'k' ? 'K' : e.text.back(), digits,
                               e.text.back() == 'k' ? "1024" : "1024^2"));
  }
  for (const ast::Argument& argument : e.args)
    if (argument.value) warn_of_powers_of_ten(field, *argument.value);
}

std::optional<std::string> FieldReader::word(const Field& field, const ast::Expr& e) {
  const eval::Enumeration* words = module_.enumeration(std::string(field.name), split(field.words));
  const std::optional<eval::Value> found = value(e, words);
  if (!found) return std::nullopt;
  const auto* word = found->as<eval::Word>();
  std::string text = word != nullptr ? word->text : found->is_none() ? "none" : "";
  if (std::find(words->words.begin(), words->words.end(), text) != words->words.end()) return text;
  diags_
      .error(e.span, fmt::format("expected a word for '{}', got {}", field.name,
                                 word != nullptr ? "'" + word->text + "'" : found->kind()))
      .with_help(suggest(text, words->words, fmt::format("words of '{}'", field.name)));
  return std::nullopt;
}

std::optional<std::string> FieldReader::name(const Field& field, const ast::Expr& e) {
  if (e.kind == ast::ExprKind::name) return e.text;
  diags_
      .error(e.span, fmt::format("expected the name of {} for '{}', got {}",
                                 with_article(noun(field.refers_to)), field.name, describe(e)))
      .with_help(e.kind == ast::ExprKind::string
                     ? fmt::format("names stand without quotes: {} = {}", field.name, e.text)
                     : example(field));
  return std::nullopt;
}

const ast::Declaration* FieldReader::reference(const Field& field, const ast::Expr& e) {
  const std::optional<std::string> text = name(field, e);
  if (!text) return nullptr;
  const ast::Declaration* found = module_.find(field.refers_to, *text, module_.is_prelude(e.span));
  if (found == nullptr) unknown_name(module_, field.refers_to, *text, e.span, diags_);
  return found;
}

std::optional<std::vector<std::string>> FieldReader::name_set(const Field& field,
                                                              const ast::Expr& e,
                                                              std::vector<Span>* spans) {
  const auto fail = [&](const ast::Expr& found) {
    diags_
        .error(found.span,
               fmt::format("expected {} for '{}', got {}",
                           &found == &e ? "a set of names" : "a name", field.name, describe(found)))
        .with_help(example(field));
    return std::nullopt;
  };
  std::vector<std::string> names;
  if (e.kind != ast::ExprKind::set && e.kind != ast::ExprKind::list) return fail(e);
  for (const ast::Argument& argument : e.args) {
    if (argument.value->kind != ast::ExprKind::name) return fail(*argument.value);
    names.push_back(argument.value->text);
    if (spans != nullptr) spans->push_back(argument.value->span);
  }
  return names;
}

std::optional<std::vector<eval::Value>> FieldReader::choices(std::string_view field,
                                                             const ast::Expr& e,
                                                             const eval::Enumeration* words) {
  const std::optional<eval::Value> found = value(e, words);
  if (!found) return std::nullopt;
  const auto help = [&] {
    return fmt::format("for example {} in {{…}}, or {} = … for one value", field, field);
  };
  std::vector<eval::Value> members;
  bool ok = true;
  const auto add_interval = [&](const eval::Interval& interval) {
    const auto& pool = module_.pool;
    if (!pool.is_constant(interval.from.expr) || !pool.is_constant(interval.to.expr)) {
      diags_
          .error(e.span, fmt::format("expected a range of numbers for '{}', got one that "
                                     "depends on the layout",
                                     field))
          .with_help(help());
      return false;
    }
    const Rational from = pool.value(interval.from.expr), to = pool.value(interval.to.expr);
    if (!from.is_integer() || !to.is_integer() || to < from) {
      diags_
          .error(e.span, fmt::format("expected a range of whole numbers for '{}', got {}..{}",
                                     field, grouped(from), grouped(to)))
          .with_help("a range goes upwards: 1..8");
      return false;
    }
    if (to - from >= Rational(kMaxChoices)) {
      diags_
          .error(e.span, fmt::format("'{}' may have at most {} values, got {}", field, kMaxChoices,
                                     grouped(to - from + Rational(1))))
          .with_help("name fewer values: {1, 2, 4, 8}");
      return false;
    }
    for (Rational n = from; n <= to; n += Rational(1))
      members.push_back(eval::Value{
          eval::Number{module_.pool.constant(n), interval.from.dimension, interval.from.unit},
          e.span});
    return true;
  };
  if (const auto* interval = found->as<eval::Interval>()) {
    ok = add_interval(*interval);
  } else if (const auto* set = found->as<eval::Set>()) {
    for (const eval::Value& member : set->items) {
      const auto* range = member.as<eval::Interval>();
      if (range == nullptr)
        members.push_back(member);
      else
        ok = ok && add_interval(*range);
    }
  } else if (const auto* list = found->as<eval::List>()) {
    members = list->items;
  } else {
    diags_
        .error(e.span, fmt::format("expected a set, a list or a range after '{} in', got {}", field,
                                   found->kind()))
        .with_help(help());
    return std::nullopt;
  }
  if (!ok) return std::nullopt;
  if (members.empty() || members.size() > static_cast<std::size_t>(kMaxChoices)) {
    diags_
        .error(e.span, fmt::format("'{}' needs 1 to {} values to choose from, got {}", field,
                                   kMaxChoices, members.size()))
        .with_help(help());
    return std::nullopt;
  }
  return members;
}

namespace {

void wrong_entry(std::string_view body, const ast::Entry& entry,
                 std::initializer_list<ast::EntryKind> allowed, Diagnostics& diags) {
  std::vector<std::string_view> words;
  for (const ast::EntryKind kind : allowed)
    if (std::find(words.begin(), words.end(), keyword(kind)) == words.end())
      words.push_back(keyword(kind));
  const Span at = entry.keyword ? entry.keyword : entry.name.span ? entry.name.span : entry.span;
  diags.error(at, fmt::format("{} cannot stand in {}", keyword(entry.kind), with_article(body)))
      .with_help(fmt::format("{} holds {}", with_article(body), fmt::join(words, ", ")));
}

}  // namespace

void check_body(Module::Impl&, std::string_view body, const ast::Name& name,
                const std::vector<const ast::Entry*>& entries,
                std::initializer_list<ast::EntryKind> allowed, std::span<const Field> fields,
                const std::vector<std::string>& accepts, Diagnostics& diags) {
  std::vector<std::string> known(accepts.begin(), accepts.end());
  for (const Field& field : fields) known.emplace_back(field.name);
  for (const ast::Entry* entry : entries) {
    const bool assigns = is_field(*entry);
    const bool may_stand =
        std::find(allowed.begin(), allowed.end(), assigns ? ast::EntryKind::assign : entry->kind) !=
        allowed.end();
    if (!may_stand) {
      wrong_entry(body, *entry, allowed, diags);
      continue;
    }
    if (!assigns || std::find(accepts.begin(), accepts.end(), entry->name.text) != accepts.end())
      continue;
    const auto field = std::find_if(fields.begin(), fields.end(), [&](const Field& candidate) {
      return candidate.name == entry->name.text;
    });
    if (field == fields.end()) {
      diags
          .error(entry->name.span,
                 fmt::format("unknown field '{}' of {}", entry->name.text, with_article(body)))
          .with_help(suggest(entry->name.text, known, "its fields"));
    } else if (entry->kind == ast::EntryKind::narrow && !field->narrows) {
      diags
          .error(entry->name.span,
                 fmt::format("'{}' takes one value, got a choice with 'in'", field->name))
          .with_help(fmt::format("for example {} = {}", field->name, field->example));
    }
  }
  for (const Field& field : fields) {
    if (!field.required) continue;
    const bool given = std::any_of(entries.begin(), entries.end(), [&](const ast::Entry* entry) {
      return is_field(*entry) && entry->name.text == field.name;
    });
    if (!given)
      diags.error(name.span, fmt::format("{} '{}' has no field '{}'", body, name.text, field.name))
          .with_help(fmt::format("add a line such as {} = {}", field.name, field.example));
  }
}

std::span<const Field> fields_of(Kind kind) {
  if (kind == Kind::train || kind == Kind::serve) return job_fields(kind == Kind::serve);
  if (kind == Kind::framework) return behaviour_fields();
  return hardware_fields(kind);
}

std::span<const Field> fields_of(ast::EntryKind kind) {
  for (const auto table : {hardware_entry_fields, behaviour_entry_fields, job_entry_fields})
    if (const auto fields = table(kind); !fields.empty()) return fields;
  return {};
}

}  // namespace plimsoll
