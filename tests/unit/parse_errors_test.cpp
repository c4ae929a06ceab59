// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
// What the parser says about broken files, beyond the wording, which tests/errors holds.
#include "lang/parse.hpp"
#include "tests/catch.hpp"
#include "tests/unit/ast_dump.hpp"

using namespace plimsoll;
using test::dump;

namespace {

struct Parsed {
  Sources sources;
  Diagnostics diagnostics;
  ast::File file;

  explicit Parsed(std::string text) {
    sources.add("t.plan", std::move(text));
    file = parse(sources, 0, diagnostics);
  }
  /// "line:column message" of each diagnostic, in source order.
  std::vector<std::string> said() const {
    std::vector<std::string> result;
    for (const Diagnostic* d : diagnostics.sorted()) {
      const Position at = sources[0].position(d->span.begin);
      result.push_back(fmt::format("{}:{} {}", at.line, at.column, d->message));
    }
    return result;
  }
};

std::string repeated(std::string_view text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

/// The only error of a hostile source.
std::string only_error(const std::string& source) {
  const Parsed parsed(source);
  REQUIRE(parsed.diagnostics.error_count() == 1);
  CHECK_FALSE(parsed.diagnostics.render(parsed.sources, false).empty());
  return parsed.diagnostics.sorted()[0]->message;
}

void check_spans(const ast::Expr& e, Span outer) {
  CHECK(e.span);
  CHECK(e.span.begin >= outer.begin);
  CHECK(e.span.end <= outer.end);
  for (const ast::Argument& argument : e.args) {
    if (!argument.name.text.empty()) CHECK(argument.name.span);
    check_spans(*argument.value, e.span);
  }
  if (e.kind != ast::ExprKind::number && e.kind != ast::ExprKind::set &&
      e.kind != ast::ExprKind::list)
    CHECK(e.op_span);
  if (e.closure) {
    CHECK(e.closure->span);
    CHECK(e.closure->parameter.span);
    check_spans(*e.closure->body, e.closure->span);
  }
}

void check_spans(const ast::Entry& entry, Span outer) {
  CHECK(entry.span);
  CHECK(entry.span.begin >= outer.begin);
  CHECK(entry.span.end <= outer.end);
  const bool given = entry.kind == ast::EntryKind::assign || entry.kind == ast::EntryKind::narrow;
  CHECK(given != static_cast<bool>(entry.keyword));
  if (!entry.name.text.empty()) CHECK(entry.name.span);
  if (!entry.label.empty()) CHECK(entry.label_span);
  for (const ast::Name& word : entry.words) CHECK(word.span);
  if (entry.value) check_spans(*entry.value, entry.span);
  if (entry.value2) check_spans(*entry.value2, entry.span);
  for (const ast::Entry& inner : entry.body) check_spans(inner, entry.span);
}

}  // namespace

TEST_CASE("no node has an empty span, and each lies within its parent's", "[parse]") {
  const Parsed parsed(
      "use \"a.plan\"\n"
      "block f(x, n = (2)) { return (x)[0] * -(n + 1) }\n"
      "gpu g = h\n"
      "train t = s {\n"
      "  param a, b in {1, 2..3} = (1), c\n"
      "  repeat (2) as i { y = experts(x, n = 1) { t => mlp(t) } }\n"
      "  item \"z\" each shape { bytes = 4 B * if(a, b, \"c\", true) }\n"
      "  require \"l\": not (a) in [1]  prefer b weight 3  minimize c\n"
      "  state m : fp32 { where = x }  on {a, b} { save q : r  save s }\n"
      "  fuse q = {k}  default sp = 1  recompute full { drop = {a} }  pool p { gpu = g }\n"
      "  observed { step = 1 s }  beside r { model = m }  tp in {1}  maximize d\n"
      "}\n");
  REQUIRE(parsed.said().empty());
  CHECK(parsed.file.uses[0].span);
  const Span whole{0, 0, static_cast<std::uint32_t>(parsed.sources[0].text().size())};
  for (const ast::Declaration& declaration : parsed.file.declarations) {
    CHECK(declaration.span);
    CHECK(declaration.kind.span);
    CHECK(declaration.name.span);
    for (const ast::Parameter& parameter : declaration.parameters) {
      CHECK(parameter.name.span);
      if (parameter.default_value) check_spans(*parameter.default_value, declaration.span);
    }
    for (const ast::Entry& entry : declaration.entries) check_spans(entry, declaration.span);
  }
  CHECK(parsed.sources.text(parsed.file.declarations[0].span).ends_with("}"));
  CHECK(whole.end > 0);
}

TEST_CASE("what is right beside an error is kept", "[parse]") {
  const Parsed parsed(
      "layout a { tp = 8\n pp = = 4\n cp = 2 }\nmodel b { x = ( }\nlayout c { ep = 1 }");
  CHECK(parsed.said() == std::vector<std::string>{"2:7 expected an expression, got '='",
                                                  "4:17 expected an expression, got '}'"});
  CHECK(dump(parsed.file) ==
        "layout a {assign tp 8; assign cp 2}\nmodel b {}\nlayout c {assign ep 1}\n");
}

TEST_CASE("an error within a body leaves the entries around it", "[parse]") {
  const Parsed parsed(
      "model m {\n repeat 3 {\n  x = f(a b)\n  y = 1\n }\n item \"a\" { bytes = * }\n z = 2\n}\n");
  CHECK(parsed.said() == std::vector<std::string>{"3:10 expected ',' or ')', got 'b'",
                                                  "6:21 expected an expression, got '*'"});
  CHECK(dump(parsed.file) == "model m {repeat 3 {assign y 1}; item \"a\"; assign z 2}\n");
}

TEST_CASE("a missing '}' ends at the next declaration", "[parse]") {
  const Parsed parsed("model m {\n repeat 3 {\n  x = 1\n\nlayout a { tp = 8 }\n");
  CHECK(parsed.said() == std::vector<std::string>{"3:8 expected an entry or '}', got 'layout'"});
  CHECK(dump(parsed.file) == "model m {repeat 3 {assign x 1}}\nlayout a {assign tp 8}\n");
}

TEST_CASE("nesting is bounded", "[parse]") {
  const std::string deep = "nested more than 200 levels deep";
  CHECK(only_error("model m { x = " + repeated("(", 100'000)) == deep);
  CHECK(only_error("model m { x = " + repeated("f(", 100'000)) == deep);
  CHECK(only_error("model m { x = " + repeated("{", 100'000)) == deep);
  CHECK(only_error("model m { x = " + repeated("[", 100'000)) == deep);
  CHECK(only_error("model m { x = " + repeated("a[", 100'000)) == deep);
  CHECK(only_error("model m { x = " + repeated("f() { t => ", 100'000)) == deep);
  CHECK(only_error("model m { " + repeated("repeat 1 { ", 100'000)) == deep);
  CHECK(Parsed("model m { x = " + repeated("(", 199) + "1" + repeated(")", 199) + " }")
            .said()
            .empty());
}

TEST_CASE("long chains of operators are bounded", "[parse]") {
  const std::string row = "more than 500 operators in a row";
  const std::string inside = "more than 500 operations inside one another";
  CHECK(only_error("model m { x = " + repeated("1 + ", 100'000) + "1 }") == inside);
  CHECK(only_error("model m { x = " + repeated("1 and ", 100'000) + "1 }") == inside);
  CHECK(only_error("model m { x = " + repeated("- ", 100'000) + "1 }") == row);
  CHECK(only_error("model m { x = " + repeated("not ", 100'000) + "1 }") == row);
  CHECK(only_error("model m { x = " + repeated("2 ^ ", 100'000) + "1 }") == row);
  CHECK(only_error("model m { x = " + repeated("a => ", 100'000) + "1 }") == row);
  CHECK(only_error("model m { x = a" + repeated("[0]", 100'000) + " }") == inside);
  CHECK(Parsed("model m { x = " + repeated("1 + ", 400) + "1 }").said().empty());
  CHECK(Parsed("model m { x = {" + repeated("1, ", 100'000) + "1} }").said().empty());
}

TEST_CASE("bytes that are no text", "[parse]") {
  CHECK(only_error(std::string("layout a { tp = 8 }\0\0", 21)) ==
        "the file has a NUL byte: it is no text");
  CHECK(only_error("layout a { tp = 8 } # \xFF\xFE\n") == "the byte 0xFF is not valid UTF-8");
  CHECK(only_error("layout a { tp = 8 \xC3 }") == "the byte 0xC3 is not valid UTF-8");
  CHECK(only_error("layout a { tp = 8 \x01 }") == "a control character (0x01) has no meaning here");
  CHECK(only_error("model m { x = " + std::string(400, '9') + " }") ==
        "the number does not fit in 128 bits");
  CHECK(Parsed("layout a { tp = 8 \"" + repeated("\x8F", 100) + "\" }").diagnostics.error_count() ==
        2);
  CHECK(Parsed("# caf\u00E9\r\nlayout a { }\r\n").said().empty());
}

TEST_CASE("a file too large is not read", "[parse]") {
  CHECK(only_error(std::string(kMaxFileBytes + 1, ' ')) == "the file is larger than 16 MiB");
}

TEST_CASE("a file with too many errors is given up", "[parse]") {
  const Parsed parsed("layout a { " + repeated("x = 1 + ;", 50'000) + " }");
  CHECK(parsed.diagnostics.error_count() == kMaxErrors);
}

TEST_CASE("errors without end are counted, not kept", "[parse]") {
  const Parsed parsed(repeated("@ ", 200'000));
  CHECK(parsed.diagnostics.error_count() == 200'000);
  CHECK(parsed.diagnostics.sorted().size() <= 20'000);
  const std::string text = parsed.diagnostics.render(parsed.sources, false);
  CHECK(text.ends_with("plimsoll: 199950 more errors\n"));
}
