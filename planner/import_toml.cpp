// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/import_toml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

namespace plimsoll::imports {
namespace {

/// Lists in lists: as deep as any configuration goes.
constexpr int kDeepest = 8;

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Toml read() {
    for (skip(); at_ < text_.size() && out_.mistake.empty(); skip()) {
      if (text_[at_] == '[')
        table();
      else
        entry();
    }
    return std::move(out_);
  }

 private:
  static bool is_bare(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
  }
  char now() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void fail(std::string_view what) {
    if (!out_.mistake.empty()) return;
    const auto line = std::count(
        text_.begin(), text_.begin() + static_cast<long>(std::min(at_, text_.size())), '\n');
    out_.mistake = fmt::format("line {}: {}", line + 1, what);
  }

  /// Over blanks, newlines and comments.
  void skip() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#')
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      else if (std::isspace(static_cast<unsigned char>(text_[at_])))
        ++at_;
      else
        return;
    }
  }
  void blanks() {
    while (now() == ' ' || now() == '\t') ++at_;
  }

  /// "a.b.c"; quotes around a part are taken off.
  std::string key() {
    std::string path;
    while (true) {
      blanks();
      std::string part;
      if (now() == '"' || now() == '\'') {
        part = string();
      } else {
        while (is_bare(now())) part += text_[at_++];
      }
      if (part.empty()) {
        fail("a name was expected");
        return "";
      }
      path += (path.empty() ? "" : ".") + part;
      blanks();
      if (now() != '.') return path;
      ++at_;
    }
  }

  void table() {
    ++at_;
    if (now() == '[') return fail("arrays of tables are not read");
    table_ = key();
    if (now() != ']') return fail("']' was expected behind a table's name");
    ++at_;
    end_of_line();
  }

  void entry() {
    const std::string name = key();
    if (!out_.mistake.empty()) return;
    if (now() != '=') return fail("'=' was expected behind a name");
    ++at_;
    blanks();
    const auto read = value(0);
    if (!read) return;
    const std::string path = table_.empty() ? name : table_ + "." + name;
    if (!out_.values.emplace(path, *read).second)
      return fail(fmt::format("'{}' a second time", path));
    end_of_line();
  }

  void end_of_line() {
    blanks();
    if (now() == '\r') ++at_;
    if (at_ < text_.size() && now() != '\n' && now() != '#')
      fail("the end of the line was expected");
  }

  std::string string() {
    const char quote = text_[at_++];
    std::string out;
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n') {
      if (quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) {
        ++at_;
        if (std::string_view("nt\"\\").find(text_[at_]) == std::string_view::npos)
          fail("of escapes in strings \\n, \\t, \\\" and \\\\ are read");
        out += text_[at_] == 'n' ? '\n' : text_[at_] == 't' ? '\t' : text_[at_];
        ++at_;
      } else {
        out += text_[at_++];
      }
    }
    if (now() != quote) fail("a string does not end on its line");
    ++at_;
    return out;
  }

  std::optional<TomlValue> value(int depth) {
    TomlValue v;
    if (now() == '"' || now() == '\'') {
      if (text_.substr(at_, 3) == "\"\"\"" || text_.substr(at_, 3) == "'''") {
        fail("strings of several lines are not read");
        return std::nullopt;
      }
      v.text = string();
      return out_.mistake.empty() ? std::optional(v) : std::nullopt;
    }
    if (now() == '[') return list(depth);
    while (at_ < text_.size() && (is_bare(now()) || now() == '.' || now() == '+' || now() == '_'))
      v.text += text_[at_++];
    if (v.text == "true" || v.text == "false") {
      v.kind = TomlValue::flag;
    } else if (!v.text.empty() &&
               v.text.find_first_not_of("0123456789+-._eE") == std::string::npos) {
      v.kind = TomlValue::number;
      v.text.erase(std::remove(v.text.begin(), v.text.end(), '_'), v.text.end());
    } else {
      fail(now() == '{' ? "inline tables are not read" : "a value was expected");
      return std::nullopt;
    }
    return v;
  }

  std::optional<TomlValue> list(int depth) {
    TomlValue v;
    v.kind = TomlValue::list;
    if (depth >= kDeepest) {
      fail("lists in lists, too deep");
      return std::nullopt;
    }
    ++at_;
    for (skip(); now() != ']'; skip()) {
      const auto one = value(depth + 1);
      if (!one) return std::nullopt;
      v.items.push_back(*one);
      skip();
      if (now() == ',')
        ++at_;
      else if (now() != ']') {
        fail("',' or ']' was expected in a list");
        return std::nullopt;
      }
    }
    ++at_;
    return v;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string table_;
  Toml out_;
};

}  // namespace

Toml read_toml(std::string_view text) { return Reader(text).read(); }

}  // namespace plimsoll::imports
