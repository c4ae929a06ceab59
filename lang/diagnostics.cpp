// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/diagnostics.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace plimsoll {

namespace {

/// Errors shown before the rest is only counted.
constexpr std::size_t kMaxShown = 50;
/// Diagnostics kept at all; a broken file may have millions.
constexpr std::size_t kMaxKept = 10'000;
/// Columns of source text shown; longer lines are cut around the span.
constexpr int kMaxColumns = 100;
constexpr int kTabStop = 4;
constexpr std::string_view kEllipsis = "…";
constexpr std::string_view kReplacement = "\uFFFD";
/// Longer names are compared with nothing.
constexpr std::size_t kMaxSuggested = 64;

constexpr std::string_view kReset = "\033[0m";
constexpr std::string_view kBold = "\033[1m";
constexpr std::string_view kBlue = "\033[1;34m";

std::string_view word(Severity severity) {
  switch (severity) {
    case Severity::error:
      return "error";
    case Severity::warning:
      return "warning";
    case Severity::note:
      return "note";
  }
  return "";
}

std::string_view colour_of(Severity severity) {
  switch (severity) {
    case Severity::error:
      return "\033[1;31m";
    case Severity::warning:
      return "\033[1;35m";
    case Severity::note:
      return "\033[1;36m";
  }
  return "";
}

/// One character of a source line as it is shown, with the bytes of the line it stands for.
struct Cell {
  std::size_t begin;
  std::size_t end;
  std::string shown;
  int width;
};

int display_width(std::uint32_t c) {
  if ((c >= 0x300 && c <= 0x36F) || (c >= 0x200B && c <= 0x200F) || (c >= 0xFE00 && c <= 0xFE0F))
    return 0;
  const bool wide = (c >= 0x1100 && c <= 0x115F) || (c >= 0x2E80 && c <= 0xA4CF) ||
                    (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0xF900 && c <= 0xFAFF) ||
                    (c >= 0xFE30 && c <= 0xFE6F) || (c >= 0xFF00 && c <= 0xFF60) ||
                    (c >= 0xFFE0 && c <= 0xFFE6) || (c >= 0x1F300 && c <= 0x1FAFF) ||
                    (c >= 0x20000 && c <= 0x3FFFD);
  return wide ? 2 : 1;
}

/// The character at \a at. Tabs become blanks; what is no text (control characters, broken UTF-8)
/// becomes one replacement character a byte.
Cell cell_at(std::string_view line, std::size_t at, int column) {
  const auto byte = static_cast<unsigned char>(line[at]);
  if (byte == '\t') {
    const int width = kTabStop - column % kTabStop;
    return {at, at + 1, std::string(static_cast<std::size_t>(width), ' '), width};
  }
  if (byte >= 0x20 && byte < 0x7F) return {at, at + 1, std::string(1, line[at]), 1};
  std::uint32_t code = 0;
  const std::size_t size = decode_utf8(line.substr(at), code);
  if (size == 0 || code < 0xA0) return {at, at + 1, std::string(kReplacement), 1};
  return {at, at + size, std::string(line.substr(at, size)), display_width(code)};
}

/// A message without what would disturb a terminal: names and strings in it come from the file.
std::string printable(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    std::uint32_t code = 0;
    const std::size_t size = decode_utf8(text.substr(at), code);
    const bool shown = size > 0 && code >= 0x20 && !(code >= 0x7F && code < 0xA0);
    result += shown ? text.substr(at, size) : kReplacement;
    at += std::max<std::size_t>(size, 1);
  }
  return result;
}

/// The part of \a line to show so that \a focus (a byte of it) is in view.
struct View {
  std::vector<Cell> cells;
  bool cut_before = false;
  bool cut_after = false;
};

View view(std::string_view line, std::size_t focus) {
  // Enough bytes on both sides for every character that can be shown.
  constexpr std::size_t reach = std::size_t{4} * kMaxColumns;
  View result;
  std::size_t at = focus > reach ? focus - reach : 0;
  while (at > 0 && at < line.size() && (static_cast<unsigned char>(line[at]) & 0xC0) == 0x80) ++at;
  result.cut_before = at > 0;
  int columns = 0;
  int focus_column = 0;
  while (at < line.size() && at < focus + reach) {
    if (at <= focus) focus_column = columns;
    result.cells.push_back(cell_at(line, at, columns));
    columns += result.cells.back().width;
    at = result.cells.back().end;
  }
  if (focus >= line.size()) focus_column = columns;
  result.cut_after = at < line.size();
  if (columns <= kMaxColumns && !result.cut_before && !result.cut_after) return result;

  // Keep a window of kMaxColumns with the focus in its first half, or as far right as the line
  // goes.
  const int first =
      std::clamp(focus_column - kMaxColumns / 2, 0, std::max(0, columns - kMaxColumns));
  std::vector<Cell> kept;
  int column = 0;
  for (Cell& cell : result.cells) {
    const int start = column;
    column += cell.width;
    if (start < first) {
      result.cut_before = true;
    } else if (column > first + kMaxColumns) {
      result.cut_after = true;
    } else {
      kept.push_back(std::move(cell));
    }
  }
  result.cells = std::move(kept);
  return result;
}

/// Lays out one diagnostic.
class Renderer {
 public:
  Renderer(const Sources& sources, bool colour, std::string& out)
      : sources_(sources), colour_(colour), out_(out) {}

  void render(const Diagnostic& diagnostic) {
    const bool placed = is_placed(diagnostic.span);
    out_ += painted(kBold, placed ? sources_.where(diagnostic.span) : "plimsoll") +
            painted(kBold, ": ");
    out_ += painted(colour_of(diagnostic.severity), fmt::format("{}: ", word(diagnostic.severity)));
    out_ += painted(kBold, printable(diagnostic.message)) + '\n';
    gutter_ = placed ? digits(line_of(diagnostic.span)) : 1;
    for (const Label& label : diagnostic.labels)
      if (is_placed(label.span)) gutter_ = std::max(gutter_, digits(line_of(label.span)));
    if (placed) quote(diagnostic);
    for (const Label& label : diagnostic.labels)
      if (!is_placed(label.span)) margin("=", printable(label.text));
    if (!diagnostic.help.empty())
      margin("=", painted(kBlue, "help: ") + printable(diagnostic.help));
  }

 private:
  bool is_placed(Span span) const { return span != Span{} && span.file < sources_.count(); }
  unsigned line_of(Span span) const { return sources_[span.file].position(span.begin).line; }
  static std::size_t digits(unsigned line) { return std::to_string(line).size(); }

  std::string painted(std::string_view colour, std::string_view text) const {
    if (!colour_ || text.empty()) return std::string(text);
    return fmt::format("{}{}{}", colour, text, kReset);
  }

  void margin(std::string_view mark, std::string_view text) {
    out_ += painted(kBlue, fmt::format(" {:{}} {}", "", gutter_, mark));
    if (!text.empty()) out_ += fmt::format(" {}", text);
    out_ += '\n';
  }

  /// The primary line with its carets; labels that are in view there below it, the others after it.
  void quote(const Diagnostic& diagnostic) {
    const Span primary = diagnostic.span;
    show_line(primary);
    underline(primary, '^', '~', colour_of(diagnostic.severity), "", primary);
    std::vector<const Label*> elsewhere;
    for (const Label& label : diagnostic.labels) {
      if (!is_placed(label.span)) continue;
      if (is_in_view(label.span, primary)) {
        underline(label.span, '-', '-', kBlue, label.text, primary);
      } else {
        elsewhere.push_back(&label);
      }
    }
    std::uint32_t file = primary.file;
    for (const Label* label : elsewhere) {
      if (label->span.file != file)
        out_ += painted(kBlue, fmt::format(" {:{}}-->", "", gutter_)) + ' ' +
                sources_.where(label->span) + '\n';
      file = label->span.file;
      show_line(label->span);
      underline(label->span, '-', '-', kBlue, label->text, label->span);
    }
  }

  bool is_in_view(Span span, Span shown_for) const {
    if (span.file != shown_for.file || line_of(span) != line_of(shown_for)) return false;
    const View shown = view_of(shown_for);
    if (!shown.cut_before && !shown.cut_after) return true;
    const std::size_t start = line_start(shown_for);
    return !shown.cells.empty() && span.begin >= start + shown.cells.front().begin &&
           span.begin < start + shown.cells.back().end;
  }

  std::string_view text_of_line(Span span) const { return sources_[span.file].line(line_of(span)); }

  /// Where the span's line begins, as an offset of the file.
  std::size_t line_start(Span span) const {
    return static_cast<std::size_t>(text_of_line(span).data() - sources_[span.file].text().data());
  }

  View view_of(Span span) const { return view(text_of_line(span), span.begin - line_start(span)); }

  void show_line(Span span) {
    const View shown = view_of(span);
    std::string text = shown.cut_before ? std::string(kEllipsis) : "";
    for (const Cell& cell : shown.cells) text += cell.shown;
    if (shown.cut_after) text += kEllipsis;
    out_ += painted(kBlue, fmt::format(" {:>{}} |", line_of(span), gutter_));
    text.erase(text.find_last_not_of(' ') + 1);
    out_ += text.empty() ? "\n" : fmt::format(" {}\n", text);
  }

  /// Marks \a span below the line that was shown for \a shown_for; at least one column is marked.
  void underline(Span span, char first, char rest, std::string_view colour, std::string_view text,
                 Span shown_for) {
    const View shown = view_of(shown_for);
    const std::size_t start = line_start(shown_for);
    std::string blanks(shown.cut_before ? 1 : 0, ' ');
    std::size_t marks = 0;
    for (const Cell& cell : shown.cells) {
      const auto width = static_cast<std::size_t>(cell.width);
      if (start + cell.end <= span.begin) {
        blanks.append(width, ' ');
      } else if (start + cell.begin < span.end) {
        marks += width;
      }
    }
    std::string marked(1, first);
    if (marks > 1) marked.append(marks - 1, rest);
    out_ += painted(kBlue, fmt::format(" {:{}} |", "", gutter_)) + ' ' + blanks +
            painted(colour, marked);
    if (!text.empty()) out_ += ' ' + painted(kBlue, printable(text));
    out_ += '\n';
  }

  const Sources& sources_;
  bool colour_;
  std::string& out_;
  std::size_t gutter_ = 1;
};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// Insertions, deletions, changes and swaps of neighbours that turn one name into the other,
/// letters' case aside.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::array<std::array<std::size_t, kMaxSuggested + 1>, 3> rows{};
  for (std::size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto& row = rows[i % 3];
    const auto& above = rows[(i + 2) % 3];
    const auto& two_above = rows[(i + 1) % 3];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
          lower(a[i - 2]) == lower(b[j - 1]))
        row[j] = std::min(row[j], two_above[j - 2] + 1);
    }
  }
  return rows[a.size() % 3][b.size()];
}

}  // namespace

Diagnostic& Diagnostics::add(Severity severity, Span where, std::string message) {
  auto made = std::make_unique<Diagnostic>();
  made->severity = severity;
  made->span = where;
  made->message = std::move(message);
  const auto key = fmt::format("{}:{}:{}:{}", where.file, where.begin, static_cast<int>(severity),
                               made->message);
  const bool too_many = all_.size() >= kMaxKept;
  if (too_many && severity == Severity::error) ++errors_;
  if (too_many || !seen_.insert(key).second) {
    repeated_ = std::move(made);  // the caller may still add labels to it
    return *repeated_;
  }
  if (severity == Severity::error) ++errors_;
  all_.push_back(std::move(made));
  return *all_.back();
}

std::vector<const Diagnostic*> Diagnostics::sorted() const {
  std::vector<const Diagnostic*> result;
  result.reserve(all_.size());
  for (const auto& diagnostic : all_) result.push_back(diagnostic.get());
  std::stable_sort(result.begin(), result.end(), [](const Diagnostic* a, const Diagnostic* b) {
    return std::pair(a->span.file, a->span.begin) < std::pair(b->span.file, b->span.begin);
  });
  return result;
}

std::string Diagnostics::render(const Sources& sources, bool colour) const {
  std::string out;
  Renderer renderer(sources, colour, out);
  std::size_t shown_errors = 0;
  std::size_t shown_others = 0;
  std::size_t others = 0;
  for (const Diagnostic* diagnostic : sorted()) {
    const bool error = diagnostic->severity == Severity::error;
    others += error ? 0 : 1;
    std::size_t& shown = error ? shown_errors : shown_others;
    if (shown == kMaxShown) continue;
    ++shown;
    renderer.render(*diagnostic);
  }
  const auto count_rest = [&](std::size_t rest, std::string_view what) {
    if (rest > 0) out += fmt::format("plimsoll: {} more {}{}\n", rest, what, rest > 1 ? "s" : "");
  };
  count_rest(errors_ - shown_errors, "error");
  count_rest(others - shown_others, "warning");
  return out;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  if (name.empty() || name.size() > kMaxSuggested) return {};
  const std::string* best = nullptr;
  std::size_t best_distance = std::max<std::size_t>(1, name.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t longer = std::max(candidate.size(), name.size());
    const std::size_t shorter = std::min(candidate.size(), name.size());
    if (candidate.size() > kMaxSuggested || longer - shorter >= best_distance) continue;
    const std::size_t distance = edit_distance(name, candidate);
    // A name all of whose letters would change is another name.
    if (distance < best_distance && distance < longer) {
      best = &candidate;
      best_distance = distance;
    }
  }
  if (best != nullptr && best_distance <= 1) return *best;
  // `h100` for `h100_sxm`: the beginning of a longer name.
  if (name.size() >= 3)
    for (const std::string& candidate : candidates)
      if (candidate.size() > name.size() && candidate.starts_with(name) &&
          candidate[name.size()] == '_')
        return candidate;
  return best != nullptr ? *best : std::string();
}

}  // namespace plimsoll
