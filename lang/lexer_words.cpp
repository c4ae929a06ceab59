// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/lexer_words.hpp"

#include <array>
#include <cstdint>

namespace plimsoll::syntax {

namespace {

constexpr std::array kWords = {
#define X(name, text) WordRow{text, Kind::name, Soft::none},
    PLIMSOLL_TOKENS(X)
#undef X
        WordRow{"state", Kind::word, Soft::state},
    WordRow{"on", Kind::word, Soft::on},
    WordRow{"save", Kind::word, Soft::save},
    WordRow{"fuse", Kind::word, Soft::fuse},
    WordRow{"default", Kind::word, Soft::default_},
    WordRow{"recompute", Kind::word, Soft::recompute},
    WordRow{"pool", Kind::word, Soft::pool},
    WordRow{"observed", Kind::word, Soft::observed},
    WordRow{"beside", Kind::word, Soft::beside},
    WordRow{"weight", Kind::word, Soft::weight},
    WordRow{"each", Kind::word, Soft::each},
    WordRow{"gpu", Kind::word, Soft::declaration},
    WordRow{"cluster", Kind::word, Soft::declaration},
    WordRow{"dtype", Kind::word, Soft::declaration},
    WordRow{"optimizer", Kind::word, Soft::declaration},
    WordRow{"framework", Kind::word, Soft::declaration},
    WordRow{"block", Kind::word, Soft::declaration},
    WordRow{"model", Kind::word, Soft::declaration},
    WordRow{"train", Kind::word, Soft::declaration},
    WordRow{"serve", Kind::word, Soft::declaration},
    WordRow{"layout", Kind::word, Soft::declaration},
};

constexpr std::size_t kWordBuckets = 256;

constexpr std::size_t bucket(std::string_view text) {
  return (static_cast<unsigned char>(text.front()) * 31u +
          static_cast<unsigned char>(text.back()) * 7u + text.size() * 59u) %
         kWordBuckets;
}

/// For each bucket the first row of kWords in it, and for each row the next one; kWords.size()
/// ends.
struct WordIndex {
  std::array<std::uint8_t, kWordBuckets> first{};
  std::array<std::uint8_t, kWords.size()> next{};

  constexpr WordIndex() {
    first.fill(kWords.size());
    for (std::size_t i = 0; i < kWords.size(); ++i) {
      std::uint8_t& head = first[bucket(kWords[i].text)];
      next[i] = head;
      head = static_cast<std::uint8_t>(i);
    }
  }
};

constexpr WordIndex kWordIndex;

}  // namespace

const WordRow* find_word(std::string_view text) {
  for (std::size_t i = kWordIndex.first[bucket(text)]; i < kWords.size(); i = kWordIndex.next[i])
    if (kWords[i].text == text) return &kWords[i];
  return nullptr;
}

namespace {

constexpr std::string_view kDoubleQuotes = "strings stand in plain double quotes: \"…\"";

constexpr std::array kHabits = {
    Habit{"&&", "write 'and'", Kind::kw_and},
    Habit{"||", "write 'or'", Kind::kw_or},
    Habit{"&", "write 'and'", Kind::kw_and},
    Habit{"|", "write 'or'", Kind::kw_or},
    Habit{"!", "write 'not', or '!=' for unequal", Kind::kw_not},
    Habit{"`", kDoubleQuotes, Kind::end},
    Habit{"%", "'%' stands after a number only; the remainder of a division is mod(a, b)",
          Kind::slash},
    Habit{"\u2018", kDoubleQuotes, Kind::end},
    Habit{"\u2019", kDoubleQuotes, Kind::end},
    Habit{"\u201C", kDoubleQuotes, Kind::end},
    Habit{"\u201D", kDoubleQuotes, Kind::end},
    Habit{"\u00D7", "write '*'", Kind::star},
    Habit{"\u00B7", "write '*'", Kind::star},
    Habit{"\u00F7", "write '/'", Kind::slash},
    Habit{"\u2212", "write '-'", Kind::minus},
    Habit{"\u2013", "write '-', or '..' for a range", Kind::minus},
    Habit{"\u2264", "write '<='", Kind::less_equal},
    Habit{"\u2265", "write '>='", Kind::greater_equal},
    Habit{"\u2260", "write '!='", Kind::not_equal},
    Habit{"\u2208", "write 'in'", Kind::kw_in},
    Habit{"\u2026", "write '..'", Kind::dots},
    Habit{"\u21D2", "write '=>'", Kind::implies},
    Habit{"\u00A0", "this blank is a no-break space; write an ordinary one", Kind::end},
};

}  // namespace

const Habit* find_habit(std::string_view text) {
  for (const Habit& habit : kHabits)
    if (text.starts_with(habit.text)) return &habit;
  return nullptr;
}

std::string_view cut_text(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::end:
      return "the end of the file";
    case Kind::word:
      return "a name";
    case Kind::number:
      return "a number";
    case Kind::string:
      return "a string";
#define X(name, text) \
  case Kind::name:    \
    return "'" text "'";
      PLIMSOLL_TOKENS(X)
#undef X
  }
  return "";
}

namespace {

std::vector<std::string> words_with(bool (*wanted)(const WordRow&)) {
  std::vector<std::string> result;
  for (const WordRow& row : kWords)
    if (wanted(row)) result.emplace_back(row.text);
  return result;
}

}  // namespace

const std::vector<std::string>& entry_words() {
  static const std::vector<std::string> words = words_with([](const WordRow& row) {
    const bool within =
        row.kind == Kind::kw_as || row.soft == Soft::weight || row.soft == Soft::each;
    const bool begins = (row.kind >= Kind::kw_param && row.kind <= Kind::kw_maximize) ||
                        (row.soft != Soft::none && row.soft != Soft::declaration);
    return begins && !within;
  });
  return words;
}

const std::vector<std::string>& declaration_kinds() {
  static const std::vector<std::string> words =
      words_with([](const WordRow& row) { return row.soft == Soft::declaration; });
  return words;
}

}  // namespace plimsoll::syntax
