// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lang/module_impl.hpp"

/// Bodies that are tables of fields: each kind says once what its fields are, and one reader checks
/// a body against it. Private to lang/.
namespace plimsoll {

enum class FieldType : std::uint8_t {
  quantity,   ///< a number of `dimension`
  integer,    ///< a whole number
  tokens,     ///< a whole number of tokens; 8k is a warning
  share,      ///< 0..1
  word,       ///< one of `words`
  reference,  ///< the name of a declaration
  other,      ///< read by its owner
};

enum class Range : std::uint8_t { positive, non_negative };

/// What any count of GPUs, layers, tokens … must be below: keeps products in 128 bits.
inline constexpr std::int64_t kMaxCount = 1'000'000'000'000'000;

struct Field {
  std::string_view name;
  FieldType type = FieldType::other;
  std::string_view example;  ///< the right side of a line that gives it: "80 GiB"
  Dimension dimension = kCount;
  Range range = Range::positive;
  bool required = false;
  bool narrows = false;         ///< may be written with `in`
  std::string_view words = {};  ///< of a word, with blanks between
  Kind refers_to = Kind::gpu;
  std::int64_t most = kMaxCount;  ///< of a whole number
};

inline constexpr Dimension kBytesPerSecond{1, 0, -1, 0};
inline constexpr Dimension kFlopsPerSecond{0, 1, -1, 0};
inline constexpr Dimension kMoneyPerSecond{0, 0, -1, 1};
/// How many values `x in a..b` may leave open.
inline constexpr std::int64_t kMaxChoices = 4096;

/// Is this entry `name = value` or `name in value`?
inline bool is_field(const ast::Entry& entry) {
  return entry.kind == ast::EntryKind::assign || entry.kind == ast::EntryKind::narrow;
}
/// The keyword of an entry, for errors: "repeat", "a field".
std::string_view keyword(ast::EntryKind);
/// "a gpu", "an optimizer".
std::string with_article(std::string_view noun);
/// "a number", "a string", "the word 'x'": what an expression is before it has a value.
std::string describe(const ast::Expr&);

/// Evaluates and checks single values, with errors that name the field.
class FieldReader {
 public:
  /// \a body: what the errors call the declaration: "gpu".
  FieldReader(Module::Impl& module, std::string body, const eval::Scope& scope, Diagnostics& diags)
      : module_(module),
        body_(std::move(body)),
        scope_(scope),
        diags_(diags),
        evaluator_(module.pool, diags) {}

  std::optional<eval::Value> value(const ast::Expr&, const eval::Enumeration* words = nullptr);
  /// An exact number that depends on nothing open.
  std::optional<Rational> number(const Field&, const ast::Expr&);
  std::optional<std::int64_t> integer(const Field&, const ast::Expr&);
  std::optional<std::string> word(const Field&, const ast::Expr&);
  /// The name of a declaration that exists.
  const ast::Declaration* reference(const Field&, const ast::Expr&);
  std::optional<std::string> name(const Field&, const ast::Expr&);
  /// `{a, b}`: names, whatever they mean.
  std::optional<std::vector<std::string>> name_set(const Field&, const ast::Expr&,
                                                   std::vector<Span>* spans = nullptr);
  /// What `in` leaves: the members of a set, list or range.
  std::optional<std::vector<eval::Value>> choices(std::string_view field, const ast::Expr&,
                                                  const eval::Enumeration* words = nullptr);
  /// A value at hand as a constant in the field's range.
  std::optional<Rational> check_number(const Field&, const eval::Value&, Span);

  /// 8k and 1M where tokens of a sequence are meant.
  void warn_of_powers_of_ten(const Field&, const ast::Expr&);

  Diagnostics& diags() { return diags_; }
  eval::Evaluator& evaluator() { return evaluator_; }

 private:
  std::string example(const Field&) const;

  Module::Impl& module_;
  std::string body_;
  const eval::Scope& scope_;
  Diagnostics& diags_;
  eval::Evaluator evaluator_;
};

/// Reports entries that cannot stand in a body (\a allowed), fields of no such name, missing ones.
/// \a accepts: further names of fields that the owner reads.
void check_body(Module::Impl&, std::string_view body, const ast::Name& name,
                const std::vector<const ast::Entry*>& entries,
                std::initializer_list<ast::EntryKind> allowed, std::span<const Field> fields,
                const std::vector<std::string>& accepts, Diagnostics&);

/// The tables, for editors: the fields of a declaration's body, and of the bodies inside one
/// (`pool`, `beside`, `observed`, `state`, `item`); empty where a body has no table.
std::span<const Field> fields_of(Kind);
std::span<const Field> fields_of(ast::EntryKind);
std::span<const Field> hardware_fields(Kind);   ///< gpu, cluster, dtype
std::span<const Field> behaviour_fields();      ///< framework
std::span<const Field> job_fields(bool serve);  ///< train, serve
std::span<const Field> hardware_entry_fields(ast::EntryKind);
std::span<const Field> behaviour_entry_fields(ast::EntryKind);
std::span<const Field> job_entry_fields(ast::EntryKind);

/// The dimension of a gpu's or cluster's numeric field; nullopt: it has none of that name.
std::optional<Dimension> hardware_dimension(std::string_view name);
/// Its fields, for "did you mean".
std::vector<std::string> hardware_names();

}  // namespace plimsoll
