// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/report_style.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "lang/diagnostics.hpp"

namespace plimsoll::report {
namespace {

constexpr std::string_view kReset = "\x1b[0m";

std::string_view sequence(Paint paint) {
  switch (paint) {
    case Paint::bold:
      return "\x1b[1m";
    case Paint::dim:
      return "\x1b[2m";
    case Paint::red:
      return "\x1b[31m";
    case Paint::yellow:
      return "\x1b[33m";
    case Paint::green:
      return "\x1b[32m";
  }
  return {};
}

/// Bytes of the colour sequence that \a text begins with; 0 where there is none.
std::size_t colour_length(std::string_view text) {
  if (text.substr(0, 2) != "\x1b[") return 0;
  const std::size_t end = text.find('m');
  return end == std::string_view::npos ? 0 : end + 1;
}

/// What reports are drawn with and its look-alike, both one column wide.
constexpr std::array<std::pair<std::string_view, char>, 24> kLookAlikes = {
    {{"·", '-'}, {"×", 'x'}, {"÷", '/'}, {"–", '-'}, {"│", '|'}, {"█", '#'},
     {"▌", '#'}, {"▐", '#'}, {"▏", ':'}, {"▼", 'v'}, {"−", '-'}, {"→", '>'},
     {"─", '-'}, {"§", 'S'}, {"░", '.'}, {"▒", '+'}, {"└", '+'}, {"▁", '_'},
     {"▂", '.'}, {"▃", '-'}, {"▄", '='}, {"▅", '+'}, {"▆", '*'}, {"▇", '%'}}};

char look_alike(std::string_view character) {
  const auto* const found = std::find_if(kLookAlikes.begin(), kLookAlikes.end(),
                                         [&](const auto& pair) { return pair.first == character; });
  return found == kLookAlikes.end() ? '?' : found->second;
}

std::string in_ascii(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::uint32_t code_point = 0;
    const std::size_t length = std::max<std::size_t>(decode_utf8(text, code_point), 1);
    const std::string_view character = text.substr(0, length);
    out += length == 1 ? character.front() : look_alike(character);
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace

std::string paint(const Style& style, Paint colour, std::string_view text) {
  if (!style.colour || text.empty()) return std::string(text);
  return fmt::format("{}{}{}", sequence(colour), text, kReset);
}

std::size_t columns(std::string_view text) {
  std::size_t count = 0;
  while (!text.empty()) {
    if (const std::size_t skip = colour_length(text)) {
      text.remove_prefix(skip);
      continue;
    }
    // Continuation bytes belong to the column of their first byte.
    if ((static_cast<unsigned char>(text.front()) & 0xC0U) != 0x80U) ++count;
    text.remove_prefix(1);
  }
  return count;
}

std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    const std::size_t blank = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, blank);
    text.remove_prefix(std::min(blank + 1, text.size()));
    if (word.empty()) continue;
    std::string& line = lines.back();
    if (line.empty()) {
      line = word;
    } else if (columns(line) + 1 + columns(word) <= width) {
      line.append(1, ' ').append(word);
    } else {
      lines.emplace_back(word);
    }
  }
  return lines;
}

std::string paragraph(const Style& style, std::string_view text, std::size_t indent) {
  std::string out;
  const std::string margin(indent, ' ');
  // Every line is wrapped as if it were indented: a few columns lost on the first keep this simple.
  for (const std::string& line : wrap(text, style.width - std::min(indent, style.width / 2)))
    out += (out.empty() ? "" : margin) + line + '\n';
  return out;
}

std::string finish(const Style& style, std::string_view report) {
  std::string out;
  while (!report.empty()) {
    const std::size_t end = std::min(report.find('\n'), report.size());
    const std::string_view line = report.substr(0, end);
    out += line.substr(0, line.find_last_not_of(' ') + 1);
    out += '\n';
    report.remove_prefix(std::min(end + 1, report.size()));
  }
  return style.unicode ? out : in_ascii(out);
}

void Table::add(std::vector<std::string> cells) {
  PLIMSOLL_ASSERT(cells.size() == columns_.size());
  rows_.push_back({std::move(cells), Row::plain, 0});
}

void Table::add_heading(std::string text) { rows_.push_back({{std::move(text)}, Row::heading, 0}); }

void Table::add_note(std::size_t from, std::string text) {
  rows_.push_back({{std::move(text)}, Row::note, from});
}

std::vector<std::size_t> Table::widths() const {
  std::vector<std::size_t> widths(columns_.size(), 0);
  for (const Row& row : rows_) {
    for (std::size_t i = 0; row.kind == Row::plain && i < row.cells.size(); ++i)
      for (const std::string& line : wrap(row.cells[i], columns_[i].limit))
        widths[i] = std::max(widths[i], columns(line));
  }
  return widths;
}

std::size_t Table::width() const {
  std::size_t sum = 0;
  for (const std::size_t width : widths())
    if (width > 0) sum += width + (sum > 0 ? 2 : 0);
  return sum;
}

std::string Table::str(const Style& style, std::size_t indent) const {
  const std::vector<std::size_t> wide = widths();
  std::string out;
  const auto start_of = [&](std::size_t column) {
    std::size_t at = indent;
    for (std::size_t i = 0; i < column; ++i)
      if (wide[i] > 0) at += wide[i] + 2;
    return at;
  };
  for (const Row& row : rows_) {
    if (row.kind == Row::heading) {
      out += std::string(indent, ' ') + paint(style, Paint::bold, row.cells[0]) + '\n';
      continue;
    }
    if (row.kind == Row::note) {
      const std::size_t from = start_of(row.from);
      for (const std::string& line :
           wrap(row.cells[0], style.width - std::min(from, style.width / 2)))
        out += std::string(from, ' ') + paint(style, Paint::dim, line) + '\n';
      continue;
    }
    std::vector<std::vector<std::string>> cells;
    std::size_t height = 1;
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      cells.push_back(wrap(row.cells[i], columns_[i].limit));
      height = std::max(height, cells.back().size());
    }
    for (std::size_t line = 0; line < height; ++line) {
      out.append(indent, ' ');
      for (std::size_t i = 0; i < cells.size(); ++i) {
        if (wide[i] == 0) continue;
        const std::string text = line < cells[i].size() ? cells[i][line] : "";
        const std::string blanks(wide[i] - columns(text), ' ');
        out += columns_[i].align == Align::right ? blanks + text : text + blanks;
        out += "  ";
      }
      out += '\n';
    }
  }
  return out;
}

std::string percent(double part, double whole) {
  return fmt::format("{:.1f} %", whole == 0 ? 0.0 : 100 * part / whole);
}

}  // namespace plimsoll::report
