// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lang/ast.hpp"

/// How expressions are written in canonical form. Private to print.
namespace plimsoll::formatting {

inline constexpr int kMaxColumns = 100;
inline constexpr int kIndent = 2;

/// Lines that are being written; a comment at the end of a line is kept apart until all are
/// aligned.
class Writer {
 public:
  void new_line(int indent);
  void blank_line();
  void text(std::string_view);
  /// A line that is a comment.
  void own_comment(std::string_view, int indent);
  /// Ends the current line with a comment; a line that has one already is followed by it.
  void comment(std::string_view, int indent);
  int column() const;
  std::size_t line() const;
  bool empty() const { return lines_.empty(); }
  /// Everything, comments of neighbouring lines below one another, a newline at the end of each
  /// line.
  std::string finish() const;

 private:
  struct Line {
    std::string text;
    std::string comment;
    bool is_comment = false;
  };
  std::vector<Line> lines_;
};

/// Appends the expression on one line to \a out. Stops early once \a out is longer than \a limit.
void write_flat(const ast::Expr&, std::string& out, std::size_t limit);
/// Writes the expression from the current column on, over several lines where it does not fit on
/// one with \a trailing more characters. \a indent is that of the entry.
void write_wrapped(const ast::Expr&, Writer&, int indent, int trailing);
/// The width of the expression on one line, or more than \a limit.
std::size_t flat_width(const ast::Expr&, std::size_t limit);
/// The same with its units glued on: for a place before '=', where a word after a blank would be no
/// unit.
std::string flat_glued(const ast::Expr&);

}  // namespace plimsoll::formatting
