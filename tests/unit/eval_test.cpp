// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/eval.hpp"

#include "lang/parse.hpp"
#include "tests/catch.hpp"

using namespace plimsoll;
using namespace plimsoll::eval;

namespace {

using Value = plimsoll::eval::Value;

const Enumeration kRecompute{"recompute", {"none", "selective", "full"}};
const Enumeration kNorms{"norms", {"pre", "post", "sandwich"}};

/// An expression in a scope that has something of every kind.
struct Bench {
  Sources sources;
  Diagnostics diagnostics;
  ExprPool pool;
  Scope scope;
  ast::File file;

  explicit Bench(const std::string& text) {
    sources.add("t.plan", "train t { x = " + text + " }");
    file = parse(sources, 0, diagnostics);
    const auto number = [&](Rational n, Dimension d = kCount) {
      return Value{Number{pool.constant(n), d}, {}};
    };
    scope.set("heads", number(32));
    scope.set("hidden", number(4096));
    scope.set("memory", number(Rational(80) * 1024 * 1024 * 1024, kBytes));
    scope.set("bandwidth", number(1000, kBytes / kSeconds));
    scope.set("tp", {Number{pool.variable(Var::tp), kCount}, {}});
    scope.set("mbs", {Number{pool.variable(Var::mbs), kCount}, {}});
    scope.set("sp", {Boolean{pool.variable(Var::sp)}, {}});
    scope.set("tied", {Boolean{pool.constant(1)}, {}});
    scope.set("recompute", {OpenWord{pool.variable(Var::recompute), &kRecompute}, {}});
    scope.set("norms", {Word{"post", &kNorms}, {}});
    scope.set("other", {Word{"pre", &kNorms}, {}});
    scope.set("act", {Word{"silu", &any_words()}, {}});
    scope.set("window", {None{}, {}});
    scope.set("te_version", {String{"2.11"}, {}});
    scope.set("pre", number(7));
    scope.set("layers", {List{{number(19), number(21), number(20)}}, {}});
    scope.set("patterns",
              {List{{{Word{"mamba", &any_words()}, {}}, {Word{"mlp", &any_words()}, {}}}}, {}});
    scope.set("broken", {Unknown{}, {}});
  }

  const ast::Expr& expr() const { return *file.declarations[0].entries[0].value; }

  std::string text(const Value& v) {
    if (const Number* n = v.as<Number>()) {
      std::string result = pool.str(n->expr);
      if (!n->dimension.is_count()) result += " " + n->dimension.str();
      if (!n->unit.empty()) result += " " + std::string(n->unit);
      return result;
    }
    if (const Boolean* b = v.as<Boolean>())
      return pool.is_constant(b->expr) ? (pool.value(b->expr).is_zero() ? "false" : "true")
                                       : pool.str(b->expr);
    if (const OpenWord* w = v.as<OpenWord>()) return "word " + pool.str(w->expr);
    if (const List* list = v.as<List>()) {
      std::string result = "[";
      for (const Value& item : list->items) result += (result == "[" ? "" : ", ") + text(item);
      return result + "]";
    }
    return v.kind();
  }
};

std::string value(const std::string& text, const Enumeration* words = nullptr) {
  Bench bench(text);
  INFO(text << "\n" << bench.diagnostics.render(bench.sources, false));
  REQUIRE_FALSE(bench.diagnostics.has_errors());
  Evaluator evaluator(bench.pool, bench.diagnostics);
  const std::optional<Value> result = evaluator.eval(bench.expr(), bench.scope, words);
  INFO(bench.diagnostics.render(bench.sources, false));
  REQUIRE(result.has_value());
  REQUIRE_FALSE(bench.diagnostics.has_errors());
  return bench.text(*result);
}

/// "MESSAGE @ what is underlined | help", of the one error; labels as "MESSAGE [label: what]".
std::string error(const std::string& text, const Enumeration* words = nullptr) {
  Bench bench(text);
  INFO(text << "\n" << bench.diagnostics.render(bench.sources, false));
  REQUIRE_FALSE(bench.diagnostics.has_errors());
  Evaluator evaluator(bench.pool, bench.diagnostics);
  const bool good = evaluator.eval(bench.expr(), bench.scope, words).has_value();
  INFO(bench.diagnostics.render(bench.sources, false));
  CHECK_FALSE(good);
  REQUIRE(bench.diagnostics.error_count() == 1);
  const Diagnostic& d = *bench.diagnostics.sorted().front();
  std::string result = d.message + " @ " + std::string(bench.sources.text(d.span));
  for (const Label& label : d.labels)
    result += fmt::format(" [{}: {}]", label.text, bench.sources.text(label.span));
  if (!d.help.empty()) result += " | " + d.help;
  return result;
}

}  // namespace

TEST_CASE("numbers are exact and keep their dimension", "[eval]") {
  CHECK(value("2 + 3 * 4") == "14");
  CHECK(value("2 * 3 - 4 - 5") == "-3");
  CHECK(value("1 / 3 + 1 / 6") == "0.5");
  CHECK(value("7 // 2") == "3");
  CHECK(value("-7 // 2") == "-4");
  CHECK(value("2 ^ 10") == "1,024");
  CHECK(value("2 ^ -1") == "0.5");
  CHECK(value("4 GiB") == "4,294,967,296 bytes");
  CHECK(value("2 B * 3 + 1 KiB") == "1,030 bytes");
  CHECK(value("memory / 2 B") == "42,949,672,960");
  CHECK(value("memory / bandwidth") == "85899345.92 seconds");
  CHECK(value("5%") == "0.05");
  CHECK(value("4Mi tokens") == "4,194,304 tokens");
  CHECK(value("2 * 4Ki tokens") == "8,192 tokens");
  CHECK(value("4Ki tokens / 2 tokens") == "2,048");
  CHECK(value("-memory") == "-85,899,345,920 bytes");
}

TEST_CASE("a layout's variables stay open, the rest folds", "[eval]") {
  CHECK(value("128 * tp") == "128 * tp");
  CHECK(value("tp + 2 * tp") == "3 * tp");
  CHECK(value("heads / tp * tp") == "32");
  CHECK(value("sp") == "sp");
  CHECK(value("not not sp") == "sp");
  CHECK(value("tp > 1") == value("not (tp <= 1)"));
  CHECK(value("tp in {1, 2}") == value("tp == 1 or tp == 2"));
  CHECK(value("tp in 1..8") == value("1 <= tp and tp <= 8"));
  CHECK(value("tp ^ 2") == value("tp * tp"));
  CHECK(value("tp ^ -1") == value("1 / tp"));
}

TEST_CASE("built-in functions", "[eval]") {
  CHECK(value("min(3, 1, 2)") == "1");
  CHECK(value("max(layers)") == "21");
  CHECK(value("sum(layers)") == "60");
  CHECK(value("sum([])") == "0");
  CHECK(value("len(layers)") == "3");
  CHECK(value("len({1, 2})") == "2");
  CHECK(value("len(1..16)") == "16");
  CHECK(value("ceil(7 / 2)") == "4");
  CHECK(value("floor(-7 / 2)") == "-4");
  CHECK(value("round(5 / 2)") == "3");
  CHECK(value("round(-5 / 2)") == "-2");
  CHECK(value("log2(4096)") == "12");
  CHECK(value("log2(1)") == "0");
  CHECK(value("abs(-3)") == "3");
  CHECK(value("abs(3 B - 4 B)") == "1 bytes");
  CHECK(value("mod(7, 3)") == "1");
  CHECK(value("mod(-7, 3)") == "2");
  CHECK(value("layers[1]") == "21");
  CHECK(value("[1, 2, 3][mod(5, 3)]") == "3");
  CHECK(value("min(tp, tp)") == "tp");
}

TEST_CASE("log2 of a variable is right for every power of two", "[eval]") {
  Bench bench("log2(tp)");
  Evaluator evaluator(bench.pool, bench.diagnostics);
  const std::optional<Expr> e = evaluator.count(bench.expr(), bench.scope);
  REQUIRE(e.has_value());
  for (int i = 0; i < 20; ++i) {
    Env env;
    env[Var::tp] = Rational(1 << i);
    CHECK(bench.pool.eval(*e, env) == Rational(i));
  }
}

TEST_CASE("an index that a layout decides picks at each of its values", "[eval]") {
  Bench bench("layers[tp - 1]");
  Evaluator evaluator(bench.pool, bench.diagnostics);
  const std::optional<Expr> e = evaluator.count(bench.expr(), bench.scope);
  REQUIRE(e.has_value());
  const int expected[] = {19, 21, 20};
  for (int i = 0; i < 3; ++i) {
    Env env;
    env[Var::tp] = Rational(i + 1);
    CHECK(bench.pool.eval(*e, env) == Rational(expected[i]));
  }
}

TEST_CASE("only the chosen arm of a known condition is evaluated", "[eval]") {
  CHECK(value("if(heads > 1, 1, 1 / 0)") == "1");
  CHECK(value("if(heads < 1, unknown_name, 2)") == "2");
  CHECK(value("heads < 1 and 1 / 0 > 1") == "false");
  CHECK(value("heads > 1 or 1 / 0 > 1") == "true");
  CHECK(value("heads < 1 => 1 / 0 > 1") == "true");
  CHECK(value("if(tp > 1, 4 B, 2 B)") == value("if(tp <= 1, 2 B, 4 B)"));
  CHECK(value("if(sp, tied, not tied)") == "sp");
}

TEST_CASE("words take their meaning from their place", "[eval]") {
  CHECK(value("norms == post") == "true");
  CHECK(value("post == norms") == "true");
  CHECK(value("norms != pre") == "true");  // the word, though a variable has the name
  CHECK(value("pre == 7") == "true");      // here the variable
  CHECK(value("norms in {post, sandwich}") == "true");
  CHECK(value("norms == other") == "false");
  CHECK(value("act == silu") == "true");
  CHECK(value("silu == act") == "true");
  CHECK(value("act == gelu") == "false");
  CHECK(value("window == none") == "true");
  CHECK(value("window == rope") == "false");
  CHECK(value("heads == none") == "false");
  CHECK(value("recompute == full") == value("not (recompute != full)"));
  CHECK(value("recompute in {none, selective, full}") != "false");
  CHECK(value("if(heads > 1, sandwich, norms)") == "the word 'sandwich'");
  CHECK(value("if(heads > 1, pre, norms) == pre") == "true");
  CHECK(value("if(tp > 1, full, recompute)") == value("if(tp <= 1, recompute, full)"));
  CHECK(value("sandwich", &kNorms) == "the word 'sandwich'");
  CHECK(value("pre", &kNorms) == "the word 'pre'");
  CHECK(value("heads", &kNorms) == "32");
  CHECK(value("whatever", &any_words()) == "the word 'whatever'");
  CHECK(value("patterns[1] == mlp") == "true");
  CHECK(value("none") == "none");
}

TEST_CASE("versions compare part by part", "[eval]") {
  CHECK(value("te_version >= \"2.9\"") == "true");
  CHECK(value("te_version < \"2.11.1\"") == "true");
  CHECK(value("te_version == \"2.11.0\"") == "true");
  CHECK(value("te_version > \"10.0\"") == "false");
  CHECK(compare_versions("2.0rc1", "2.0rc2") < 0);
  CHECK(compare_versions("", "0") == 0);
  CHECK(compare_versions("1.10", "1.9") > 0);
}

TEST_CASE("a long sum does not nest", "[eval]") {
  std::string text = "1";
  for (int i = 0; i < 450; ++i) text += " + 1";
  CHECK(value(text) == "451");
}

TEST_CASE("wrong kinds and dimensions are named", "[eval]") {
  CHECK(error("memory + heads") ==
        "cannot add bytes and a count @ memory + heads [bytes: memory] [a count: heads] | both "
        "must be of one kind; a plain number takes a unit, as in 2 GiB or 3 s");
  CHECK(error("heads - 1 GiB") ==
        "cannot subtract bytes from a count @ heads - 1 GiB [a count: heads] [bytes: 1 GiB] | both "
        "must be of one kind; a plain number takes a unit, as in 2 GiB or 3 s");
  CHECK(error("1 + true") ==
        "cannot add a count and a condition @ 1 + true | both must be of one kind; a plain number "
        "takes a unit, as in 2 GiB or 3 s");
  CHECK(error("2 * layers") ==
        "cannot multiply a count and a list @ 2 * layers | both must be of one kind; a plain "
        "number takes a unit, as in 2 GiB or 3 s");
  CHECK(error("memory > heads") ==
        "cannot compare bytes and a count @ memory > heads | both must be of one kind; a plain "
        "number takes a unit, as in 2 GiB or 3 s");
  CHECK(error("memory == 80") ==
        "cannot compare bytes and a count @ memory == 80 | both must be of one kind; a plain "
        "number takes a unit, as in 2 GiB or 3 s");
  CHECK(error("sp == 1") ==
        "cannot compare a condition and a count @ sp == 1 | both must be of one kind; a plain "
        "number takes a unit, as in 2 GiB or 3 s");
  CHECK(error("not heads") ==
        "expected a condition (true or false), got a count @ heads | a condition compares: tp <= "
        "8, zero == 3, mbs in {1, 2}");
  CHECK(error("heads and sp") ==
        "expected a condition (true or false), got a count @ heads | a condition compares: tp <= "
        "8, zero == 3, mbs in {1, 2}");
  CHECK(error("if(heads, 1, 2)") ==
        "expected a condition (true or false), got a count @ heads | a condition compares: tp <= "
        "8, zero == 3, mbs in {1, 2}");
  CHECK(error("min(1, 2 B)") ==
        "min takes numbers that are alike; got a count and bytes @ 2 B | both must be of one kind; "
        "a plain number takes a unit, as in 2 GiB or 3 s");
  CHECK(error("1 in 3") ==
        "'in' takes a set, a list or a range, got a count @ 1 in 3 | a set is {1, 2, 4}, a range "
        "1..8");
  CHECK(error("heads[0]") ==
        "only lists have an index, got a count @ heads | a list stands in brackets: [19, 21, 21, "
        "19]");
  CHECK(error("layers[3]") ==
        "index 3 is outside the list of 3 (they count from 0) @ 3 | the last entry of a list x is "
        "x[len(x) - 1]");
  CHECK(error("layers[1 / 2]") ==
        "index 0.5 is outside the list of 3 (they count from 0) @ 1 / 2 | the last entry of a list "
        "x is x[len(x) - 1]");
  CHECK(error("log2(48)") ==
        "log2 is of powers of two, got 48 @ 48 | powers of two are 1, 2, 4, 8, …");
  CHECK(error("1 B .. 4") ==
        "the ends of a range are alike; got bytes and a count @ 1 B .. 4 | both must be of one "
        "kind; a plain number takes a unit, as in 2 GiB or 3 s");
  CHECK(error("8..1") == "the range 8..1 is empty @ 8..1 | the smaller end comes first");
  CHECK(error("2 ^ tp") ==
        "an exponent holds for every layout, got one that depends on it @ tp | layout variables "
        "such as tp and pp are "
        "known only once a layout is chosen");
  CHECK(error("tp ^ 65") ==
        "expected a whole exponent up to 64, got 65 @ 65 | write out the product instead");
  CHECK(error("if(tp > 1, 1 B, 1)") ==
        "a layout decides this, so both choices must be alike; got bytes and a count @ if(tp > 1, "
        "1 B, 1) | give both choices the same unit");
  CHECK(error("if(tp > 1, layers, layers)") ==
        "a layout decides this, so both choices must be numbers; got a list @ if(tp > 1, layers, "
        "layers) | let the condition name only what is known before a layout is chosen");
}

TEST_CASE("numbers that do not exist are errors where they arise", "[eval]") {
  CHECK(error("1 + 2 / 0") ==
        "division by zero @ 2 / 0 | make sure that what stands below the '/' cannot be 0");
  CHECK(error("2 ^ 200") ==
        "the number does not fit in 128 bits @ 2 ^ 200 | sizes of real jobs are far below this: "
        "look for a power or a unit too many");
  CHECK(error("3 * 2 ^ 126 + 1") ==
        "the number does not fit in 128 bits @ 3 * 2 ^ 126 | sizes of real jobs are far below "
        "this: look for a power or a unit too many");
  CHECK(error("2 ^ (1 / 2)") ==
        "the exponent 0.5 is not a whole number @ 2 ^ (1 / 2) | sizes of real jobs are far below "
        "this: look for a power or a unit too many");
  CHECK(error("7 // 0") ==
        "division by zero @ 7 // 0 | make sure that what stands below the '/' cannot be 0");
  CHECK(error("mod(7, 0)") ==
        "division by zero @ mod(7, 0) | make sure that what stands below the '/' cannot be 0");
}

TEST_CASE("unknown names and functions offer what may be meant", "[eval]") {
  CHECK(error("haeds + 1") == "unknown name 'haeds' @ haeds | did you mean 'heads'?");
  CHECK(
      error("zzz") ==
      "unknown name 'zzz' @ zzz | nothing of this name is known here: give a value, or declare it");
  CHECK(error("norms == sandwhich") ==
        "expected one of pre, post, sandwich, got 'sandwhich' @ "
        "sandwhich | did you mean 'sandwich'?");
  CHECK(error("recompute == fulll") ==
        "expected one of none, selective, full, got 'fulll' @ fulll | did you mean 'full'?");
  CHECK(error("maxx(1, 2)") == "unknown function 'maxx' @ maxx | did you mean 'max'?");
  CHECK(error("heads(2)") ==
        "unknown function 'heads' @ heads | 'heads' is a value; '*' multiplies");
  CHECK(error("min()") ==
        "min takes at least 1 argument, got 0 @ min() | put them between the parentheses: min(…)");
  CHECK(error("mod(1)") ==
        "mod takes 2 arguments, got 1 @ mod(1) | put them between the parentheses: mod(…)");
  CHECK(error("if(sp, 1)") ==
        "if takes 3 arguments, got 2 @ if(sp, 1) | if(condition, value, otherwise)");
  CHECK(error("min(a = 1)") == "min takes no named arguments @ a | leave 'a =' out");
  CHECK(error("act + 1") ==
        "unknown name 'silu' @  [a number is expected here: act] | give a number, or a name that "
        "has one");
}

TEST_CASE("what is broken already says nothing more", "[eval]") {
  Bench bench("broken + 1");
  Evaluator evaluator(bench.pool, bench.diagnostics);
  CHECK_FALSE(evaluator.eval(bench.expr(), bench.scope).has_value());
  CHECK_FALSE(bench.diagnostics.has_errors());
}

TEST_CASE("demands on a value name what was expected and found", "[eval]") {
  const auto said = [](const std::string& text, auto demand) {
    Bench bench(text);
    Evaluator evaluator(bench.pool, bench.diagnostics);
    CHECK_FALSE(demand(evaluator, bench.expr(), bench.scope).has_value());
    REQUIRE(bench.diagnostics.error_count() == 1);
    const Diagnostic& d = *bench.diagnostics.sorted().front();
    return d.message + (d.help.empty() ? "" : " | " + d.help);
  };
  const auto count = [](Evaluator& e, const ast::Expr& x, const Scope& s) { return e.count(x, s); };
  const auto bytes = [](Evaluator& e, const ast::Expr& x, const Scope& s) {
    return e.quantity(x, s, kBytes);
  };
  const auto fixed = [](Evaluator& e, const ast::Expr& x, const Scope& s) {
    return e.constant(x, s, kCount);
  };
  CHECK(said("memory", count) == "expected a count, got bytes | give a count here");
  CHECK(said("layers", count) == "expected a count, got a list | give a count here");
  CHECK(said("tied", count) == "expected a count, got a condition | give a count here");
  CHECK(said("80", bytes) ==
        "expected bytes, got a count | write the unit, as in '4 GiB' or '2 B'");
  CHECK(said("2 * tp", fixed) ==
        "expected a number that holds for every layout, got one that depends on it | layout "
        "variables such as tp "
        "and pp are known only once a layout is chosen");
}

TEST_CASE("scopes look inward first, then outward", "[eval]") {
  Scope outer;
  outer.set("a", {String{"outer"}, {}});
  outer.set("b", {String{"outer"}, {}});
  Scope inner(&outer);
  inner.set("a", {String{"inner"}, {}});
  CHECK(inner.find("a")->as<String>()->text == "inner");
  CHECK(inner.find("b")->as<String>()->text == "outer");
  CHECK(inner.find("c") == nullptr);
  CHECK(inner.own("b") == nullptr);
  const eval::Value* place = inner.find("a");
  for (int i = 0; i < 100; ++i) inner.set("n" + std::to_string(i), {None{}, {}});
  CHECK(inner.find("a") == place);
  inner.set("a", {String{"changed"}, {}});
  CHECK(place->as<String>()->text == "changed");
  CHECK(inner.names().size() == 103);
}
