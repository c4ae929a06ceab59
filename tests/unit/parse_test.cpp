// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
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
  std::string said() const { return diagnostics.render(sources, false); }
};

/// The dump of `x = TEXT` in a body.
std::string expression(const std::string& text) {
  Parsed parsed("model m { x = " + text + " }");
  INFO(text << "\n" << parsed.said());
  REQUIRE_FALSE(parsed.diagnostics.has_errors());
  REQUIRE(parsed.file.declarations.size() == 1);
  REQUIRE(parsed.file.declarations[0].entries.size() == 1);
  return dump(*parsed.file.declarations[0].entries[0].value);
}

/// The dump of the entries of `train t { TEXT }`, with warnings.
std::string entries(const std::string& text) {
  Parsed parsed("train t { " + text + " }");
  INFO(text << "\n" << parsed.said());
  REQUIRE_FALSE(parsed.diagnostics.has_errors());
  std::string result;
  for (const ast::Entry& entry : parsed.file.declarations[0].entries)
    result += (result.empty() ? "" : "; ") + dump(entry);
  return result;
}

std::string declarations(const std::string& text) {
  Parsed parsed(text);
  INFO(text << "\n" << parsed.said());
  REQUIRE_FALSE(parsed.diagnostics.has_errors());
  return dump(parsed.file);
}

}  // namespace

TEST_CASE("operators bind as the language says", "[parse]") {
  CHECK(expression("a + b * c - d") == "((a + (b * c)) - d)");
  CHECK(expression("a / b // c * d") == "(((a / b) // c) * d)");
  CHECK(expression("-a ^ b") == "(- (a ^ b))");
  CHECK(expression("2 ^ -3 ^ c") == "(2 ^ (- (3 ^ c)))");
  CHECK(expression("a ^ b ^ c") == "(a ^ (b ^ c))");
  CHECK(expression("2 ^ - 3 * 4") == "((2 ^ (- 3)) * 4)");
  CHECK(expression("- - a * b") == "((- (- a)) * b)");
  CHECK(expression("not a and b or c") == "(((not a) and b) or c)");
  CHECK(expression("not a == b") == "(not (a == b))");
  CHECK(expression("a => b => c or d") == "(a => (b => (c or d)))");
  CHECK(expression("1 .. n + 1") == "(1 .. (n + 1))");
  CHECK(expression("x in 1..16 and y") == "((x in (1 .. 16)) and y)");
  CHECK(expression("tp in {2, 4}") == "(tp in {2, 4})");
  CHECK(expression("(a + b) * c") == "((a + b) * c)");
  CHECK(expression("a - (b - c)") == "(a - (b - c))");
  CHECK(expression("dims == 2 and role in {linear, expert}") ==
        "((dims == 2) and (role in {linear, expert}))");
}

TEST_CASE("operands", "[parse]") {
  CHECK(expression("{1, 2..4, 8,}") == "{1, (2 .. 4), 8}");
  CHECK(expression("[19, 21, 21, 19,]") == "[19, 21, 21, 19]");
  CHECK(expression("{}") == "{}");
  CHECK(expression("f()") == "f()");
  CHECK(expression("f(a, b = 1, c = {x})") == "f(a, b=1, c={x})");
  CHECK(expression("if(a, b, c)") == "if(a, b, c)");
  CHECK(expression("pattern[i + 1][0]") == "pattern[(i + 1)][0]");
  CHECK(expression("f(x) [0]") == "f(x)[0]");
  CHECK(expression("experts(x, n, k) { t => mlp(t, f) }") == "experts(x, n, k){t => mlp(t, f)}");
  CHECK(expression("bytes(\"a b\") >= 1 GiB") == "(bytes(\"a b\") >= 1GiB)");
  CHECK(expression("zb_h1") == "zb_h1");
  CHECK(expression("1f1b") == "1f1b");
  CHECK(expression("true") == "true");
  CHECK(expression("te_version >= \"2.0\"") == "(te_version >= \"2.0\")");
}

TEST_CASE("numbers, multipliers and units", "[parse]") {
  const auto value = [](const std::string& text) {
    Parsed parsed("model m { x = " + text + " }");
    INFO(parsed.said());
    REQUIRE_FALSE(parsed.diagnostics.has_errors());
    REQUIRE(parsed.file.declarations[0].entries.size() == 1);
    const ast::Expr& e = *parsed.file.declarations[0].entries[0].value;
    REQUIRE(e.kind == ast::ExprKind::number);
    return e.quantity.value.str() + " " + e.quantity.dimension.str();
  };
  CHECK(value("8Ki") == "8192 a count");
  CHECK(value("8k tokens") == "8000 a count");
  CHECK(value("1_000_000") == "1000000 a count");
  CHECK(value("1.5e3") == "1500 a count");
  CHECK(value("80GiB") == "85899345920 bytes");
  CHECK(value("80 GB") == "80000000000 bytes");
  CHECK(value("400 Gb/s") == "50000000000 bytes per second");
  CHECK(value("3.6 USD/h") == "0.001 money per hour");
  CHECK(value("5%") == "0.05 a count");
  CHECK(value("5 %") == "0.05 a count");
  CHECK(value("4Mi tokens") == "4194304 a count");
  CHECK(value("989 TFLOP/s") == "989000000000000 FLOPs per second");
  CHECK(value("2 min") == "120 seconds");
}

TEST_CASE("a unit is a whole word on the number's line, and none before '=', 'in' or '('",
          "[parse]") {
  CHECK(entries("a = 8 GB / s") == "assign a (8GB / s)");
  CHECK(entries("a = 4 B * n  b = 1") == "assign a (4B * n); assign b 1");
  CHECK(entries("a = 4 GB/seq") == "assign a (4GB / seq)");
  CHECK(entries("a = 4\n min = 2") == "assign a 4; assign min 2");
  CHECK(entries("a = 4 bs = 2") == "assign a 4; assign bs 2");
  CHECK(entries("a = 4 s == 2") == "assign a (4s == 2)");
  Parsed parsed("serve t { context = 8Ki sequences = 1 tokens in {1} }");
  CHECK(parsed.said() ==
        "t.plan:1:25: warning: 'sequences' begins an entry here; it is not the unit of '8Ki'\n"
        " 1 | serve t { context = 8Ki sequences = 1 tokens in {1} }\n"
        "   |                         ^~~~~~~~~\n"
        "   = help: put ';' or a new line before it\n"
        "t.plan:1:39: warning: 'tokens' begins an entry here; it is not the unit of '1'\n"
        " 1 | serve t { context = 8Ki sequences = 1 tokens in {1} }\n"
        "   |                                       ^~~~~~\n"
        "   = help: put ';' or a new line before it\n");
  CHECK(dump(parsed.file) ==
        "serve t {assign context 8Ki; assign sequences 1; narrow tokens {1}}\n");
}

TEST_CASE("an expression ends where a word or a line cannot go on", "[parse]") {
  CHECK(entries("x = a tp in {2}") == "assign x a; narrow tp {2}");
  CHECK(entries("x = a\n + b") == "assign x (a + b)");
  CHECK(entries("x = f (a)") == "assign x f(a)");
  CHECK(entries("x = 1; y = 2, z = 3;;") == "assign x 1; assign y 2; assign z 3");
  CHECK(entries("sp = tp in {2, 4}  zero = 1") == "assign sp (tp in {2, 4}); assign zero 1");
}

TEST_CASE("entries of every kind", "[parse]") {
  CHECK(entries("param a, b = 1, c in {x, y} = x\nparam d") ==
        "param a; param b 1; param c x ~ {x, y}; param d");
  CHECK(entries("repeat len(p) as i { x = 1 }") == "repeat i len(p) {assign x 1}");
  CHECK(entries("return x + 1") == "return (x + 1)");
  CHECK(entries("item \"a b\" each shape { where = x  bytes = 2 B }") ==
        "item \"a b\" +shape {assign where x; assign bytes 2B}");
  CHECK(entries("require \"why\": a <= b  require c") == "require \"why\" (a <= b); require c");
  CHECK(entries("require \"2.0\" <= v") == "require (\"2.0\" <= v)");
  CHECK(entries("prefer \"why\": a == none weight 3  prefer b") ==
        "prefer \"why\" (a == none) ~ 3; prefer b");
  CHECK(entries("minimize a / b  maximize c") == "minimize (a / b); maximize c");
  CHECK(entries("state m : fp32 { where = not x }  state v : if(a, b, c)") ==
        "state m fp32 {assign where (not x)}; state v if(a, b, c)");
  CHECK(entries("on {a, b} { save q save r : fp32 }  on layer { }") ==
        "on +a +b {save q; save r fp32}; on +layer");
  CHECK(entries("fuse qkv = {q, k, v}  default sp = tp > 1") ==
        "fuse qkv {q, k, v}; default sp (tp > 1)");
  CHECK(entries("recompute selective { drop = {a} }") == "recompute selective {assign drop {a}}");
  CHECK(entries("pool fast { gpu = h }  beside ref { model = m }  observed { step = 8.4 s }") ==
        "pool fast {assign gpu h}; beside ref {assign model m}; observed {assign step 8.4s}");
}

TEST_CASE("keywords by their place are names where they are given a value", "[parse]") {
  CHECK(entries("recompute = selective  recompute in {none, full}") ==
        "assign recompute selective; narrow recompute {none, full}");
  CHECK(
      entries("state = 1 on = 2 save = 3 fuse = 4 default = 5 pool = 6 observed = 7 beside = 8 "
              "weight = 9 each = 10") ==
      "assign state 1; assign on 2; assign save 3; assign fuse 4; assign default 5; assign pool 6; "
      "assign observed 7; assign beside 8; assign weight 9; assign each 10");
  CHECK(entries("prefer a weight 2\n weight = 3") == "prefer a ~ 2; assign weight 3");
  CHECK(entries("model = train  x = model + layout") ==
        "assign model train; assign x (model + layout)");
}

TEST_CASE("declarations", "[parse]") {
  CHECK(declarations("use \"a.plan\"\nlayout l { tp = 8 }") ==
        "use a.plan\nlayout l {assign tp 8}\n");
  CHECK(declarations("gpu g = h { sm = 100 }") == "gpu g : h {assign sm 100}\n");
  CHECK(declarations("gpu g = h\ngpu i = g") == "gpu g : h\ngpu i : g\n");
  CHECK(declarations("block f(x, n = 2 * 3, b = false,) { return x }") ==
        "block f (x) (n=(2 * 3)) (b=false) {return x}\n");
  CHECK(declarations("# c\n## One.\n## Two.\nmodel m { }\n## Three.\n\nmodel n { }") ==
        "## One.\nTwo.\nmodel m {}\n## Three.\nmodel n {}\n");
  CHECK(declarations("anything goes { x = 1 }") == "anything goes {assign x 1}\n");
  CHECK(declarations("").empty());
  CHECK(declarations("\xEF\xBB\xBF# only a comment").empty());
}
