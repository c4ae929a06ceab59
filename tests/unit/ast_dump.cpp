// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "tests/unit/ast_dump.hpp"

#include <array>

namespace plimsoll::test {

namespace {

constexpr std::array kOps = {"=>", "or", "and", "not", "==", "!=", "<",  "<=", ">", ">=",
                             "in", "..", "+",   "-",   "*",  "/",  "//", "-",  "^"};
constexpr std::array kEntries = {"assign",    "narrow",  "param",    "repeat",   "return",
                                 "item",      "require", "prefer",   "minimize", "maximize",
                                 "state",     "on",      "save",     "fuse",     "default",
                                 "recompute", "pool",    "observed", "beside"};

std::string op(ast::Op which) { return kOps.at(static_cast<std::size_t>(which)); }

std::string arguments(const ast::Expr& e) {
  std::string text;
  for (const ast::Argument& argument : e.args) {
    if (!text.empty()) text += ", ";
    if (!argument.name.text.empty()) text += argument.name.text + "=";
    text += dump(*argument.value);
  }
  return text;
}

std::string body(const std::vector<ast::Entry>& entries) {
  std::string text = "{";
  for (const ast::Entry& entry : entries) text += (text.size() > 1 ? "; " : "") + dump(entry);
  return text + "}";
}

}  // namespace

std::string dump(const ast::Expr& e) {
  switch (e.kind) {
    case ast::ExprKind::number:
      return e.text + e.unit_text;
    case ast::ExprKind::string:
      return '"' + e.text + '"';
    case ast::ExprKind::boolean:
      return e.flag ? "true" : "false";
    case ast::ExprKind::name:
      return e.text;
    case ast::ExprKind::unary:
      return "(" + op(e.op) + " " + dump(e.arg(0)) + ")";
    case ast::ExprKind::binary:
      return "(" + dump(e.arg(0)) + " " + op(e.op) + " " + dump(e.arg(1)) + ")";
    case ast::ExprKind::call: {
      std::string text = e.text + "(" + arguments(e) + ")";
      if (e.closure)
        text += "{" + e.closure->parameter.text + " => " + dump(*e.closure->body) + "}";
      return text;
    }
    case ast::ExprKind::index:
      return dump(e.arg(0)) + "[" + dump(e.arg(1)) + "]";
    case ast::ExprKind::set:
      return "{" + arguments(e) + "}";
    case ast::ExprKind::list:
      return "[" + arguments(e) + "]";
  }
  return "?";
}

std::string dump(const ast::Entry& entry) {
  std::string text = kEntries.at(static_cast<std::size_t>(entry.kind));
  if (!entry.name.text.empty()) text += " " + entry.name.text;
  if (!entry.label.empty()) text += " \"" + entry.label + "\"";
  for (const ast::Name& word : entry.words) text += " +" + word.text;
  if (entry.value) text += " " + dump(*entry.value);
  if (entry.value2) text += " ~ " + dump(*entry.value2);
  if (!entry.body.empty()) text += " " + body(entry.body);
  return text;
}

std::string dump(const ast::Declaration& declaration) {
  std::string text = declaration.doc.empty() ? "" : "## " + declaration.doc + "\n";
  text += declaration.kind.text + " " + declaration.name.text;
  for (const ast::Parameter& parameter : declaration.parameters) {
    text += " (" + parameter.name.text;
    if (parameter.default_value) text += "=" + dump(*parameter.default_value);
    text += ")";
  }
  if (declaration.base) text += " : " + declaration.base->text;
  if (declaration.has_body) text += " " + body(declaration.entries);
  return text;
}

std::string dump(const ast::File& file) {
  std::string text;
  for (const ast::Use& use : file.uses) text += "use " + use.path + "\n";
  for (const ast::Declaration& declaration : file.declarations) text += dump(declaration) + "\n";
  return text;
}

}  // namespace plimsoll::test
