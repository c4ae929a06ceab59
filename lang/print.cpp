// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/print.hpp"

#include <algorithm>
#include <limits>

#include "lang/print_expression.hpp"
#include "lang/units.hpp"

namespace plimsoll {

namespace formatting {

namespace {

using ast::Entry;
using ast::EntryKind;

/// Longer bodies are not tried on one line.
constexpr std::uint32_t kMaxShortBody = 4 * kMaxColumns;

std::string_view keyword(EntryKind kind) {
  switch (kind) {
    case EntryKind::assign:
    case EntryKind::narrow:
      return "";
    case EntryKind::param:
      return "param ";
    case EntryKind::repeat:
      return "repeat ";
    case EntryKind::ret:
      return "return ";
    case EntryKind::item:
      return "item ";
    case EntryKind::require:
      return "require ";
    case EntryKind::prefer:
      return "prefer ";
    case EntryKind::minimize:
      return "minimize ";
    case EntryKind::maximize:
      return "maximize ";
    case EntryKind::state:
      return "state ";
    case EntryKind::on:
      return "on ";
    case EntryKind::save:
      return "save ";
    case EntryKind::fuse:
      return "fuse ";
    case EntryKind::default_:
      return "default ";
    case EntryKind::recompute:
      return "recompute ";
    case EntryKind::pool:
      return "pool ";
    case EntryKind::observed:
      return "observed ";
    case EntryKind::beside:
      return "beside ";
  }
  return "";
}

/// Kinds that are always written with a body, if an empty one.
bool has_body(const Entry& entry) {
  switch (entry.kind) {
    case EntryKind::repeat:
    case EntryKind::item:
    case EntryKind::on:
    case EntryKind::recompute:
    case EntryKind::pool:
    case EntryKind::observed:
    case EntryKind::beside:
      return true;
    default:
      return !entry.body.empty();
  }
}

/// What stands before an entry's value, without its keyword.
std::string before_value(const Entry& entry) {
  const std::string& name = entry.name.text;
  const std::string label = entry.label_span ? '"' + entry.label + '"' : "";
  switch (entry.kind) {
    case EntryKind::assign:
    case EntryKind::fuse:
    case EntryKind::default_:
      return name + " = ";
    case EntryKind::narrow:
      return name + " in ";
    case EntryKind::state:
      return name + " : ";
    case EntryKind::save:
      return entry.value ? name + " : " : name;
    case EntryKind::param: {
      std::string text = name;
      if (entry.value2)
        text += " in " + (entry.value ? flat_glued(*entry.value2) : print(*entry.value2));
      return entry.value ? text + " = " : text;
    }
    case EntryKind::require:
    case EntryKind::prefer:
      return label.empty() ? "" : label + ": ";
    case EntryKind::item:
      return entry.words.empty() ? label : label + " each " + entry.words[0].text;
    case EntryKind::on: {
      if (entry.words.size() == 1) return entry.words[0].text;
      std::string text = "{";
      for (const ast::Name& word : entry.words) text += (text.size() > 1 ? ", " : "") + word.text;
      return text + "}";
    }
    case EntryKind::recompute:
    case EntryKind::pool:
    case EntryKind::beside:
      return name;
    default:
      return "";
  }
}

std::string after_value(const Entry& entry) {
  if (entry.kind == EntryKind::repeat && !entry.name.text.empty()) return " as " + entry.name.text;
  if (entry.kind == EntryKind::prefer && entry.value2) return " weight " + print(*entry.value2);
  return "";
}

/// The entries of one `param a, b, …`: the same keyword, and the next one too.
bool continues_params(const Entry& entry, const Entry& next) {
  return entry.kind == EntryKind::param && next.kind == EntryKind::param &&
         entry.keyword == next.keyword;
}

class Printer {
 public:
  Printer(const ast::File& file, std::string_view text) : file_(file), text_(text) {}

  std::string run() {
    auto use = file_.uses.begin();
    for (const ast::Declaration& declaration : file_.declarations) {
      for (; use != file_.uses.end() && use->span.begin < declaration.span.begin; ++use)
        write(*use);
      write(declaration);
    }
    for (; use != file_.uses.end(); ++use) write(*use);
    flush_comments(std::numeric_limits<std::uint32_t>::max(), 0);
    return writer_.finish();
  }

 private:
  /// A new line for what begins at \a begin, below the comments before it and a blank line if there
  /// was one.
  void start(std::uint32_t begin, int indent) {
    flush_comments(begin, indent);
    if (!first_ && blank_before(begin)) writer_.blank_line();
    first_ = false;
    writer_.new_line(indent);
  }

  void flush_comments(std::uint32_t before, int indent) {
    for (; comment_ < file_.comments.size() && file_.comments[comment_].span.begin < before;
         ++comment_) {
      const ast::Comment& comment = file_.comments[comment_];
      const std::string_view text =
          text_.substr(comment.span.begin, comment.span.end - comment.span.begin);
      if (comment.own_line || writer_.empty()) {
        if (!first_ && blank_before(comment.span.begin)) writer_.blank_line();
        writer_.own_comment(text, indent);
      } else {
        writer_.comment(text, indent);
      }
      first_ = false;
    }
  }

  bool blank_before(std::uint32_t at) const {
    int newlines = 0;
    while (at > 0 && std::string_view(" \t\r\n;,").find(text_[at - 1]) != std::string_view::npos)
      newlines += text_[--at] == '\n' ? 1 : 0;
    return newlines > 1;
  }

  void write(const ast::Use& use) {
    const std::uint32_t begin = static_cast<std::uint32_t>(text_.rfind("use", use.span.begin));
    start(begin, 0);
    writer_.text("use \"" + use.path + '"');
  }

  void write(const ast::Declaration& declaration) {
    start(declaration.span.begin, 0);
    std::uint32_t header_end =
        declaration.base ? declaration.base->span.end : declaration.name.span.end;
    if (!declaration.base && !declaration.parameters.empty()) {
      const ast::Parameter& last = declaration.parameters.back();
      header_end = last.default_value ? last.default_value->span.end : last.name.span.end;
    }
    const Head head = head_of(declaration.span, header_end, declaration.has_body);
    if (head.has_comments) {
      verbatim(declaration.span.begin, head.end);
    } else {
      writer_.text(declaration.kind.text + ' ' + declaration.name.text);
      write_parameters(declaration);
      if (declaration.base) writer_.text(" = " + declaration.base->text);
    }
    if (declaration.has_body) write_body(declaration.entries, head.brace, declaration.span.end, 0);
  }

  void write_parameters(const ast::Declaration& declaration) {
    if (declaration.parameters.empty()) return;
    writer_.text("(");
    const int at = writer_.column();
    for (const ast::Parameter& parameter : declaration.parameters) {
      std::string text = parameter.name.text;
      if (parameter.default_value) text += " = " + print(*parameter.default_value);
      const bool first = &parameter == &declaration.parameters.front();
      const bool last = &parameter == &declaration.parameters.back();
      text += last ? ")" : ",";
      if (!first &&
          writer_.column() + 1 + static_cast<int>(text.size()) + (last ? 2 : 0) > kMaxColumns) {
        writer_.new_line(at);
      } else if (!first) {
        writer_.text(" ");
      }
      writer_.text(text);
    }
  }

  /// Where the part before a body ends, where its '{' stands, and whether comments stand in that
  /// part.
  struct Head {
    std::uint32_t end;
    std::uint32_t brace;
    bool has_comments;
  };

  /// \a known lies within the head, after everything but closing brackets.
  Head head_of(Span whole, std::uint32_t known, bool body) const {
    Head head{whole.end, whole.end, false};
    auto comment = first_comment(known);
    if (body) {
      head.end = known;
      for (std::uint32_t at = known; at < whole.end; ++at) {
        if (comment != file_.comments.end() && comment->span.begin == at) {
          at = (comment++)->span.end - 1;
          continue;
        }
        head.brace = at;
        if (text_[at] == '{') break;
        if (std::string_view(" \t\r\n").find(text_[at]) == std::string_view::npos)
          head.end = at + 1;
      }
    }
    comment = first_comment(whole.begin);
    head.has_comments = comment != file_.comments.end() && comment->span.begin < head.end;
    return head;
  }

  std::vector<ast::Comment>::const_iterator first_comment(std::uint32_t from) const {
    return std::lower_bound(
        file_.comments.begin(), file_.comments.end(), from,
        [](const ast::Comment& c, std::uint32_t at) { return c.span.begin < at; });
  }

  /// The source as it is, with the comments in it.
  void verbatim(std::uint32_t begin, std::uint32_t end) {
    std::string_view rest = text_.substr(begin, end - begin);
    for (bool first = true; !rest.empty(); first = false) {
      const std::size_t size = std::min(rest.find('\n'), rest.size());
      std::string_view line = rest.substr(0, size);
      while (!line.empty() && std::string_view(" \t\r").find(line.back()) != std::string_view::npos)
        line.remove_suffix(1);
      if (!first) writer_.new_line(0);
      writer_.text(line);
      rest.remove_prefix(std::min(size + 1, rest.size()));
    }
    while (comment_ < file_.comments.size() && file_.comments[comment_].span.begin < end)
      ++comment_;
  }

  /// ` { … }` after what has been written: on one line if it was on one and fits, else an entry a
  /// line.
  void write_body(const std::vector<Entry>& entries, std::uint32_t brace, std::uint32_t end,
                  int indent) {
    const bool was_short = end - brace <= kMaxShortBody &&
                           text_.substr(brace, end - brace).find('\n') == std::string_view::npos;
    const bool is_empty = entries.empty() && first_comment(brace) == first_comment(end);
    if (was_short || is_empty) {
      const std::string flat = flat_body(entries);
      if (writer_.column() + static_cast<int>(flat.size()) <= kMaxColumns || entries.empty()) {
        writer_.text(flat);
        return;
      }
    }
    writer_.text(" {");
    first_ = true;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      std::size_t last = i;
      while (last + 1 < entries.size() && continues_params(entries[last], entries[last + 1]))
        ++last;
      if (entries[i].kind == EntryKind::param) {
        write_params(entries, i, last, indent + kIndent);
      } else {
        write_entry(entries[i], indent + kIndent);
      }
      i = last;
    }
    flush_comments(end - 1, indent + kIndent);
    first_ = false;
    writer_.new_line(indent);
    writer_.text("}");
  }

  void write_entry(const Entry& entry, int indent) {
    start(entry.span.begin, indent);
    const bool body = has_body(entry);
    const Head head = head_of(entry.span, body ? end_of_head(entry) : entry.span.end, body);
    if (head.has_comments) {
      verbatim(entry.span.begin, head.end);
    } else {
      write_head(entry, indent, body ? 2 : 0);
    }
    if (body) write_body(entry.body, head.brace, entry.span.end, indent);
  }

  void write_head(const Entry& entry, int indent, int trailing) {
    std::string start(keyword(entry.kind));
    start += before_value(entry);
    while (!entry.value && start.ends_with(' ')) start.pop_back();
    writer_.text(start);
    const std::string after = after_value(entry);
    if (entry.value)
      write_wrapped(*entry.value, writer_, indent, static_cast<int>(after.size()) + trailing);
    writer_.text(after);
  }

  static std::uint32_t end_of_head(const Entry& entry) {
    std::uint32_t end = std::max({entry.keyword.end, entry.name.span.end, entry.label_span.end});
    if (!entry.words.empty()) end = std::max(end, entry.words.back().span.end);
    if (entry.value) end = std::max(end, entry.value->span.end);
    return end;
  }

  /// `param a, b, …`, split into several where it does not fit: a list may not go on after a line's
  /// end.
  void write_params(const std::vector<Entry>& entries, std::size_t first, std::size_t last,
                    int indent) {
    const Span whole = entries[first].span.to(entries[last].span);
    start(whole.begin, indent);
    if (head_of(whole, whole.end, false).has_comments) return verbatim(whole.begin, whole.end);
    writer_.text("param ");
    for (std::size_t i = first; i <= last; ++i) {
      const Entry& param = entries[i];
      const std::string before = before_value(param);
      if (i > first) {
        const std::size_t width = before.size() +
                                  (param.value ? flat_width(*param.value, kMaxColumns) : 0) +
                                  (i < last ? 1 : 0);
        if (writer_.column() + 2 + static_cast<int>(width) > kMaxColumns) {
          writer_.new_line(indent);
          writer_.text("param ");
        } else {
          writer_.text(", ");
        }
      }
      writer_.text(before);
      if (param.value) write_wrapped(*param.value, writer_, indent, i < last ? 1 : 0);
    }
  }

  std::string flat_body(const std::vector<Entry>& entries) const {
    if (entries.empty()) return " { }";
    std::string text = " { ";
    for (const Entry& entry : entries) {
      if (&entry != &entries.front()) text += separator((&entry)[-1], entry);
      text +=
          flat_entry(entry, &entry != &entries.front() && continues_params((&entry)[-1], entry));
    }
    return text + " }";
  }

  std::string flat_entry(const Entry& entry, bool continued) const {
    std::string text(continued ? "" : keyword(entry.kind));
    text += before_value(entry);
    if (entry.value) text += print(*entry.value);
    while (text.ends_with(' ')) text.pop_back();
    text += after_value(entry);
    if (has_body(entry)) text += flat_body(entry.body);
    return text;
  }

  /// Two blanks; ';' where the next name would look like the unit of a number.
  static std::string_view separator(const Entry& before, const Entry& next) {
    if (continues_params(before, next)) return ", ";
    const bool given = next.kind == EntryKind::assign || next.kind == EntryKind::narrow;
    if (!given || !find_unit(next.name.text) || has_body(before)) return "  ";
    const ast::Expr* last = before.kind == EntryKind::prefer && before.value2 ? before.value2.get()
                                                                              : before.value.get();
    if (before.kind == EntryKind::param && !before.value) last = before.value2.get();
    while (last != nullptr &&
           (last->kind == ast::ExprKind::unary || last->kind == ast::ExprKind::binary))
      last = last->args.back().value.get();
    const bool bare =
        last != nullptr && last->kind == ast::ExprKind::number && last->unit_text.empty();
    return bare ? "; " : "  ";
  }

  const ast::File& file_;
  std::string_view text_;
  Writer writer_;
  std::size_t comment_ = 0;
  bool first_ = true;
};

}  // namespace

}  // namespace formatting

std::string print(const ast::File& file, const Sources& sources) {
  return formatting::Printer(file, sources[file.file].text()).run();
}

}  // namespace plimsoll
