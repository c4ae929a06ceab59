// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/print_expression.hpp"

#include <algorithm>
#include <limits>

#include "lang/binding.hpp"
#include "lang/print.hpp"

namespace plimsoll::formatting {

namespace {

using ast::Binding;
using ast::binding;
using ast::Expr;
using ast::ExprKind;
using ast::Op;
using ast::Side;

/// Past this column lists are not aligned with their bracket but indented.
constexpr int kMaxAligned = 50;

int width_of(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

bool is_operation(const Expr& e) { return e.kind == ExprKind::unary || e.kind == ExprKind::binary; }

bool is_atom(const Expr& e) { return !is_operation(e); }

/// Whether \a child stands in parentheses as the operand of \a parent.
bool needs_parentheses(const Expr& child, Op parent, bool is_left) {
  if (!is_operation(child)) return false;
  const Binding outer = binding(parent);
  const Binding inner = binding(child.op);
  if (outer.side == Side::prefix) return inner.strength < outer.strength;
  if (parent == Op::power && !is_left && child.op == Op::negate) return false;  // 2 ^ -3
  if (inner.strength != outer.strength) return inner.strength < outer.strength;
  return outer.side == Side::none || (outer.side == Side::left) != is_left;
}

/// "*" with the blanks around it. A range of two atoms is written tight.
std::string operator_text(const Expr& e) {
  const std::string text(binding(e.op).text);
  if (e.op == Op::range && is_atom(e.arg(0)) && is_atom(e.arg(1))) return text;
  return ' ' + text + ' ';
}

std::string_view prefix_text(Op op) { return op == Op::negate ? "-" : "not "; }

/// Writes on one line. `before_in` says that the token after the expression is 'in' or '=', before
/// which a unit after a blank would be none: it is glued to its number there.
class Flat {
 public:
  Flat(std::string& out, std::size_t limit) : out_(out), limit_(limit) {}

  void write(const Expr& e, bool before_in = false) {
    if (out_.size() > limit_) return;
    switch (e.kind) {
      case ExprKind::number:
        out_ += e.text;
        if (!e.unit_text.empty() && !before_in && !e.unit_text.starts_with('%')) out_ += ' ';
        out_ += e.unit_text;
        break;
      case ExprKind::string:
        out_ += '"' + e.text + '"';
        break;
      case ExprKind::boolean:
        out_ += e.flag ? "true" : "false";
        break;
      case ExprKind::name:
        out_ += e.text;
        break;
      case ExprKind::unary:
        out_ += prefix_text(e.op);
        operand(e.arg(0), e.op, false, before_in);
        break;
      case ExprKind::binary:
        operand(e.arg(0), e.op, true, e.op == Op::in);
        out_ += operator_text(e);
        operand(e.arg(1), e.op, false, before_in);
        break;
      case ExprKind::call:
        out_ += e.text;
        list(e, '(', ')');
        if (e.closure) closure(*e.closure);
        break;
      case ExprKind::index: {
        const bool enclosed = is_operation(e.arg(0));
        if (enclosed) out_ += '(';
        write(e.arg(0));
        if (enclosed) out_ += ')';
        out_ += '[';
        write(e.arg(1));
        out_ += ']';
        break;
      }
      case ExprKind::set:
        list(e, '{', '}');
        break;
      case ExprKind::list:
        list(e, '[', ']');
        break;
    }
  }

 private:
  void operand(const Expr& e, Op parent, bool is_left, bool before_in) {
    if (!needs_parentheses(e, parent, is_left)) return write(e, before_in);
    out_ += '(';
    write(e);
    out_ += ')';
  }

  void list(const Expr& e, char open, char close) {
    out_ += open;
    for (const ast::Argument& argument : e.args) {
      if (out_.size() > limit_) return;
      if (&argument != &e.args.front()) out_ += ", ";
      if (!argument.name.text.empty()) out_ += argument.name.text + " = ";
      write(*argument.value);
    }
    out_ += close;
  }

  void closure(const ast::Closure& written) {
    out_ += " { " + written.parameter.text + " => ";
    write(*written.body);
    out_ += " }";
  }

  std::string& out_;
  std::size_t limit_;
};

/// Writes over several lines: outer lists break before inner ones, operators go to the new line.
class Wrapped {
 public:
  Wrapped(Writer& writer, int indent) : writer_(writer), indent_(indent) {}

  void write(const Expr& e, int trailing) {
    if (fits(e, trailing)) return flat(e);
    switch (e.kind) {
      case ExprKind::unary:
        writer_.text(prefix_text(e.op));
        operand(e.arg(0), e.op, false, trailing);
        break;
      case ExprKind::binary:
        if (binding(e.op).side == Side::left) {
          chain(e, trailing);
        } else if (e.op == Op::in) {
          flat(e);  // the unit before 'in' is glued
        } else {
          operand(e.arg(0), e.op, true, 0);
          writer_.text(operator_text(e));
          operand(e.arg(1), e.op, false, trailing);
        }
        break;
      case ExprKind::call:
        writer_.text(e.text);
        list(e, "(", ")", e.closure ? 2 : trailing);
        if (e.closure) closure(*e.closure);
        break;
      case ExprKind::set:
        list(e, "{", "}", trailing);
        break;
      case ExprKind::list:
        list(e, "[", "]", trailing);
        break;
      case ExprKind::index:
      case ExprKind::number:
      case ExprKind::string:
      case ExprKind::boolean:
      case ExprKind::name:
        flat(e);
        break;
    }
  }

 private:
  void flat(const Expr& e) {
    std::string text;
    Flat(text, std::numeric_limits<std::size_t>::max()).write(e);
    writer_.text(text);
  }

  bool fits(const Expr& e, int trailing) const {
    const int room = kMaxColumns - writer_.column() - trailing;
    return room > 0 &&
           flat_width(e, static_cast<std::size_t>(room)) <= static_cast<std::size_t>(room);
  }

  /// Where lines after the first go on.
  int continuation() const {
    return writer_.column() <= kMaxAligned ? writer_.column() : indent_ + 2 * kIndent;
  }

  void operand(const Expr& e, Op parent, bool is_left, int trailing) {
    const bool enclosed = needs_parentheses(e, parent, is_left);
    if (enclosed) writer_.text("(");
    write(e, trailing + (enclosed ? 1 : 0));
    if (enclosed) writer_.text(")");
  }

  void list(const Expr& e, std::string_view open, std::string_view close, int trailing) {
    writer_.text(open);
    const int at = continuation();
    if (at != writer_.column() && !e.args.empty()) writer_.new_line(at);
    std::size_t line = writer_.line();
    for (const ast::Argument& argument : e.args) {
      const bool first = &argument == &e.args.front();
      const bool last = &argument == &e.args.back();
      const int after = last ? trailing + 1 : 1;
      if (!first && writer_.line() > line) {  // nothing stands beside an argument of several lines
        writer_.new_line(at);
      } else if (!first) {
        break_or_blank(width(argument), after, at);
      }
      line = writer_.line();
      if (!argument.name.text.empty()) writer_.text(argument.name.text + " = ");
      write(*argument.value, after);
      if (!last) writer_.text(",");
    }
    writer_.text(close);
  }

  /// { t =>
  ///   body
  /// }, as a body of entries is written.
  void closure(const ast::Closure& written) {
    writer_.text(" {");
    writer_.new_line(indent_ + kIndent);
    writer_.text(written.parameter.text + " => ");
    write(*written.body, 0);
    writer_.new_line(indent_);
    writer_.text("}");
  }

  int width(const ast::Argument& argument) const {
    const int name = argument.name.text.empty() ? 0 : width_of(argument.name.text) + 3;
    return name + static_cast<int>(flat_width(*argument.value, kMaxColumns));
  }

  void break_or_blank(int width, int after, int at) {
    if (writer_.column() + 1 + width + after > kMaxColumns) {
      writer_.new_line(at);
    } else {
      writer_.text(" ");
    }
  }

  /// a + b - c: operands in a row, a new line before an operator where the next operand does not
  /// fit.
  void chain(const Expr& e, int trailing) {
    std::vector<const Expr*> links;  // operations from the last to the first
    const Expr* left = &e;
    for (; left->kind == ExprKind::binary && binding(left->op).strength == binding(e.op).strength;
         left = &left->arg(0))
      links.push_back(left);
    const int at = continuation();
    operand(*left, links.back()->op, true, 0);
    for (std::size_t i = links.size(); i-- > 0;) {
      const Expr& link = *links[i];
      const int after = i == 0 ? trailing : 0;
      const bool enclosed = needs_parentheses(link.arg(1), link.op, false);
      const std::string op(binding(link.op).text);
      const int width = static_cast<int>(op.size() + 1 + flat_width(link.arg(1), kMaxColumns)) +
                        (enclosed ? 2 : 0);
      // What fits on no line breaks by itself, without a new line before it.
      if (at + width + after > kMaxColumns && is_atom(link.arg(1))) {
        writer_.text(" ");
      } else {
        break_or_blank(width, after, at);
      }
      writer_.text(op + " ");
      operand(link.arg(1), link.op, false, after);
    }
  }

  Writer& writer_;
  int indent_;
};

}  // namespace

void Writer::new_line(int indent) {
  lines_.emplace_back();
  lines_.back().text.assign(static_cast<std::size_t>(indent), ' ');
}

void Writer::blank_line() { lines_.emplace_back(); }

void Writer::text(std::string_view text) { lines_.back().text += text; }

void Writer::own_comment(std::string_view text, int indent) {
  new_line(indent);
  lines_.back().text += text;
  lines_.back().is_comment = true;
}

void Writer::comment(std::string_view text, int indent) {
  if (!lines_.back().comment.empty() || lines_.back().is_comment) return own_comment(text, indent);
  lines_.back().comment = text;
}

std::size_t Writer::line() const { return lines_.size(); }

int Writer::column() const { return width_of(lines_.back().text); }

std::string Writer::finish() const {
  std::string out;
  for (std::size_t i = 0; i < lines_.size();) {
    std::size_t end = i;
    int widest = 0;
    for (; end < lines_.size() && !lines_[end].comment.empty(); ++end)
      widest = std::max(widest, width_of(lines_[end].text));
    if (end == i) {
      std::string line = lines_[i++].text;
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + '\n';
      continue;
    }
    const bool aligned =
        widest <= kMaxColumns - 20;  // else a long line would push all comments away
    for (; i < end; ++i) {
      const int gap = aligned ? widest - width_of(lines_[i].text) : 0;
      out += lines_[i].text + std::string(static_cast<std::size_t>(gap + 2), ' ') +
             lines_[i].comment + '\n';
    }
  }
  return out;
}

void write_flat(const ast::Expr& e, std::string& out, std::size_t limit) {
  Flat(out, limit).write(e);
}

void write_wrapped(const ast::Expr& e, Writer& writer, int indent, int trailing) {
  Wrapped(writer, indent).write(e, trailing);
}

std::size_t flat_width(const ast::Expr& e, std::size_t limit) {
  std::string text;
  Flat(text, 4 * limit).write(e);  // a character has at most 4 bytes
  return text.size() > 4 * limit ? limit + 1 : static_cast<std::size_t>(width_of(text));
}

std::string flat_glued(const ast::Expr& e) {
  std::string text;
  Flat(text, std::numeric_limits<std::size_t>::max()).write(e, true);
  return text;
}

}  // namespace plimsoll::formatting

namespace plimsoll {

std::string print(const ast::Expr& e) {
  std::string text;
  formatting::write_flat(e, text, std::numeric_limits<std::size_t>::max());
  return text;
}

}  // namespace plimsoll
