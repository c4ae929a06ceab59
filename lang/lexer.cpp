// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/lexer.hpp"

#include <array>
#include <optional>

#include "lang/lexer_words.hpp"
#include "lang/units.hpp"

namespace plimsoll::syntax {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

class Lexer {
 public:
  Lexer(Span part, std::string_view text, std::vector<ast::Comment>& comments,
        Diagnostics& diagnostics)
      : file_(part.file),
        text_(text.substr(0, part.end)),
        comments_(comments),
        diagnostics_(diagnostics),
        at_(part.begin) {}

  std::vector<Token> run() {
    tokens_.reserve((text_.size() - at_) / 4 + 2);
    check_encoding();
    while (skip_blanks()) next_token();
    add(Kind::end, at_);
    return std::move(tokens_);
  }

 private:
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  Span span(std::size_t begin, std::size_t end) const {
    return {file_, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
  }
  std::string_view slice(std::size_t begin, std::size_t end) const {
    return text_.substr(begin, end - begin);
  }

  Token& add(Kind kind, std::size_t begin) {
    Token token;
    token.kind = kind;
    token.starts_line = starts_line_;
    token.after_junk = after_junk_;
    after_junk_ = false;
    token.begin = static_cast<std::uint32_t>(begin);
    token.end = token.number_end = token.unit_begin = static_cast<std::uint32_t>(at_);
    starts_line_ = false;
    tokens_.push_back(token);
    return tokens_.back();
  }

  /// The first byte that is no UTF-8 and the first NUL are errors wherever they stand.
  void check_encoding() {
    bool nul_seen = false;
    for (std::size_t i = at_; i < text_.size();) {
      if (const auto byte = static_cast<unsigned char>(text_[i]); byte - 1u < 0x7Fu) {
        ++i;
        continue;
      }
      if (text_[i] == '\0') {
        if (!nul_seen)
          diagnostics_.error(span(i, i + 1), "the file has a NUL byte: it is no text")
              .with_help("save the file as UTF-8 text");
        nul_seen = true;
        ++i;
        continue;
      }
      std::uint32_t code = 0;
      const std::size_t size = decode_utf8(text_.substr(i), code);
      if (size == 0) {
        diagnostics_
            .error(span(i, i + 1), fmt::format("the byte 0x{:02X} is not valid UTF-8",
                                               static_cast<unsigned char>(text_[i])))
            .with_help("save the file as UTF-8");
        return;
      }
      i += size;
    }
  }

  /// Moves to the next token, recording comments. False at the end of the file.
  bool skip_blanks() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') {
        starts_line_ = true;
        ++at_;
      } else if (is_blank(c) || c == '\0') {
        ++at_;
      } else if (c == '#') {
        const std::size_t begin = at_;
        at_ = std::min(text_.find('\n', at_), text_.size());
        std::size_t end = at_;
        while (end > begin && is_blank(text_[end - 1])) --end;
        comments_.push_back({span(begin, end), starts_line_});
      } else {
        return true;
      }
    }
    return false;
  }

  void next_token() {
    const char c = peek();
    if (is_letter(c)) return take_word();
    if (is_digit(c)) return take_number();
    if (c == '"') return take_string();
    if (c == '.' && is_digit(peek(1))) return take_bare_fraction();
    if (c == '\'' && take_single_quoted()) return;
    if (!take_punctuation()) take_unknown();
  }

  void take_word() {
    const std::size_t begin = at_;
    while (is_word_character(peek())) ++at_;
    const WordRow* row = find_word(slice(begin, at_));
    Token& token = add(row != nullptr ? row->kind : Kind::word, begin);
    if (row != nullptr) token.soft = row->soft;
  }

  void take_string() {
    const std::size_t begin = at_++;
    while (at_ < text_.size() && peek() != '"' && peek() != '\n') ++at_;
    if (peek() != '"') {
      std::size_t end = at_;
      while (end > begin + 1 && is_blank(text_[end - 1])) --end;
      diagnostics_.error(span(begin, end), "the string does not end on its line")
          .with_help("close it with '\"'; a string stands on one line");
      add(Kind::string, begin).end = static_cast<std::uint32_t>(end);
      return;
    }
    ++at_;
    add(Kind::string, begin);
  }

  /// 'text' on one line, which was meant as a string.
  bool take_single_quoted() {
    const std::size_t close = text_.find_first_of("'\"#\n", at_ + 1);
    if (close == std::string_view::npos || text_[close] != '\'') return false;
    const std::size_t begin = at_;
    at_ = close + 1;
    diagnostics_.error(span(begin, at_), "a string stands in double quotes")
        .with_help(fmt::format("write \"{}\"", shortened(slice(begin + 1, close))));
    add(Kind::string, begin);
    return true;
  }

  void take_digits() {
    while (is_digit(peek()) || (peek() == '_' && is_digit(peek(1)))) ++at_;
  }

  void take_number() {
    const std::size_t begin = at_;
    take_digits();
    if (peek() == '.' && is_digit(peek(1))) {
      ++at_;
      take_digits();
    }
    const bool sign = peek(1) == '+' || peek(1) == '-';
    if ((peek() == 'e' || peek() == 'E') && is_digit(peek(sign ? 2 : 1))) {
      at_ += sign ? 2 : 1;
      take_digits();
    }
    const std::size_t digits_end = at_;
    if (is_letter(peek()) && glued_is_word(begin)) return;
    std::optional<std::size_t> unit;  // where it begins
    if (is_letter(peek()) || peek() == '%') unit = take_glued(begin, digits_end);
    const std::size_t number_end = unit ? *unit : at_;
    if (!unit) unit = take_unit_after_blank(number_end);
    check_end_of_number(begin);
    Token& token = add(Kind::number, begin);
    token.number_end = static_cast<std::uint32_t>(number_end);
    token.unit_begin = unit ? static_cast<std::uint32_t>(*unit) : token.end;
  }

  /// `1f1b`, the one word that begins with a digit.
  bool glued_is_word(std::size_t begin) {
    constexpr std::string_view one_forward_one_backward = "1f1b";
    const std::size_t end = begin + one_forward_one_backward.size();
    if (text_.substr(begin, one_forward_one_backward.size()) != one_forward_one_backward)
      return false;
    if (end < text_.size() && is_word_character(text_[end])) return false;
    at_ = end;
    add(Kind::word, begin);
    return true;
  }

  /// A multiplier or a unit directly after the digits. Returns where the unit begins, if it is one.
  std::optional<std::size_t> take_glued(std::size_t begin, std::size_t digits_end) {
    const std::size_t end = end_of_unit_word(digits_end);
    const std::string_view word = slice(digits_end, end);
    if (find_unit(word)) {
      at_ = end;
      return digits_end;
    }
    at_ = digits_end;
    while (is_word_character(peek())) ++at_;
    const std::string_view letters = slice(digits_end, at_);
    if (!find_multiplier(letters)) report_glued(slice(begin, digits_end), letters, digits_end);
    return std::nullopt;
  }

  void report_glued(std::string_view digits, std::string_view letters, std::size_t at) {
    if (letters.front() == '_') {
      diagnostics_
          .error(span(at, at + letters.size()), "'_' in a number stands between digits only")
          .with_help("write it as in 1_000_000");
      return;
    }
    Diagnostic& error =
        diagnostics_.error(span(at, at + letters.size()),
                           fmt::format("unknown unit or multiplier '{}'", shortened(letters)));
    if (letters == "K") {
      error.with_help(fmt::format("write {0}Ki for {0} * 1024, or {0}k for {0} * 1000", digits));
    } else if (letters == "m" || letters == "g" || letters == "t" || letters == "ki") {
      const char big = letters == "ki" ? 'K' : static_cast<char>(letters[0] - 'a' + 'A');
      const std::string decimal = letters == "ki" ? "k" : std::string(1, big);
      error.with_help(
          fmt::format("multipliers are {0}{1}i (powers of 1024) and {0}{2} (powers of 1000)",
                      digits, big, decimal));
    } else if (const std::string near = did_you_mean(letters, unit_names()); !near.empty()) {
      error.with_help(fmt::format("did you mean '{}{}'?", digits, near));
    } else {
      error.with_help("multipliers are k M G T and Ki Mi Gi Ti; a name begins with a letter");
    }
  }

  static std::string_view shortened(std::string_view text) { return cut_text(text, 40); }

  /// The end of a word, with a glued "/s" or "/h" where a unit may have one, or of '%'.
  std::size_t end_of_unit_word(std::size_t at) const {
    const auto char_at = [&](std::size_t i) { return i < text_.size() ? text_[i] : '\0'; };
    if (char_at(at) == '%') {
      ++at;
    } else {
      while (is_word_character(char_at(at))) ++at;
    }
    if (char_at(at) == '/' && (char_at(at + 1) == 's' || char_at(at + 1) == 'h') &&
        !is_word_character(char_at(at + 2)))
      at += 2;
    return at;
  }

  std::optional<std::size_t> take_unit_after_blank(std::size_t number_end) {
    std::size_t begin = number_end;
    while (begin < text_.size() && (text_[begin] == ' ' || text_[begin] == '\t')) ++begin;
    if (begin == text_.size() || begin == number_end ||
        !(is_letter(text_[begin]) || text_[begin] == '%'))
      return std::nullopt;
    std::size_t end = end_of_unit_word(begin);
    if (!find_unit(slice(begin, end))) return std::nullopt;
    const Kind after = kind_after(end);
    if (after == Kind::left_paren) return std::nullopt;
    if (after == Kind::assign || after == Kind::kw_in) {
      warn_of_unit(number_end, begin, end);
      return std::nullopt;
    }
    at_ = end;
    return begin;
  }

  /// `context = 8Ki sequences = 1`: the word begins the next entry, but a reader may take it for a
  /// unit.
  void warn_of_unit(std::size_t number_end, std::size_t begin, std::size_t end) {
    std::size_t number_begin = number_end;
    while (number_begin > 0 &&
           (is_word_character(text_[number_begin - 1]) || text_[number_begin - 1] == '.'))
      --number_begin;
    diagnostics_
        .warning(span(begin, end),
                 fmt::format("'{}' begins an entry here; it is not the unit of '{}'",
                             slice(begin, end), slice(number_begin, number_end)))
        .with_help("put ';' or a new line before it");
  }

  /// '=' , 'in' or '(' if that is the token after \a at, else Kind::end.
  Kind kind_after(std::size_t at) const {
    while (at < text_.size() && (is_blank(text_[at]) || text_[at] == '\n' || text_[at] == '#'))
      at = text_[at] == '#' ? std::min(text_.find('\n', at), text_.size()) : at + 1;
    if (at == text_.size()) return Kind::end;
    const std::string_view rest = text_.substr(at, 3);
    if (rest[0] == '(') return Kind::left_paren;
    if (rest[0] == '=' && !rest.starts_with("==") && !rest.starts_with("=>")) return Kind::assign;
    if (rest.starts_with("in") && (rest.size() == 2 || !is_word_character(rest[2])))
      return Kind::kw_in;
    return Kind::end;
  }

  /// "1." and "1.5.2".
  void check_end_of_number(std::size_t begin) {
    if (peek() != '.' || peek(1) == '.') return;
    const std::string_view number = slice(begin, at_);
    if (is_digit(peek(1))) {
      const std::size_t dot = at_;
      while (is_word_character(peek()) || (peek() == '.' && is_digit(peek(1)))) ++at_;
      diagnostics_.error(span(dot, at_), "a number has one '.' only")
          .with_help(
              fmt::format("a version is a string: \"{}{}\"", number, shortened(slice(dot, at_))));
      return;
    }
    diagnostics_.error(span(at_, at_ + 1), "a number ends with a digit")
        .with_help(fmt::format("write {0} or {0}.0", shortened(number)));
    ++at_;
  }

  void take_bare_fraction() {
    const std::size_t begin = at_++;
    take_digits();
    diagnostics_.error(span(begin, at_), "a number begins with a digit")
        .with_help(fmt::format("write 0{}", shortened(slice(begin, at_))));
    add(Kind::number, begin);
    tokens_.back().begin++;  // the digits after the '.': a number that can be read
  }

  bool take_punctuation() {
    // Longest first where one begins another.
    static constexpr std::array rows = {
        WordRow{"==", Kind::equal, Soft::none},
        WordRow{"=>", Kind::implies, Soft::none},
        WordRow{"!=", Kind::not_equal, Soft::none},
        WordRow{"<=", Kind::less_equal, Soft::none},
        WordRow{">=", Kind::greater_equal, Soft::none},
        WordRow{"//", Kind::double_slash, Soft::none},
        WordRow{"..", Kind::dots, Soft::none},
    };
    for (const WordRow& row : rows) {
      if (row.text[0] != peek() || row.text[1] != peek(1)) continue;
      at_ += 2;
      add(row.kind, at_ - 2);
      return true;
    }
    const WordRow* row = find_word(text_.substr(at_, 1));
    if (row == nullptr) return false;
    ++at_;
    add(row->kind, at_ - 1);
    return true;
  }

  /// A run of characters that begin no token: one error, and no token.
  void take_unknown() {
    const std::size_t begin = at_;
    std::string_view help;
    Kind meant = Kind::end;
    if (const Habit* habit = find_habit(text_.substr(at_))) {
      help = habit->help;
      meant = habit->meant;
      at_ += habit->text.size();
    }
    if (at_ == begin) {
      do {
        std::uint32_t code = 0;
        at_ += std::max<std::size_t>(1, decode_utf8(text_.substr(at_), code));
      } while (at_ < text_.size() && is_unknown(text_[at_]));
    }
    after_junk_ = true;
    const std::string_view text = slice(begin, at_);
    std::uint32_t code = 0;
    if (decode_utf8(text, code) == 0) return;  // check_encoding has said so
    const bool control = code < 0x20 || code == 0x7F;
    Diagnostic& error = diagnostics_.error(
        span(begin, at_),
        control ? fmt::format("a control character (0x{:02X}) has no meaning here", code)
                : fmt::format("'{}' has no meaning here", shortened(text)));
    if (!help.empty()) {
      error.with_help(std::string(help));
    } else if (code >= 0x80) {
      error.with_help("names are ASCII letters, digits and '_'");
    } else if (text == ".") {
      error.with_help("a '.' stands within a number, '..' in a range");
    } else {
      error.with_help("take it out; a comment begins with '#'");
    }
    if (meant != Kind::end) add(meant, begin);
  }

  static bool is_unknown(char c) {
    return !is_word_character(c) && !is_blank(c) && c != '\n' && c != '"' && c != '#' &&
           c != '\0' && c != '.' && c != '!' && find_word(std::string_view(&c, 1)) == nullptr;
  }

  std::uint32_t file_;
  std::string_view text_;
  std::vector<ast::Comment>& comments_;
  Diagnostics& diagnostics_;
  std::vector<Token> tokens_;
  std::size_t at_;
  bool starts_line_ = true;
  bool after_junk_ = false;
};

}  // namespace

bool is_word_character(char c) { return is_letter(c) || is_digit(c); }

std::vector<Token> lex(const Sources& sources, Span part, std::vector<ast::Comment>& comments,
                       Diagnostics& diagnostics) {
  return Lexer(part, sources[part.file].text(), comments, diagnostics).run();
}

}  // namespace plimsoll::syntax
