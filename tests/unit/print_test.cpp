// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/print.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "lang/parse.hpp"
#include "tests/catch.hpp"
#include "tests/unit/ast_dump.hpp"

using namespace plimsoll;
using test::dump;

namespace {

struct Printed {
  Sources sources;
  Diagnostics diagnostics;
  ast::File file;
  std::string text;

  explicit Printed(std::string source) {
    sources.add("t.plan", std::move(source));
    file = parse(sources, 0, diagnostics);
    text = print(file, sources);
  }
};

std::string fmt_of(const std::string& source) {
  const Printed printed(source);
  INFO(source << "\n" << printed.diagnostics.render(printed.sources, false));
  CHECK_FALSE(printed.diagnostics.has_errors());
  return printed.text;
}

/// Everything that must hold for a source without errors.
void check_round_trip(const std::string& source) {
  INFO(source);
  const Printed once(source);
  INFO(once.diagnostics.render(once.sources, false));
  REQUIRE_FALSE(once.diagnostics.has_errors());
  INFO(once.text);
  const Printed twice(once.text);
  INFO(twice.diagnostics.render(twice.sources, false));
  REQUIRE_FALSE(twice.diagnostics.has_errors());
  CHECK(dump(twice.file) == dump(once.file));
  CHECK(twice.text == once.text);
  const auto comments = [](const Printed& p) {
    std::vector<std::string> texts;
    for (const ast::Comment& c : p.file.comments) texts.emplace_back(p.sources.text(c.span));
    return texts;
  };
  CHECK(comments(twice) == comments(once));
}

/// Random sources that use all of the syntax, with blanks, new lines and comments in odd places.
class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  std::string file() {
    text_.clear();
    for (int i = below(3); i > 0; --i) add("use \"f.plan\"").gap();
    for (int i = 1 + below(4); i > 0; --i) {
      declaration();
      newline();
    }
    return text_;
  }

 private:
  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  bool chance(int percent) { return below(100) < percent; }
  Generator& add(std::string_view text) {
    text_ += text;
    return *this;
  }
  template <std::size_t N>
  const char* any(const char* const (&from)[N]) {
    return from[below(N)];
  }

  void newline() {
    if (chance(15)) add(" # c" + std::to_string(below(100)));
    add("\n");
    if (chance(15)) add("\n\n");
    if (chance(10)) add("   # own " + std::to_string(below(100)) + "\n");
  }
  /// Between two tokens, on one line or not.
  Generator& gap() {
    if (chance(8)) {
      newline();
    } else {
      add(chance(10) ? "   " : " ");
    }
    return *this;
  }
  void name() {
    add(any({"a", "b", "tp", "s", "min", "sequences", "weight", "state", "on", "recompute", "heads",
             "zb_h1", "1f1b"}));
  }
  void plain_name() { add(any({"a", "b", "tp", "s", "min", "kv_heads", "hidden", "sequences"})); }

  void number() {
    if (chance(30)) {
      add(any({"8Ki", "4k", "12M"})).add(chance(20) ? " tokens" : "");
    } else {
      add(any({"0", "1", "8_192", "1.5", "2e3", "1.5e-3"}));
      if (chance(40))
        add(chance(50) ? " " : "")
            .add(any({"B", "GiB", "Gb/s", "TFLOP/s", "ms", "USD/h", "tokens", "%"}));
    }
  }

  void expression(int depth) {
    if (chance(15)) {
      add("(").gap();
      expression(depth - 1);
      gap().add(")");
      return;
    }
    const int kind = depth <= 0 ? below(5) : below(11);
    switch (kind) {
      case 0:
      case 1:
        name();
        break;
      case 2:
        number();
        break;
      case 3:
        add(any({"true", "false", "\"2.11\"", "\"\""}));
        break;
      case 4:
        name();
        break;
      case 5:
        call(depth);
        break;
      case 6:
        list(depth, "{", "}");
        break;
      case 7:
        list(depth, "[", "]");
        break;
      case 8:
        name();
        add("[");
        expression(depth - 1);
        add("]");
        break;
      case 9:
        add("(").add(chance(50) ? "-" : "not ");
        operand(depth - 1);
        add(")");
        break;
      default: {
        const std::string op = any(
            {"+", "-", "*", "/", "//", "^", "..", "==", "<", ">=", "!=", "in", "and", "or", "=>"});
        if (op == "in") {  // a unit after a blank is none before 'in'
          name();
        } else {
          operand(depth - 1);
        }
        gap().add(op).gap();
        operand(depth - 1);
      }
    }
  }
  /// In parentheses now and then where the language does not need them, and always where it might.
  void operand(int depth) {
    if (depth > 0 && chance(60)) {
      add("(");
      expression(depth);
      add(")");
    } else {
      expression(0);
    }
  }
  void items(int depth, bool named) {
    const int count = below(5);
    for (int i = 0; i < count; ++i) {
      if (named && i > 0 && i + 1 == count) {
        plain_name();
        add(" = ");
      }
      expression(depth - 1);
      if (i + 1 < count || chance(10)) add(",").gap();
    }
  }
  void list(int depth, const char* open, const char* close) {
    add(open);
    items(depth, false);
    add(close);
  }
  void call(int depth) {
    const bool is_if = chance(25);
    add(is_if ? "if" : any({"f", "linear", "experts"})).add("(");
    items(depth, true);
    add(")");
    if (!is_if && chance(20)) {
      add(" { t =>").gap();
      expression(depth - 1);
      gap().add("}");
    }
  }

  void separator() {
    if (chance(60) || ends_with_params_) {
      newline();
    } else {
      add(any({" ", "  ", "; ", ", ", ";\n"}));
    }
  }

  void body(int depth) {
    add("{").gap();
    for (int i = below(5); i > 0; --i) {
      entry(depth);
      separator();
    }
    gap().add("}");
  }

  Generator& label() { return add(chance(50) ? "\"why\": " : ""); }

  void entry(int depth) {
    ends_with_params_ = false;
    switch (below(depth > 0 ? 16 : 10)) {
      case 0:
        add("return").gap();
        break;
      case 1:
        add("require ").label();
        break;
      case 2:
        add("prefer ").label();
        break;
      case 3:
        add(chance(50) ? "minimize " : "maximize ");
        break;
      case 4:
        add("save q").add(chance(50) ? " : " : "");
        if (text_.back() == 'q') return;
        break;
      case 5:
        add("fuse qkv =").gap();
        break;
      case 6:
        add("default sp = ");
        break;
      case 7:
        params();
        return;
      case 8:
        plain_name();
        add(" in ");
        break;
      case 9:
        plain_name();
        gap().add("=").gap();
        break;
      case 10:
        add("repeat ");
        expression(2);
        add(chance(50) ? " as i " : " ");
        body(depth - 1);
        return;
      case 11:
        add("item \"x y\"").add(chance(50) ? " each shape " : " ");
        body(depth - 1);
        return;
      case 12:
        add(chance(50) ? "on attention " : "on {linear, glu} ");
        body(depth - 1);
        return;
      case 13:
        add(any({"recompute selective ", "pool fast ", "observed ", "beside ref "}));
        body(depth - 1);
        return;
      case 14:
        add("state m : ");
        expression(2);
        add(" ");
        body(depth - 1);
        return;
      default:
        add("state w :").gap();
        break;
    }
    const bool prefer = text_.ends_with("prefer ") || text_.ends_with("prefer \"why\": ");
    expression(3);
    if (prefer && chance(50)) add(" weight 3");
  }

  void params() {
    add("param ");
    for (int i = 1 + below(5); i > 0; --i) {
      plain_name();
      if (chance(20)) {
        add(" in ");
        list(1, "{", "}");
      }
      if (chance(50)) {
        add(" = ");
        expression(2);
      }
      if (i > 1) add(", ");
    }
    ends_with_params_ = true;  // a comma would go on with the list
  }

  void declaration() {
    if (chance(30)) add("## About it.\n");
    switch (below(4)) {
      case 0:
        add("block f(x, n");
        if (chance(50)) add(" =").gap().add("3");
        add(")").gap();
        break;
      case 1:
        add("gpu g = h");
        if (chance(30)) return;
        gap();
        break;
      case 2:
        add("model").gap().add("m").gap();
        break;
      default:
        add("train t ");
    }
    body(3);
  }

  std::mt19937 random_;
  std::string text_;
  bool ends_with_params_ = false;
};

}  // namespace

TEST_CASE("canonical form", "[print]") {
  CHECK(fmt_of("cluster   pod{gpu=h100_sxm;nodes=8,gpus_per_node=8}") ==
        "cluster pod { gpu = h100_sxm  nodes = 8  gpus_per_node = 8 }\n");
  CHECK(fmt_of("cluster pod {\n gpu   = h100_sxm  # from the prelude\n\n\n nodes = 8 # n\n}\n") ==
        "cluster pod {\n  gpu = h100_sxm  # from the prelude\n\n  nodes = 8  # n\n}\n");
  CHECK(fmt_of("# top\n\n## Doc.\nmodel m{ # open\n # inside\n}# after\n# end") ==
        "# top\n\n## Doc.\nmodel m {  # open\n  # inside\n}  # after\n# end\n");
  CHECK(fmt_of("gpu a=b\nuse   \"c.plan\"") == "gpu a = b\nuse \"c.plan\"\n");
  CHECK(fmt_of("") == "");
  CHECK(fmt_of("\n\n# only\n\n") == "# only\n");
  CHECK(fmt_of("layout a { }  layout b { tp=1 }") == "layout a { }\nlayout b { tp = 1 }\n");
}

TEST_CASE("numbers keep their spelling, units stand apart", "[print]") {
  CHECK(fmt_of("gpu g { a=80GiB b=5 % c=1_000.50 d=8Ki e=400 Gb/s }") ==
        "gpu g { a = 80 GiB  b = 5%  c = 1_000.50  d = 8Ki  e = 400 Gb/s }\n");
  // Before 'in' a unit after a blank would be the next entry's name.
  CHECK(fmt_of("gpu g { a = 80GiB in {80GiB} }") == "gpu g { a = 80GiB in {80 GiB} }\n");
  CHECK(fmt_of("gpu g { param a in 1 GiB..4GiB = 2GiB }") ==
        "gpu g { param a in 1 GiB..4GiB = 2 GiB }\n");
  // What was no unit does not begin to look like one.
  CHECK(fmt_of("serve s { context = 8Ki; sequences = 1; x = 2 }") ==
        "serve s { context = 8Ki; sequences = 1  x = 2 }\n");
}

TEST_CASE("parentheses only as needed", "[print]") {
  const auto of = [](const std::string& text) {
    const std::string out = fmt_of("model m { x = " + text + " }");
    return out.substr(14, out.size() - 17);
  };
  CHECK(of("((a)+(b*c))") == "a + b * c");
  CHECK(of("(a+b)*c-(d-e)-(f*g)") == "(a + b) * c - (d - e) - f * g");
  CHECK(of("(a^b)^c^(d^e)") == "(a ^ b) ^ c ^ d ^ e");
  CHECK(of("2^(-3)") == "2 ^ -3");
  CHECK(of("(-2)^3") == "(-2) ^ 3");
  CHECK(of("-(2^3)") == "-2 ^ 3");
  CHECK(of("not (not a) and (b or c)") == "not not a and (b or c)");
  CHECK(of("(a == b) == (not c)") == "(a == b) == (not c)");
  CHECK(of("(a => b) => (c => d)") == "(a => b) => c => d");
  CHECK(of("(1 .. 16)") == "1..16");
  CHECK(of("1..(n+1)") == "1 .. n + 1");
  CHECK(of("(a+b)[0]") == "(a + b)[0]");
  CHECK(of("experts(x , n){t=>f( t )}") == "experts(x, n) { t => f(t) }");
}

TEST_CASE("what does not fit is broken at its outermost list or operator", "[print]") {
  CHECK(fmt_of("model m { abcdefghijkl = linear(rmsnorm(aaaaaaaaaaaaaaaaaaaa), "
               "bbbbbbbbbbbbbbbbbbbbbbbbbbb, "
               "split = column, name = head) }") ==
        "model m {\n"
        "  abcdefghijkl = linear(rmsnorm(aaaaaaaaaaaaaaaaaaaa), bbbbbbbbbbbbbbbbbbbbbbbbbbb, "
        "split = column,\n"
        "                        name = head)\n"
        "}\n");
  CHECK(fmt_of("model m { require aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa == 1 and "
               "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb == 2 "
               "and ccccccccccccccccccccc == 3 }") ==
        "model m {\n"
        "  require aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa == 1 and bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb "
        "== 2\n"
        "          and ccccccccccccccccccccc == 3\n"
        "}\n");
  const std::string list =
      "model m { param aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa = 1, "
      "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb = 2, "
      "cccccccccccccccccccccc = 3 }";
  CHECK(
      fmt_of(list) ==
      "model m {\n"
      "  param aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa = 1, bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb = 2\n"
      "  param cccccccccccccccccccccc = 3\n"
      "}\n");
}

TEST_CASE("comments within an entry keep it as it was written", "[print]") {
  const std::string text =
      "model m {\n"
      "  pattern = [mamba,   # first\n"
      "             mlp]  # second\n"
      "  param a = {1, # one\n"
      "    2}, b = 3\n"
      "}\n";
  CHECK(fmt_of(text) == text);
  check_round_trip("block f(x, # the input\n   y) # after\n{ return x }");
}

TEST_CASE("the programs that came with the language survive fmt", "[print]") {
  const std::filesystem::path root = PLIMSOLL_SOURCE_DIR;
  int seen = 0;
  for (const char* folder : {"tests/data/plans", "lang/prelude", "examples"}) {
    for (const auto& entry : std::filesystem::directory_iterator(root / folder)) {
      if (entry.path().extension() != ".plan") continue;
      std::ifstream in(entry.path());
      std::stringstream text;
      text << in.rdbuf();
      INFO(entry.path());
      check_round_trip(text.str());
      ++seen;
    }
  }
  CHECK(seen > 10);
}

TEST_CASE("random programs survive fmt", "[print]") {
  const unsigned seed = 4711;
  for (unsigned i = 0; i < 400; ++i) {
    INFO("seed " << seed + i);
    check_round_trip(Generator(seed + i).file());
  }
}
