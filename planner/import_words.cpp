// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/import_words.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

namespace plimsoll::imports {
namespace {

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/// A word, and whether any of it stood in quotes: "#" and "--x" mean nothing special there.
struct Word {
  std::string text;
  bool quoted = false;
  bool line_start = false;
};

/// Cuts a script into words: blanks, quotes, comments, lines that go on after "\".
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}

  std::vector<Word> all() {
    std::vector<Word> words;
    bool line_start = true;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (is_blank(c)) {
        ++at_;
      } else if (c == '\n' || c == ';') {
        line_start = true;
        ++at_;
      } else if (c == '\\' && ends_line()) {
        at_ = std::min(text_.find('\n', at_), text_.size() - 1) + 1;
      } else if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else {
        words.push_back(word());
        words.back().line_start = line_start;
        line_start = false;
      }
    }
    return words;
  }

 private:
  /// The "\" here is the last thing on its line.
  bool ends_line() const {
    std::size_t next = at_ + 1;
    while (next < text_.size() && is_blank(text_[next])) ++next;
    return next >= text_.size() || text_[next] == '\n';
  }
  Word word() {
    Word out;
    int depth = 0;  // of "$(": a command's blanks are its own
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\'' || c == '"') {
        out.quoted = true;
        ++at_;
        while (at_ < text_.size() && text_[at_] != c) {
          if (c == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) {
            ++at_;
            if (text_[at_] == '\n') {
              ++at_;
              out.text += ' ';
              continue;
            }
          }
          out.text += text_[at_++];
        }
        if (at_ < text_.size()) ++at_;
        continue;
      }
      if (c == '\\') {
        if (ends_line()) break;
        out.text += text_[at_ + 1];
        at_ += 2;
        continue;
      }
      if (c == '$' && at_ + 1 < text_.size() && text_[at_ + 1] == '(') ++depth;
      if (depth > 0 && c == '(' && text_[at_ - 1] == '(') ++depth;
      if (depth > 0 && c == ')') --depth;
      if (c == '\n' || (depth == 0 && (is_blank(c) || c == ';'))) break;
      out.text += c;
      ++at_;
    }
    return out;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

/// $(( … )): sums and products of whole numbers and names.
class Sum {
 public:
  Sum(std::string_view text, const std::map<std::string, std::string>& names)
      : text_(text), names_(names) {}
  std::optional<long long> value() {
    const long long result = terms();
    blanks();
    if (bad_ || at_ < text_.size()) return std::nullopt;
    return result;
  }

 private:
  void blanks() {
    while (at_ < text_.size() && (is_blank(text_[at_]) || text_[at_] == '$')) ++at_;
  }
  bool take(char c) {
    blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  long long terms() {
    long long left = factors();
    while (!bad_) {
      if (take('+'))
        left += factors();
      else if (take('-'))
        left -= factors();
      else
        break;
    }
    return left;
  }
  long long factors() {
    long long left = atom();
    while (!bad_) {
      if (take('*')) {
        const long long right = atom();
        if (left != 0 && right != 0 && std::abs(left) > 1'000'000'000'000 / std::abs(right))
          bad_ = true;
        else
          left *= right;
      } else if (take('/')) {
        const long long right = atom();
        if (right == 0)
          bad_ = true;
        else
          left /= right;
      } else {
        break;
      }
    }
    return left;
  }
  long long atom() {
    if (take('(')) {
      const long long inside = terms();
      if (!take(')')) bad_ = true;
      return inside;
    }
    blanks();
    const bool braced = take('{');
    std::string word;
    while (at_ < text_.size() && is_name(text_[at_])) word += text_[at_++];
    if (braced && !take('}')) bad_ = true;
    if (const auto known = names_.find(word); known != names_.end()) word = known->second;
    if (word.empty() || word.size() > 12 ||
        !std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c); })) {
      bad_ = true;
      return 0;
    }
    return std::stoll(word);
  }

  std::string_view text_;
  const std::map<std::string, std::string>& names_;
  std::size_t at_ = 0;
  bool bad_ = false;
};

/// Longer than any value of a launch script: names that double one another end here.
constexpr std::size_t kLongestValue = 1 << 20;

/// Puts values in for $NAME, ${NAME}, ${NAME:-otherwise} and $((…)); what nothing sets stays.
std::string filled(const std::string& text, const std::map<std::string, std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < text.size() && out.size() <= kLongestValue;) {
    if (text[i] != '$') {
      out += text[i++];
      continue;
    }
    if (text.compare(i, 3, "$((") == 0) {
      const std::size_t end = text.find("))", i);
      if (end != std::string::npos) {
        if (const auto sum =
                Sum(std::string_view(text).substr(i + 3, end - i - 3), names).value()) {
          out += std::to_string(*sum);
          i = end + 2;
          continue;
        }
      }
    }
    const bool braced = i + 1 < text.size() && text[i + 1] == '{';
    std::size_t from = i + (braced ? 2 : 1), end = from;
    while (end < text.size() && is_name(text[end])) ++end;
    const std::string name = text.substr(from, end - from);
    std::string otherwise;
    bool has_otherwise = false;
    std::size_t close = end;
    if (braced) {
      close = text.find('}', end);
      if (close == std::string::npos) {
        out += text.substr(i);
        break;
      }
      const std::string rest = text.substr(end, close - end);
      for (const char* mark : {":-", ":=", "-"})
        if (rest.starts_with(mark)) {
          otherwise = rest.substr(std::string_view(mark).size());
          has_otherwise = true;
          break;
        }
      ++close;
    }
    const auto known = names.find(name);
    if (known != names.end() && !known->second.empty())
      out += known->second;
    else if (has_otherwise)
      out += filled(otherwise, names);
    else
      out += text.substr(i, std::max<std::size_t>(close - i, 1));
    i = std::max(close, i + 1);
  }
  return out;
}

bool is_flag(const std::string& word) {
  return word.size() > 2 && word.starts_with("--") &&
         std::isalpha(static_cast<unsigned char>(word[2])) != 0;
}

std::string dashed(std::string name) {
  while (name.starts_with('-')) name.erase(0, 1);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string trimmed(std::string_view text) {
  while (!text.empty() && (is_blank(text.front()) || text.front() == '\n')) text.remove_prefix(1);
  while (!text.empty() && (is_blank(text.back()) || text.back() == '\n')) text.remove_suffix(1);
  return std::string(text);
}

/// NAME, where \a word begins NAME= (or NAME+=); 0 otherwise.
std::size_t assigned_name(const std::string& word) {
  std::size_t end = 0;
  while (end < word.size() && is_name(word[end])) ++end;
  if (end == 0 || std::isdigit(static_cast<unsigned char>(word[0])) != 0) return 0;
  const std::size_t equals = end + (end < word.size() && word[end] == '+' ? 1 : 0);
  return equals < word.size() && word[equals] == '=' ? end : 0;
}

class Collector {
 public:
  Launch launch;

  void take(const std::vector<Word>& words) {
    bool at_start = false;
    for (const Word& word : words) {
      at_start = word.line_start || (at_start && may_go_before_a_name(last_));
      last_ = word.text;
      if (at_start && assignment(word)) continue;
      plain(word);
    }
  }

 private:
  static bool may_go_before_a_name(const std::string& word) {
    return word == "export" || word == "local" || word == "readonly" || word == "env" ||
           word == "declare" || word == "-" || assigned_name(word) > 0;
  }
  static bool is_plumbing(const std::string& word) {
    return word.front() == '|' || word.front() == '>' || word.front() == '&' || word == "2>&1" ||
           word.starts_with("2>");
  }
  bool assignment(const Word& word) {
    const std::size_t name = assigned_name(word.text);
    if (name == 0) return false;
    open_ = nullptr;
    std::string value = word.text.substr(word.text.find('=') + 1);
    if (value.starts_with('(')) {  // an array: its words are flags like any others
      value.erase(0, 1);
      if (!value.empty()) plain({value, word.quoted, false});
      return true;
    }
    value = filled(value, launch.environment);
    if (value.size() > kLongestValue) value.clear();
    if (value.find("--") != std::string::npos) {
      take(Words(value).all());
      open_ = nullptr;
      return true;
    }
    launch.environment[word.text.substr(0, name)] = value;
    return true;
  }
  void plain(const Word& word) {
    std::string text = filled(word.text, launch.environment);
    if (text == "(" || text == ")" || text.empty() || text == "[" || text == "]") return;
    if (text.find("[@]") != std::string::npos) return;  // ${ARGS[@]}: read where it was written
    if (text == "$@" || text == "$*") return;  // the script's own arguments, which nobody knows
    if (!word.quoted && text.ends_with(')') &&
        std::count(text.begin(), text.end(), ')') > std::count(text.begin(), text.end(), '('))
      text.pop_back();
    if (is_flag(text)) {
      const std::size_t equals = text.find('=');
      launch.flags.push_back({dashed(text.substr(0, equals)),
                              equals == std::string::npos ? "" : text.substr(equals + 1)});
      open_ = &launch.flags.back();
    } else if (word.line_start || is_plumbing(text)) {
      open_ = nullptr;  // a command; its own words are no flag's values
    } else if (open_ != nullptr) {
      if (text.ends_with(".py")) {
        open_ = nullptr;
        return;
      }
      if (!open_->value.empty()) open_->value += ' ';
      open_->value += text;
    }
  }

  Flag* open_ = nullptr;
  std::string last_;
};

/// "key: value" or "- --key: value" of yaml; nullopt where the line is none.
std::optional<std::pair<std::string, std::string>> key_and_value(std::string_view line) {
  std::size_t at = 0;
  while (at < line.size() && (is_blank(line[at]) || line[at] == '-')) ++at;
  std::size_t end = at;
  while (end < line.size() && (is_name(line[end]) || line[end] == '-')) ++end;
  if (end == at || end >= line.size() || line[end] != ':') return std::nullopt;
  if (end + 1 < line.size() && !is_blank(line[end + 1])) return std::nullopt;
  std::string value = trimmed(line.substr(end + 1));
  if (const std::size_t comment = value.find(" #"); comment != std::string::npos)
    value = trimmed(std::string_view(value).substr(0, comment));
  if (value.starts_with('#')) value.clear();
  if (value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
      value.back() == value.front())
    value = value.substr(1, value.size() - 2);
  return std::pair{std::string(line.substr(at, end - at)), value};
}

bool is_upper(const std::string& name) {
  return std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isupper(c) || std::isdigit(c) || c == '_';
  });
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::string line;
  for (const char c : text) {
    if (c != '\n') {
      line += c;
      continue;
    }
    lines.push_back(std::move(line));
    line.clear();
  }
  lines.push_back(std::move(line));
  return lines;
}

/// Most lines are "key: value".
bool is_yaml(const std::vector<std::string>& lines) {
  std::size_t keys = 0, others = 0;
  for (const std::string& line : lines) {
    const std::string text = trimmed(line);
    if (text.empty() || text.starts_with('#')) continue;
    ++(key_and_value(line) ? keys : others);
  }
  return keys > others;
}

/// A list of arguments, each on a line of its own.
bool is_word_a_line(const std::vector<std::string>& lines) {
  return std::all_of(lines.begin(), lines.end(), [](const std::string& line) {
    const std::string text = trimmed(line);
    return text.find(' ') == std::string::npos && text.find('=') == std::string::npos &&
           !text.ends_with('\\');
  });
}

Launch read_yaml(const std::vector<std::string>& lines) {
  Launch launch;
  for (const std::string& line : lines) {
    if (trimmed(line).starts_with('#')) continue;
    const auto entry = key_and_value(line);
    if (!entry) continue;
    const auto& [key, value] = *entry;
    if (is_upper(key)) {
      launch.environment[key] = value;
    } else if (value != "false" && value != "False" && value != "null" && value != "None") {
      const bool set = value == "true" || value == "True";
      launch.flags.push_back({dashed(key), set ? "" : filled(value, launch.environment)});
    }
  }
  return launch;
}

/// ["--a", "1"]: brackets and commas between quoted words are blanks.
std::string without_list_marks(const std::string& text) {
  std::string out;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == ',' || c == '[' || c == ']' || c == '\n') {
      out += ' ';
      continue;
    }
    out += c;
  }
  return out;
}

}  // namespace

Launch read_launch(const std::string& text) {
  const std::string all = trimmed(text);
  Collector collector;
  if (all.starts_with('[') &&
      (all.find("\"--") != std::string::npos || all.find("'--") != std::string::npos)) {
    collector.take(Words(without_list_marks(all)).all());
    return std::move(collector.launch);
  }
  const std::vector<std::string> lines = lines_of(text);
  if (is_yaml(lines)) return read_yaml(lines);
  std::string words = text;
  if (is_word_a_line(lines)) std::replace(words.begin(), words.end(), '\n', ' ');
  collector.take(Words(words).all());
  return std::move(collector.launch);
}

}  // namespace plimsoll::imports
