// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/elaborate.hpp"
#include "tests/catch.hpp"
#include "tests/unit/models.hpp"

using namespace plimsoll;
using test::Models;

namespace {

std::string head() { return "model m {\n  x = embedding(100, 64)\n"; }
std::string tail() { return "  loss = cross_entropy(linear(x, 100, split = column))\n}\n"; }

struct Said {
  Models models;
  explicit Said(const std::string& text, const std::string& model = "m") {
    models.add("t.plan", text);
    INFO(models.said());
    REQUIRE_FALSE(models.diagnostics.has_errors());
    const bool built = models.build(model).has_value();
    CHECK(built != models.diagnostics.has_errors());
  }
};

/// Each diagnostic as "MESSAGE @ what is underlined [label: what] | help", in source order.
std::string all(const std::string& text, const std::string& model = "m") {
  const Said said(text, model);
  std::string result;
  for (const Diagnostic* d : said.models.diagnostics.sorted()) {
    if (!result.empty()) result += "\n";
    if (d->severity == Severity::warning) result += "warning: ";
    result += d->message + " @ " + std::string(said.models.sources.text(d->span));
    for (const Label& label : d->labels)
      result += fmt::format(" [{}: {}]", label.text, said.models.sources.text(label.span));
    if (!d->help.empty()) result += " | " + d->help;
  }
  return result;
}

/// What is said of `x = TEXT` in a model whose x is 64 wide.
std::string of(const std::string& text) { return all(head() + "  x = " + text + "\n" + tail()); }

}  // namespace

TEST_CASE("shapes that cannot be", "[elaborate][errors]") {
  CHECK(of("x + linear(x, 32)") ==
        "cannot add tensors of width 64 and 32 @ x + linear(x, 32) | give the linear before one of "
        "them the width of the other");
  CHECK(of("x * linear(x, 32)") ==
        "cannot multiply tensors of width 64 and 32 @ x * linear(x, 32) | give the linear before "
        "one of them the width of the other");
  CHECK(of("x + embedding(100, 64, seq = target)") ==
        "cannot add tensors of seq and target tokens @ x + embedding(100, 64, seq = target) | "
        "docs/language.md has a table of what each op and entry takes");
  CHECK(
      of("x + linear(x, 64, split = column)") ==
      "cannot add a tensor that is divided over the tensor-parallel ranks and one that is whole @ "
      "x + linear(x, 64, split = column) | a linear with split = row makes a divided tensor whole");
  CHECK(of("linear(linear(x, 64, split = column), 64)") ==
        "the input of a linear that is not split by row is divided over the tensor-parallel ranks; "
        "it must be whole @ linear(linear(x, 64, split = column), 64) [divided since here: "
        "linear(x, 64, split = column)] | a linear with split = row makes it whole");
  CHECK(of("linear(x, 64, split = column, units = 6)") ==
        "width 64 does not divide into 6 units @ linear(x, 64, split = column, units = 6) | 64 "
        "must be a multiple of 6");
  CHECK(of("linear(x, 64, units = 4)") ==
        "units say how a linear is split; this one is not @ 4 | add split = column");
  CHECK(of("rmsnorm(x, groups = 7)") ==
        "width 64 does not divide into 7 groups @ rmsnorm(x, groups = 7) | 64 must be a multiple "
        "of 7");
  CHECK(of("rope(x, last = 65)") ==
        "cannot turn the last 65 elements of a tensor of width 64 @ 65 | docs/language.md has a "
        "table of what each op and entry takes");
  CHECK(of("merge(x, linear(x, 32))") ==
        "cannot merge tensors of width 64 and 32 @ merge(x, linear(x, 32)) | docs/language.md has "
        "a table of what each op and entry takes");
  CHECK(
      of("concat(linear(x, 64, split = column), x)") ==
      "the first tensor is divided over the tensor-parallel ranks: say in which groups the second "
      "one joins it @ concat(linear(x, 64, split = column), x) | concat(a, b, groups = heads)");
  CHECK(of("x * 2") ==
        "cannot multiply a tensor and a count @ x * 2 | docs/language.md has a table of what each "
        "op and entry takes");
  CHECK(of("x - x") ==
        "cannot subtract a tensor from a tensor @ x - x | both must be of one kind; a plain number "
        "takes a unit, as in 2 GiB or 3 s");
  CHECK(of("x + cross_entropy(x)") ==
        "cannot add a tensor and a loss @ x + cross_entropy(x) | docs/language.md has a table of "
        "what each op and entry takes");
}

TEST_CASE("attention that cannot be", "[elaborate][errors]") {
  const auto attention = [](const std::string& q, const std::string& k, const std::string& v,
                            const std::string& rest) {
    return all(head() + "  q = linear(x, " + q + ")\n  k = linear(x, " + k + ")\n  v = linear(x, " +
               v + ")\n  x = attention(q, k, v, " + rest + ")\n  " +
               "loss = cross_entropy(x)\n}\n");
  };
  CHECK(attention("60", "60", "60", "heads = 7") ==
        "the width of q, 60 does not divide into 7 heads @ attention(q, k, v, heads = 7) | 60 must "
        "be a multiple of 7");
  CHECK(attention("60", "50", "60", "heads = 6, kv_heads = 4") ==
        "the width of k, 50 does not divide into 4 kv_heads @ attention(q, k, v, heads = 6, "
        "kv_heads = 4) | 50 must be a multiple of 4");
  CHECK(attention("60", "40", "40", "heads = 6, kv_heads = 4") ==
        "6 heads do not share 4 kv_heads evenly @ attention(q, k, v, heads = 6, kv_heads = 4) | "
        "heads must be a multiple of kv_heads");
  CHECK(attention("60", "60", "60", "heads = 6, kv_heads = 3") ==
        "q has 10 elements a head, k has 20 @ attention(q, k, v, heads = 6, kv_heads = 3) | "
        "docs/language.md has a table of what each op and entry takes");
  CHECK(attention("64, split = column", "64", "64, split = column", "heads = 4") ==
        "q, k and v must all be divided over the tensor-parallel ranks or all be whole @ "
        "attention(q, k, v, heads = 4) | give the linears of q, k and v split = column");
  CHECK(attention("64, split = column, units = 32", "64, split = column", "64, split = column",
                  "heads = 4") ==
        "q is split in 32 units, but attention has 4 heads for it @ attention(q, k, v, heads = 4) "
        "| docs/language.md has a table of what each op and entry takes");
  CHECK(attention("64", "64", "64", "heads = 4, bias = 3") ==
        "expected none, alibi or a tensor, got a count @ 3 | docs/language.md has a table of what "
        "each op and entry takes");
  CHECK(attention("64", "64", "64", "heads = 4, bias = relative_bias(8, 32)") ==
        "the bias is of 8 heads, attention has 4 @ relative_bias(8, 32) | docs/language.md has a "
        "table of what each op and entry takes");
  CHECK(attention("64", "64", "64", "heads = 4, cache = x") ==
        "'cache' is a list of tensors, got a tensor @ x | docs/language.md has a table of what "
        "each op and entry takes");
  CHECK(all(head() + "  y = embedding(100, 64, seq = target)\n  x = attention(y, x, x, heads = 4, "
                     "causal = true)\n  loss = cross_entropy(x)\n}\n") ==
        "causal attention is of a sequence to itself; q and k have unlike tokens @ true | causal = "
        "false");
}

TEST_CASE("arguments of ops", "[elaborate][errors]") {
  CHECK(of("linear(x)") ==
        "linear needs 'out' @ linear(x) | linear(x, out, split = …, units = …, bias = …, tied = …, "
        "name = …)");
  CHECK(of("linear(x, 64, splitt = column)") ==
        "linear has no argument 'splitt' @ splitt | did you mean 'split'?");
  CHECK(
      of("linear(x, 64, out = 3)") ==
      "'out' is given twice @ out | docs/language.md has a table of what each op and entry takes");
  CHECK(of("relu(x, 2)") == "relu takes 1 arguments at most @ 2 | relu(x)");
  CHECK(of("linear(64, 64)") ==
        "'x' is a tensor, got a count @ 64 | docs/language.md has a table of what each op and "
        "entry takes");
  CHECK(of("linear(x, x)") == "expected a count, got a tensor @ x | give a count here");
  CHECK(of("linear(x, 0)") ==
        "'out' of linear is a whole number above 0, got 0 @ 0 | docs/language.md has a table of "
        "what each op and entry takes");
  CHECK(of("linear(x, 0 - 8)") ==
        "'out' of linear is a whole number above 0, got -8 @ 0 - 8 | docs/language.md has a table "
        "of what each op and entry takes");
  CHECK(of("linear(x, 64 / 3)") ==
        "'out' of linear is a whole number above 0, got 64/3 @ 64 / 3 | docs/language.md has a "
        "table of what each op and entry takes");
  CHECK(of("linear(x, 2 GiB)") == "expected a count, got bytes @ 2 GiB | give a count here");
  CHECK(of("linear(x, 2 ^ 60)") ==
        "'out' of linear is too large: 1,152,921,504,606,846,976 @ 2 ^ 60 | docs/language.md has a "
        "table "
        "of what each op and entry takes");
  CHECK(of("linear(linear(x, 2 ^ 30), 2 ^ 30)") ==
        "a weight of 1,073,741,824 x 1,073,741,824 elements is too large @ linear(linear(x, 2 ^ "
        "30), 2 ^ 30) | docs/language.md has a table of what each op and entry takes");
  CHECK(of("linear(x, 64, split = colum)") ==
        "expected one of none, column, row, got 'colum' @ colum | did you mean 'column'?");
  CHECK(of("linear(x, 64, bias = 1)") ==
        "expected a condition (true or false), got a count @ 1 | a condition compares: tp <= 8, "
        "zero == 3, mbs in {1, 2}");
  CHECK(of("linear(x, 64, name = 3)") ==
        "expected a name for the weight of this linear @ 3 | name "
        "= q");
  CHECK(of("dropout(x, 1)") ==
        "'p' of dropout is a share from 0 to below 1, got 1 @ 1 | docs/language.md has a table of "
        "what each op and entry takes");
  CHECK(of("softcap(x, none)") ==
        "softcap needs a bound, got none @ none | docs/language.md has a table of what each op and "
        "entry takes");
  CHECK(of("linear(x, hiden)") ==
        "unknown name 'hiden' @ hiden | nothing of this name is known here: give a value, or "
        "declare it");
  CHECK(of("lineer(x, 64)") == "unknown function 'lineer' @ lineer | did you mean 'linear'?");
  CHECK(of("relu(x) { t => t }") == "relu takes no body @ { t => t } | relu(x)");
  CHECK(of("experts(x, 4, 2)") ==
        "experts takes a body @ experts(x, 4, 2) | experts(x, count, top_k, capacity = …, score = "
        "…, router_bias = …, name = …) { t => … }");
}

TEST_CASE("experts that cannot be", "[elaborate][errors]") {
  CHECK(of("experts(x, 4, 8) { t => t }") ==
        "top_k is 8, but there are 4 experts @ 8 | docs/language.md has a table of what each op "
        "and entry takes");
  CHECK(of("experts(x, 4, 2) { t => linear(x, 64) }") ==
        "the body of experts works on the tokens that were routed to an expert, not on the layer's "
        "own @ x | use the name before '=>'");
  CHECK(of("experts(x, 4, 2) { t => t + x }") ==
        "the body of experts works on the tokens that were routed to an expert, not on the layer's "
        "own @ t + x | use the name before '=>'");
  CHECK(of("experts(x, 4, 2) { t => 3 }") ==
        "the body of experts is a tensor, got a count @ 3 | docs/language.md has a table of what "
        "each op and entry takes");
  CHECK(of("experts(x, 4, 2) { t => x }") ==
        "the body of experts does not use the tokens that are routed to it @ x | it sees them as "
        "'t'");
  CHECK(of("experts(x, 4, 2) { t => linear(t, 32, split = column) }") ==
        "the input of what experts return is divided over the tensor-parallel ranks; it must be "
        "whole @ linear(t, 32, split = column) [divided since here: linear(t, 32, split = column)] "
        "| a linear with split = row makes it whole");
  CHECK(of("experts(x, 4, 2) { t => experts(t, 4, 2) { u => u } }") ==
        "experts cannot stand in the body of experts @ experts | docs/language.md has a table of "
        "what each op and entry takes");
}

TEST_CASE("weights that cannot be shared", "[elaborate][errors]") {
  const auto shared = [](const std::string& before, const std::string& tied) {
    return all("model m {\n" + before + "  loss = cross_entropy(linear(x, 100, tied = " + tied +
               "))\n}\n");
  };
  CHECK(shared("  x = input(10, 64)\n", "true") ==
        "there is no embedding to share @ true | add x = embedding(vocab, hidden)");
  CHECK(shared("  x = embedding(100, 64) + embedding(100, 64)\n", "true") ==
        "the model has 2 embeddings to share @ true | say which: tied = NAME, with embedding(…, "
        "name = NAME)");
  CHECK(shared("  x = embedding(100, 64, name = words)\n", "word") ==
        "no weight is named 'word' @ word | did you mean 'words'?");
  CHECK(shared("  x = embedding(100, 64, name = words)\n", "zebra") ==
        "no weight is named 'zebra' @ zebra | give the weight to share name = zebra");
  CHECK(shared("  x = embedding(50, 64, name = e)\n", "e") ==
        "weights of unlike shape cannot be shared: 64 x 100 and 50 x 64 @ e [the other weight: "
        "embedding(50, 64, name = e)] | give both the same sizes, or leave 'tied' out");
  CHECK(shared("  x = embedding(100, 64)\n  x = linear(linear(x, 64, name = a), 64, name = a)\n",
               "a") ==
        "2 weights are named 'a' @ a | a weight that is shared has a name of its own");
}

TEST_CASE("blocks called wrongly", "[elaborate][errors]") {
  const std::string f = "block f(x, n, kind = none) { return linear(x, n) }\n";
  const auto call = [&](const std::string& text) {
    return all(f + head() + "  x = " + text + "\n" + tail());
  };
  CHECK(call("f(x)") == "block 'f' needs 'n' @ f(x) | f(x, n, kind = …)");
  CHECK(call("f(x, 64, none, 3)") == "block 'f' takes 3 arguments at most @ 3 | f(x, n, kind = …)");
  CHECK(call("f(x, 64, kid = 3)") ==
        "block 'f' has no parameter 'kid' @ kid | did you mean 'kind'?");
  CHECK(call("f(x, 64, n = 3)") ==
        "'n' is given twice @ n | docs/language.md has a table of what each op and entry takes");
  CHECK(call("f(x, 64) { t => t }") ==
        "block 'f' takes no body @ { t => t } | docs/language.md has a table of what each op and "
        "entry takes");
  CHECK(call("g(x, 64)") == "unknown function 'g' @ g | declare it: block g(x) { return … }");
  CHECK(call("f(x, hiden)") ==
        "unknown name 'hiden' @ hiden [in block 'f', called here: f(x, hiden)] [a count is "
        "expected here: n] | give a number, or a name that has one");
  CHECK(call("f(x, 63) + x") ==
        "cannot add tensors of width 63 and 64 @ f(x, 63) + x | give the linear before one of them "
        "the width of the other");
  CHECK(call("f(x, 0)") ==
        "'out' of linear is a whole number above 0, got 0 @ n [in block 'f', called here: f(x, 0)] "
        "| docs/language.md has a table of what each op and entry takes");
}

TEST_CASE("blocks written wrongly", "[elaborate][errors]") {
  const auto block = [](const std::string& text) {
    return all(text + head() + "  x = f(x)\n" + tail());
  };
  CHECK(block("block f(x) { y = relu(x) }\n") ==
        "block 'f' returns nothing @ f [in block 'f', called here: f(x)] | end it with return …");
  CHECK(block("block f(x) { return width(x) }\n") ==
        "a block returns a tensor; 'f' returns a count @ f [in block 'f', called here: f(x)] | "
        "docs/language.md has a table of what each op and entry takes");
  CHECK(block("block f(x) { return linear(x, hidden) }\n") ==
        "unknown name 'hidden' @ hidden [in block 'f', called here: f(x)] | nothing of this name "
        "is known here: give a value, or declare it");
  CHECK(block("block f(x) { param n = 3 return x }\n") ==
        "a block's parameters stand in its parentheses @ param n = 3 [in block 'f', called here: "
        "f(x)] | block NAME(x, n)");
  CHECK(block("block f(x) { repeat 2 { return x } }\n") ==
        "'return' stands at the end of a block, not in a repeat @ return x [in block 'f', called "
        "here: f(x)] | docs/language.md has a table of what each op and entry takes");
  CHECK(block("block f(x) { return f(x) }\n") ==
        "blocks call one another more than 64 deep: … -> f -> f -> f -> f -> f -> f -> f @ f(x) "
        "[in block 'f', called here: f(x)] [in block 'f', called here: f(x)] [in block 'f', called "
        "here: f(x)] [in block 'f', called here: f(x)] [in block 'f', called here: f(x)] [in block "
        "'f', called here: f(x)] | a block that calls itself needs an if(…) that ends it");
}

TEST_CASE("a block that calls itself may end", "[elaborate]") {
  CHECK(all("block f(x, n) { return if(n == 0, x, f(relu(x), n - 1)) }\n" + head() +
            "  x = f(x, 40)\n" + tail()) == "");
}

TEST_CASE("blocks that call and call again are bounded", "[elaborate][errors]") {
  const std::string said =
      all("block f(x, n) { y = if(n == 0, x, f(x, n - 1))\n return if(n == 0, "
          "y, f(y, n - 1)) }\n" +
          head() + "  x = f(x, 40)\n" + tail());
  CHECK(said.find("this model calls blocks more than 262,144 times @ f(") == 0);
}

TEST_CASE("parameters given wrongly", "[elaborate][errors]") {
  const std::string base =
      "model base {\n  param hidden, norm in {rmsnorm, layernorm} = rmsnorm, n in {1, 2, 4} = 1\n"
      "  x = embedding(100, hidden)\n  loss = cross_entropy(linear(x, 100))\n}\n";
  CHECK(all(base, "base") ==
        "model 'base' is a template: it has no value for hidden @ base | model "
        "NAME = base { hidden = … }");
  CHECK(
      all(base + "model m = base { hidden = 64  norm = batchnorm }\n") ==
      "expected one of rmsnorm, layernorm, got 'batchnorm' @ batchnorm | write one of these words, "
      "without quotes");
  CHECK(all(base + "model m = base { hidden = 64  norm = 3 }\n") ==
        "'norm' is one of rmsnorm, layernorm; got a count @ 3 | for example norm = rmsnorm");
  CHECK(all(base + "model m = base { hidden = 64  n = 3 }\n") ==
        "this value of 'n' is not in its set @ 3 [what it may be: {1, 2, 4}] | give it a value of "
        "the set, "
        "or add this one to the set");
  CHECK(all(base + "model m = base { hidden = hiden }\n") ==
        "unknown name 'hiden' @ hiden [a count is expected here: hidden] | give a number, or a "
        "name that has one");
  CHECK(all(base + "model m = base { hidden = 64 / 0 }\n") ==
        "division by zero @ 64 / 0 | make sure that what stands below the '/' cannot be 0");
  CHECK(all(base + "model m = base { hidden = 0 }\n") ==
        "'width' of embedding is a whole number above 0, got 0 @ hidden [while model 'm' is built: "
        "m] | docs/language.md has a table of what each op and entry takes");
  CHECK(
      all("model m {\n  param a = b, b = c + 1, c = a\n  x = embedding(100, 64)\n" + tail()) ==
      "the value of 'a' needs itself: a -> b -> c -> a @ b | give one of them a value of its own");
}

TEST_CASE("models written wrongly", "[elaborate][errors]") {
  CHECK(all("model m {\n  x = embedding(100, 64)\n}\n") ==
        "model 'm' has no loss @ m | end it with loss = cross_entropy(…)");
  CHECK(all("model m {\n  loss = embedding(100, 64)\n}\n") ==
        "a model's loss is cross_entropy(…) or a sum of them, got a tensor @ embedding(100, 64) | "
        "docs/language.md has a table of what each op and entry takes");
  CHECK(all("model m {\n  return 3\n}\n") ==
        "a model returns nothing: it ends with its loss @ return 3 | docs/language.md has a table "
        "of what each op and entry takes");
  CHECK(all(head() + "  repeat 2 / 3 { x = relu(x) }\n" + tail()) ==
        "repeat takes a whole number of turns, got 2/3 @ 2 / 3 | docs/language.md has a table of "
        "what each op and entry takes");
  CHECK(all(head() + "  repeat 0 - 1 { x = relu(x) }\n" + tail()) ==
        "repeat takes a whole number of turns, got -1 @ 0 - 1 | docs/language.md has a table of "
        "what each op and entry takes");
  CHECK(all(head() + "  repeat x { x = relu(x) }\n" + tail()) ==
        "expected a count, got a tensor @ x | give a count here");
  CHECK(all(head() + "  repeat 1M { x = relu(x) }\n" + tail()) ==
        "repeat takes at most 65,536 turns, got 1,000,000 @ 1M | docs/language.md has a table of "
        "what each op and entry takes");
  CHECK(all(head() + "  repeat 60000 { repeat 60000 { n = 1 } }\n" + tail()) ==
        "the repeats of this model take more than 65,536 turns @ repeat | docs/language.md has a "
        "table of what each op and entry takes");
  CHECK(all(head() + "  repeat 60000 { x = relu(relu(relu(x))) }\n" + tail()) ==
        "this model has more than 131,072 ops @ relu(relu(x)) | docs/language.md has a table of "
        "what each op and entry takes");
  CHECK(all(head() + "  save q\n" + tail()) ==
        "a model or block holds assignments, 'repeat', 'return' and items only @ save q | "
        "docs/language.md has a table of what each op and entry takes");
}

TEST_CASE("each independent mistake is reported, once", "[elaborate][errors]") {
  CHECK(all(head() +
            "  a = linear(x, hiden)\n"
            "  repeat 3 { x = x + a + linear(x, 32) }\n"
            "  repeat 3 { x = rmsnorm(x, groups = 7) }\n"
            "  b = wdth(x)\n" +
            tail()) ==
        "unknown name 'hiden' @ hiden | nothing of this name is known here: give a value, or "
        "declare it\nunknown function 'wdth' @ wdth | did you mean 'width'?");
}

TEST_CASE("a tensor that is never used is left out, with a warning", "[elaborate][errors]") {
  const std::string text = head() +
                           "  y = relu(linear(x, 32))\n"
                           "  repeat 2 { z = gelu(y)  x = relu(x) }\n" +
                           tail();
  CHECK(all(text) ==
        "warning: this tensor is never used; the model is built without it @ gelu(y) | use its "
        "result, or remove it");
  const test::Built built(text);
  CHECK(test::dump(built.program, built.models.pool) ==
        "0 embedding () -> 0 [seq x 64 sp] embedding:100x64r\n"
        "1 relu (0) -> 1 [seq x 64 sp]\n"
        "2 relu (1) -> 2 [seq x 64 sp]\n"
        "3 linear (2) -> 3 [seq x 100 /] head:64x100c\n"
        "4 cross_entropy (3)\n");
  CHECK(built.program.layer_count == 2);
  CHECK(built.program.weights.size() == 2);
}

TEST_CASE("an error in a template points at the model that it is built for",
          "[elaborate][errors]") {
  CHECK(test::said_of("model base {\n"
                      "  param heads\n"
                      "  x = embedding(100, 64)\n"
                      "  x = attention(x, x, x, heads = heads)\n"
                      "  loss = cross_entropy(x)\n"
                      "}\n"
                      "model m = base { heads = 7 }\n") ==
        "t.plan:4:7: error: the width of q, 64 does not divide into 7 heads\n 4 |   x = "
        "attention(x, x, x, heads = heads)\n   |       ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~\n 7 | "
        "model m = base { heads = 7 }\n   |       - while model 'm' is built\n   = help: 64 must "
        "be a multiple of 7\n");
}
