// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

/// What every text report is laid out with. Reports are written in Unicode with single-width
/// characters; finish() turns them into ASCII where the terminal asks for it.
namespace plimsoll::report {

/// How the reader sees a report.
struct Style {
  std::size_t width = 80;  ///< columns; reports are made for 80 and more
  bool unicode = true;     ///< the locale is UTF-8
  bool colour = false;     ///< only on a terminal, and never with NO_COLOR
};

enum class Paint { bold, dim, red, yellow, green };

/// \a text in a colour, or as it is where the style has none.
std::string paint(const Style&, Paint, std::string_view text);

/// Columns that \a text takes: code points, without colour sequences.
std::size_t columns(std::string_view text);

/// \a text cut into lines of at most \a width columns at its blanks. A longer word has a line of
/// its own. At least one line.
std::vector<std::string> wrap(std::string_view text, std::size_t width);

/// Paragraph: wrapped to the style's width, later lines indented by \a indent. Ends with a newline.
std::string paragraph(const Style&, std::string_view text, std::size_t indent);

/// The report as it is printed: ASCII look-alikes, column for column, where the style has no
/// Unicode; no blanks at the ends of lines.
std::string finish(const Style&, std::string_view report);

/// A table whose columns are as wide as their cells, up to a limit past which a cell is wrapped.
class Table {
 public:
  enum class Align { left, right };
  struct Column {
    Align align = Align::left;
    std::size_t limit = ~std::size_t{0};
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> cells);
  /// A line of its own, in bold.
  void add_heading(std::string text);
  /// A line of its own under the last row, from the start of column \a from on.
  void add_note(std::size_t from, std::string text);
  /// Every row indented by \a indent, columns two blanks apart.
  std::string str(const Style&, std::size_t indent) const;
  /// Columns that the widest row takes, without indent.
  std::size_t width() const;

 private:
  struct Row {
    std::vector<std::string> cells;
    enum Kind { plain, note, heading } kind = plain;
    std::size_t from = 0;  ///< note
  };
  std::vector<std::size_t> widths() const;

  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

/// "61.3 %" of a whole; "0.0 %" where the whole is 0.
std::string percent(double part, double whole);

}  // namespace plimsoll::report
