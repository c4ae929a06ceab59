// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/build.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lang/diagnostics.hpp"
#include "lang/parse.hpp"
#include "lang/print.hpp"

namespace plimsoll {

namespace build {

namespace {

bool is_name(std::string_view text) {
  const auto part = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  const bool digit = !text.empty() && text[0] >= '0' && text[0] <= '9';
  return !text.empty() && std::all_of(text.begin(), text.end(), part) && (!digit || text == "1f1b");
}

std::string checked_name(std::string_view text) {
  if (!is_name(text)) throw InternalError(fmt::format("'{}' is no name of the language", text));
  return std::string(text);
}

std::string quoted(std::string_view text) {
  if (text.find_first_of("\"\\\n\r") != std::string_view::npos)
    throw InternalError(fmt::format("'{}' cannot stand in a string of the language", text));
  return fmt::format("\"{}\"", text);
}

/// \a left groups with what stands before it, so that a - b - c needs no parentheses.
Formula binary(const Formula& a, std::string_view op, const Formula& b, int binding) {
  // Comparisons are no chains, so both sides stand closer.
  const int left = binding == Formula::kCompare ? binding + 1 : binding;
  return {fmt::format("{} {} {}", a.at_least(left), op, b.at_least(binding + 1)), binding};
}

std::string joined(std::initializer_list<Formula> values) {
  std::string text;
  for (const Formula& value : values) {
    if (!text.empty()) text += ", ";
    text += value.text();
  }
  return text;
}

Formula multiplied(unsigned long long number, std::string_view suffix) {
  return {fmt::format("{}{}", number, suffix), Formula::kOperand};
}

}  // namespace

std::string Formula::at_least(int binding) const {
  return binding_ >= binding ? text_ : "(" + text_ + ")";
}

Formula word(std::string_view name) { return {checked_name(name), Formula::kOperand}; }
Formula string(std::string_view text) { return {quoted(text), Formula::kOperand}; }
Formula quantity(std::string_view number, std::string_view unit) {
  return {fmt::format("{}{}{}", number, unit == "%" ? "" : " ", unit), Formula::kOperand};
}
Formula set(std::initializer_list<Formula> values) {
  return {"{" + joined(values) + "}", Formula::kOperand};
}
Formula list(std::initializer_list<Formula> values) {
  return {"[" + joined(values) + "]", Formula::kOperand};
}
Formula range(const Formula& first, const Formula& last) {
  return {first.at_least(Formula::kSum) + ".." + last.at_least(Formula::kSum), Formula::kRange};
}
Formula call(std::string_view function, std::initializer_list<Formula> arguments) {
  return {checked_name(function) + "(" + joined(arguments) + ")", Formula::kOperand};
}
Formula named(std::string_view name, const Formula& value) {
  return {fmt::format("{} = {}", checked_name(name), value.text()), Formula::kOperand};
}
Formula in(const Formula& a, const Formula& b) { return binary(a, "in", b, Formula::kCompare); }
Formula implies(const Formula& a, const Formula& b) {
  return {fmt::format("{} => {}", a.at_least(Formula::kOr), b.text()), Formula::kImplies};
}

Formula operator+(const Formula& a, const Formula& b) { return binary(a, "+", b, Formula::kSum); }
Formula operator-(const Formula& a, const Formula& b) { return binary(a, "-", b, Formula::kSum); }
Formula operator*(const Formula& a, const Formula& b) {
  return binary(a, "*", b, Formula::kProduct);
}
Formula operator/(const Formula& a, const Formula& b) {
  return binary(a, "/", b, Formula::kProduct);
}
Formula operator==(const Formula& a, const Formula& b) {
  return binary(a, "==", b, Formula::kCompare);
}
Formula operator!=(const Formula& a, const Formula& b) {
  return binary(a, "!=", b, Formula::kCompare);
}
Formula operator<(const Formula& a, const Formula& b) {
  return binary(a, "<", b, Formula::kCompare);
}
Formula operator<=(const Formula& a, const Formula& b) {
  return binary(a, "<=", b, Formula::kCompare);
}
Formula operator>(const Formula& a, const Formula& b) {
  return binary(a, ">", b, Formula::kCompare);
}
Formula operator>=(const Formula& a, const Formula& b) {
  return binary(a, ">=", b, Formula::kCompare);
}
Formula operator&&(const Formula& a, const Formula& b) {
  return binary(a, "and", b, Formula::kAnd);
}
Formula operator||(const Formula& a, const Formula& b) { return binary(a, "or", b, Formula::kOr); }
Formula operator!(const Formula& a) { return {"not " + a.at_least(Formula::kNot), Formula::kNot}; }
Formula operator-(const Formula& a) { return {"-" + a.at_least(Formula::kUnary), Formula::kUnary}; }

inline namespace literals {
Formula operator""_Ki(unsigned long long n) { return multiplied(n, "Ki"); }
Formula operator""_Mi(unsigned long long n) { return multiplied(n, "Mi"); }
Formula operator""_GiB(unsigned long long n) { return quantity(std::to_string(n), "GiB"); }
Formula operator""_percent(unsigned long long n) { return quantity(std::to_string(n), "%"); }
}  // namespace literals

Body& Body::add(std::string entry) {
  entries_.push_back({std::move(entry), {}});
  return *this;
}

Body& Body::set(std::string_view name, const Formula& value) {
  return add(checked_name(name) + " = " + value.text());
}
Body& Body::narrow(std::string_view name, const Formula& choices) {
  return add(checked_name(name) + " in " + choices.text());
}
Body& Body::param(std::string_view name) { return add("param " + checked_name(name)); }
Body& Body::param(std::string_view name, const Formula& value) {
  return add("param " + checked_name(name) + " = " + value.text());
}
Body& Body::require(const Formula& condition) { return add("require " + condition.text()); }
Body& Body::require(std::string_view label, const Formula& condition) {
  return add("require " + quoted(label) + ": " + condition.text());
}
Body& Body::prefer(const Formula& condition) { return add("prefer " + condition.text()); }
Body& Body::prefer(std::string_view label, const Formula& condition) {
  return add("prefer " + quoted(label) + ": " + condition.text());
}
Body& Body::minimize(const Formula& value) { return add("minimize " + value.text()); }
Body& Body::maximize(const Formula& value) { return add("maximize " + value.text()); }
Body& Body::give(const Formula& value) { return add("return " + value.text()); }
Body& Body::repeat(const Formula& times, const Body& body) {
  entries_.push_back({"repeat " + times.text(), {body}});
  return *this;
}
Body& Body::item(std::string_view label, const Body& body) {
  entries_.push_back({"item " + quoted(label), {body}});
  return *this;
}
Body& Body::part(std::string_view keyword, std::string_view name, const Body& body) {
  entries_.push_back({checked_name(keyword) + " " + checked_name(name), {body}});
  return *this;
}

std::string Body::text(int indent) const {
  std::string text = " {\n";
  for (const Entry& entry : entries_) {
    text.append(static_cast<std::size_t>(indent + 2), ' ');
    text += entry.head;
    text += entry.body.empty() ? "\n" : entry.body.front().text(indent + 2);
  }
  text.append(static_cast<std::size_t>(indent), ' ');
  return text + "}\n";
}

Declaration::Declaration(std::string_view kind, std::string_view name, std::string_view base)
    : head_(checked_name(kind) + " " + checked_name(name) +
            (base.empty() ? "" : " = " + checked_name(base))) {}

std::string Declaration::text() const { return head_ + body_.text(0); }

Declaration gpu(std::string_view name, std::string_view base) { return {"gpu", name, base}; }
Declaration cluster(std::string_view name, std::string_view base) {
  return {"cluster", name, base};
}
Declaration model(std::string_view name, std::string_view base) { return {"model", name, base}; }
Declaration train(std::string_view name, std::string_view base) { return {"train", name, base}; }
Declaration serve(std::string_view name, std::string_view base) { return {"serve", name, base}; }
Declaration layout(std::string_view name, std::string_view base) { return {"layout", name, base}; }

File& File::add(Declaration declaration) {
  declarations_.push_back(std::move(declaration));
  return *this;
}

std::string File::text() const {
  std::string text;
  for (const Declaration& declaration : declarations_) {
    if (!text.empty()) text += "\n";
    text += declaration.text();
  }
  Sources sources;
  Diagnostics diagnostics;
  const std::uint32_t file = sources.add("built.plan", text);
  const ast::File tree = parse(sources, file, diagnostics);
  if (diagnostics.has_errors())
    throw InternalError("a built file does not parse:\n" + diagnostics.render(sources, false));
  return print(tree, sources);
}

}  // namespace build

inline namespace literals {

std::string operator""_plan(const char* text, std::size_t size) {
  const std::string_view whole(text, size);
  std::vector<std::string_view> lines;
  for (std::size_t at = 0; at <= whole.size();) {
    const std::size_t end = std::min(whole.find('\n', at), whole.size());
    lines.push_back(whole.substr(at, end - at));
    at = end + 1;
  }
  const auto blank = [](std::string_view line) {
    return line.find_first_not_of(' ') == std::string_view::npos;
  };
  while (!lines.empty() && blank(lines.front())) lines.erase(lines.begin());
  while (!lines.empty() && blank(lines.back())) lines.pop_back();
  std::size_t indent = std::string_view::npos;
  for (const std::string_view line : lines)
    if (!blank(line)) indent = std::min(indent, line.find_first_not_of(' '));
  std::string out;
  for (const std::string_view line : lines)
    out += fmt::format("{}\n", line.size() > indent ? line.substr(indent) : "");
  return out;
}

}  // namespace literals

}  // namespace plimsoll
