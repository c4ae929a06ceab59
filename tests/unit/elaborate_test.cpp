// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/elaborate.hpp"

#include <algorithm>

#include "tests/catch.hpp"
#include "tests/unit/models.hpp"

using namespace plimsoll;
using test::Built;
using test::dump;

namespace {

/// A model of one layer around \a body, which turns x (64 wide) into x.
std::string around(const std::string& body) {
  return "model m {\n  x = embedding(100, 64)\n  repeat 1 { x = " + body +
         " }\n  loss = cross_entropy(linear(x, 100, split = column))\n}\n";
}

std::string ops(const std::string& text) {
  const Built built(text);
  return dump(built.program, built.models.pool);
}

const Op& find(const Program& program, OpKind kind) {
  const auto at = std::ranges::find(program.ops, kind, &Op::kind);
  REQUIRE(at != program.ops.end());
  return *at;
}

}  // namespace

TEST_CASE("a decoder layer: values, weights, how they lie on the ranks", "[elaborate]") {
  CHECK(ops("block swiglu(x, ffn) {\n"
            "  return linear(silu(linear(x, ffn, split = column, name = gate)) * linear(x, ffn, "
            "split = column, name = up), width(x), split = row, name = down)\n"
            "}\n"
            "block gqa(x, heads, kv_heads, d) {\n"
            "  q = rope(linear(x, heads * d, split = column, units = heads, name = q))\n"
            "  k = rope(linear(x, kv_heads * d, split = column, units = kv_heads, name = k))\n"
            "  v = linear(x, kv_heads * d, split = column, units = kv_heads, name = v)\n"
            "  return linear(attention(q, k, v, heads = heads, kv_heads = kv_heads, causal = "
            "true), width(x), split = row, name = o)\n"
            "}\n"
            "model m {\n"
            "  x = embedding(100, 64)\n"
            "  repeat 1 {\n"
            "    x = x + gqa(rmsnorm(x), 8, 2, 8)\n"
            "    x = x + swiglu(rmsnorm(x), 256)\n"
            "  }\n"
            "  loss = cross_entropy(linear(rmsnorm(x), 100, split = column))\n"
            "}\n") ==
        "0 embedding () -> 0 [seq x 64 sp] embedding:100x64r\n"
        "1 rmsnorm (0) -> 1 [seq x 64 sp] norm:1x64\n"
        "2 linear q (1) -> 2 [seq x 64 / 8] linear:64x64c\n"
        "3 rope (2) -> 3 [seq x 64 / 8]\n"
        "4 linear k (1) -> 4 [seq x 16 / 2] linear:64x16c\n"
        "5 rope (4) -> 5 [seq x 16 / 2]\n"
        "6 linear v (1) -> 6 [seq x 16 / 2] linear:64x16c\n"
        "7 attention (3 5 6) -> 7 [seq x 64 / 8]\n"
        "8 linear o (7) -> 8 [seq x 64 sp] linear:64x64r\n"
        "9 add (0 8) -> 9 [seq x 64 sp]\n"
        "10 rmsnorm (9) -> 10 [seq x 64 sp] norm:1x64\n"
        "11 linear gate (10) -> 11 [seq x 256 /] linear:64x256c\n"
        "12 linear up (10) -> 12 [seq x 256 /] linear:64x256c\n"
        "13 glu (11 12) -> 13 [seq x 256 /]\n"
        "14 linear down (13) -> 14 [seq x 64 sp] linear:256x64r\n"
        "15 add (9 14) -> 15 [seq x 64 sp]\n"
        "16 rmsnorm (15) -> 16 [seq x 64 sp] norm:1x64\n"
        "17 linear (16) -> 17 [seq x 100 /] head:64x100c\n"
        "18 cross_entropy (17)\n");
}

TEST_CASE("experts: a router, routed rows, a body, what brings them back", "[elaborate]") {
  const Built built(
      around("x + experts(x, 8, 2, router_bias = true, score = sigmoid, capacity = "
             "1.25) { t => linear(gelu(linear(t, 32, split = column, bias = true)), "
             "64, split = row, bias = true) }"));
  CHECK(dump(built.program, built.models.pool) ==
        "0 embedding () -> 0 [seq x 64 sp] embedding:100x64r\n"
        "1 experts (0) -> 1 [seq x 64 experts 1] router:64x8 router:1x8\n"
        "2 linear (1) -> 2 [seq x 32 / experts 1] expert:8x64x32c bias:8x1x32c\n"
        "3 gelu (2) -> 3 [seq x 32 / experts 1]\n"
        "4 linear (3) -> 4 [seq x 64 experts 1] expert:8x32x64r bias:8x1x64\n"
        "5 combine (4) -> 5 [seq x 64 sp]\n"
        "6 add (0 5) -> 6 [seq x 64 sp]\n"
        "7 linear (6) -> 7 [seq x 100 /] head:64x100c\n"
        "8 cross_entropy (7)\n");
  const Op& op = built.program.ops[1];
  CHECK(op.count == 8);
  CHECK(op.top_k == 2);
  CHECK(op.capacity == Rational::fraction(5, 4));
  CHECK(op.sigmoid);
  CHECK(built.program.ops[2].experts == 1);
  CHECK(built.program.ops[5].experts == kNone);
  CHECK(built.program.parameter_count() ==
        100 * 64 + 64 * 8 + 8 + 8 * (64 * 32 + 32 + 32 * 64 + 64) + 64 * 100);
}

TEST_CASE("layernorm, groups, weights and where they are divided", "[elaborate]") {
  const std::string text = ops(around(
      "linear(rmsnorm(linear(layernorm(rmsnorm(x, weight = false)), 64, split = column, units = "
      "8), groups = 8), 64, split = row)"));
  CHECK(text.find("1 rmsnorm (0) -> 1 [seq x 64 sp]\n") != std::string::npos);
  CHECK(text.find("2 layernorm (1) -> 2 [seq x 64 sp] norm:1x64 bias:1x64\n") != std::string::npos);
  CHECK(text.find("4 rmsnorm (3) -> 4 [seq x 64 / 8] norm:1x8\n") != std::string::npos);
  CHECK(ops(around("linear(rmsnorm(linear(x, 64, split = column)), 64, split = row)"))
            .find("rmsnorm (1) -> 2 [seq x 64 /] norm:1x64c\n") != std::string::npos);
}

TEST_CASE("attention: what it is told", "[elaborate]") {
  const std::string head =
      "model m {\n  x = embedding(100, 64)\n  t = relative_bias(8, 32)\n"
      "  q = linear(x, 96, split = column)\n"
      "  k = linear(x, 24, split = column)\n"
      "  v = linear(x, 16, split = column)\n  repeat 1 { x = linear(";
  const std::string tail =
      ", 64, split = row) }\n  loss = cross_entropy(linear(x, 100, split = column))\n}\n";
  const Built built(head +
                    "attention(q, k, v, heads = 8, kv_heads = 2, causal = true, window = 128, "
                    "softcap = 50, sinks = true, bias = t, cache = [x, k])" +
                    tail);
  const Op& op = find(built.program, OpKind::attention);
  CHECK(op.heads == 8);
  CHECK(op.kv_heads == 2);
  CHECK(op.q_width == 12);
  CHECK(op.k_width == 12);
  CHECK(op.v_width == 8);
  CHECK(op.causal);
  CHECK(op.window == 128);
  CHECK(op.chunk == 0);
  CHECK(op.softcap);
  CHECK(op.cap == Rational(50));
  CHECK(op.sinks);
  CHECK_FALSE(op.alibi);
  CHECK(op.inputs.size() == 4);
  CHECK(op.cache.size() == 2);
  CHECK(built.program.weights[op.weights.at(0)].cols == 8);
  CHECK(built.program.values[op.output].width == 64);
  // q, k and v were divided freely; attention divides them in whole heads.
  CHECK(built.program.values[op.inputs[0]].units == 8);
  CHECK(built.program.values[op.inputs[2]].units == 2);
  CHECK(built.program.weights[built.program.ops[op.inputs[1]].weights[0]].units == 2);

  for (const std::string bias : {"none", "0"}) {
    const Built plain(head + "attention(q, k, v, heads = 8, kv_heads = 2, window = none, bias = " +
                      bias + ") + attention(q, k, v, heads = 8, kv_heads = 2, bias = t)" + tail);
    CHECK(find(plain.program, OpKind::attention).inputs.size() == 3);
  }
  for (const std::string alibi : {"bias = alibi", "alibi = true"}) {
    const Built plain(head + "attention(q, k, v, heads = 8, kv_heads = 2, " + alibi +
                      ") + attention(q, k, v, heads = 8, kv_heads = 2, bias = t)" + tail);
    CHECK(find(plain.program, OpKind::attention).alibi);
  }
}

TEST_CASE("multi-head latent attention joins a rotary key to each head", "[elaborate]") {
  const std::string text = ops(around(
      "linear(linear(concat(linear(x, 32, split = column, units = 4), rope(linear(x, 8)), groups "
      "= 4), 64, split = row), 64)"));
  CHECK(text.find("2 linear (0) -> 2 [seq x 8 sp] linear:64x8\n") != std::string::npos);
  CHECK(text.find("concat (1 3) -> 4 [seq x 64 / 4]\n") != std::string::npos);
}

TEST_CASE("mamba2's weights", "[elaborate]") {
  const Built built(
      around("x + mamba2(x, heads = 8, head_dim = 16, state = 32, groups = 2, conv = 4)"));
  const Op& op = find(built.program, OpKind::mamba2);
  std::string text;
  for (const WeightId id : op.weights) {
    const Weight& w = built.program.weights[id];
    text += fmt::format("{} {}x{} ", w.name, w.rows, w.cols);
  }
  CHECK(text ==
        "in_proj 64x392 conv 4x256 conv 1x256 dt_bias 1x8 A 1x8 D 1x8 norm 1x128 "
        "out_proj 128x64 ");
}

TEST_CASE("segments: layers, what stands beside them, what crosses", "[elaborate]") {
  const Built built(
      "model m {\n"
      "  e = embedding(100, 64)\n"
      "  x = e\n"
      "  repeat 3 { x = x + rmsnorm(e) }\n"
      "  x = layernorm(x)\n"
      "  repeat 2 { x = relu(x) }\n"
      "  loss = cross_entropy(linear(x, 100, split = column))\n"
      "}\n");
  const Program& p = built.program;
  std::string text;
  for (const Segment& s : p.segments)
    text += fmt::format("{}{} class {} ops {}+{} in {} carried {}\n",
                        s.is_layer ? "layer " : "root ", s.layer, s.layer_class, s.first_op,
                        s.op_count, fmt::join(s.inputs, " "), fmt::join(s.carried, " "));
  CHECK(text ==
        "root 0 class 0 ops 0+1 in  carried 0\n"
        "layer 0 class 0 ops 1+2 in 0 carried 0 2\n"
        "layer 1 class 1 ops 3+2 in 0 2 carried 0 4\n"
        "layer 2 class 1 ops 5+2 in 0 4 carried 6\n"
        "root 2 class 0 ops 7+1 in 6 carried 7\n"
        "layer 3 class 2 ops 8+1 in 7 carried 8\n"
        "layer 4 class 2 ops 9+1 in 8 carried 9\n"
        "root 4 class 0 ops 10+2 in 9 carried \n");
  CHECK(p.layer_count == 5);
  CHECK(p.class_count == 3);
  CHECK(p.class_first_segment == std::vector<std::uint32_t>{1, 2, 5});
}

TEST_CASE("what stands beside an inner repeat joins the layer before, or the first",
          "[elaborate]") {
  const Built built(
      "model m {\n"
      "  x = embedding(100, 64)\n"
      "  repeat 2 {\n"
      "    x = rmsnorm(x)\n"
      "    repeat 2 { x = relu(x) }\n"
      "    x = tanh(x)\n"
      "  }\n"
      "  loss = cross_entropy(linear(x, 100, split = column))\n"
      "}\n");
  std::string text;
  for (const Segment& s : built.program.segments)
    text += fmt::format("{}{}+{} ", s.is_layer ? "L" : "R", s.first_op, s.op_count);
  // embedding | norm relu | relu tanh norm | relu | relu tanh | head, loss
  CHECK(text == "R0+1 L1+2 L3+3 L6+1 L7+2 R9+2 ");
}

TEST_CASE("names: carried to the next turn, or of the turn; turns count from 0", "[elaborate]") {
  const Built built(
      "model m {\n"
      "  x = embedding(100, 64)\n"
      "  n = 1\n"
      "  repeat 3 as i {\n"
      "    n = n + i\n"
      "    y = if(n == 4, relu(x), if(mod(i, 2) == 0, tanh(x), gelu(x)))\n"
      "    x = y\n"
      "  }\n"
      "  loss = cross_entropy(linear(x, 100, split = column))\n"
      "}\n");
  CHECK(built.program.ops[1].kind == OpKind::tanh);
  CHECK(built.program.ops[2].kind == OpKind::gelu);
  CHECK(built.program.ops[3].kind == OpKind::relu);
}

TEST_CASE("parameters: defaults after overrides, words, numbers by name", "[elaborate]") {
  const Built built(
      "model base {\n"
      "  param hidden, heads = hidden / 16\n"
      "  param act in {relu, gelu} = relu, width2 = 2 * hidden\n"
      "  param pattern = [a, b]\n"
      "  x = embedding(100, hidden)\n"
      "  repeat len(pattern) as i { x = if(pattern[i] == a, relu(x), if(act == gelu, gelu(x), "
      "tanh(x))) }\n"
      "  loss = cross_entropy(linear(x, width2, split = column))\n"
      "}\n"
      "model m = base { hidden = 64  act = gelu  pattern = [b, a, a] }\n");
  CHECK(built.program.params ==
        std::map<std::string, Rational>{{"hidden", 64}, {"heads", 4}, {"width2", 128}});
  CHECK(built.program.layer_count == 3);
  CHECK(built.program.ops[1].kind == OpKind::gelu);
  CHECK(built.program.ops[2].kind == OpKind::relu);
}

TEST_CASE("blocks: defaults, names, reassignment, blocks in blocks, repeats", "[elaborate]") {
  const Built built(
      "block twice(x, f = width(x), act = relu) {\n"
      "  h = linear(x, f)\n"
      "  h = if(act == relu, relu(h), none)\n"
      "  return linear(h, width(x))\n"
      "}\n"
      "block deep(x, n, act) { repeat n { x = twice(x, act = act, f = 2 * width(x)) } return x }\n"
      "model m {\n"
      "  x = embedding(100, 64)\n"
      "  x = deep(x, 3, relu)\n"
      "  loss = cross_entropy(linear(x, 100, split = column))\n"
      "}\n");
  CHECK(built.program.layer_count == 3);
  CHECK(built.program.class_count == 1);
  CHECK(built.program.blocks == std::vector<std::string>{"", "deep", "deep.twice"});
  CHECK(built.program.blocks[built.program.weights[1].block] == "deep.twice");
}

TEST_CASE("glu is recognised on values: where the activation is read once", "[elaborate]") {
  const std::string once = "linear(linear(x, 32) * silu(linear(x, 32)), 64)";
  const Built built(around(once));
  const Op& glu = find(built.program, OpKind::glu);
  CHECK(glu.activation == OpKind::silu);
  CHECK(built.program.ops.size() == 7);  // no silu is left
  // inputs: what silu read, then the other factor
  CHECK(built.program.values[glu.inputs[0]].producer == 2);
  CHECK(built.program.values[glu.inputs[1]].producer == 1);
  const std::string twice =
      ops("block f(x) { g = gelu(linear(x, 64)) return g * x + g }\n" + around("f(x)"));
  INFO(twice);
  CHECK(twice.find("gelu (1) -> 2") != std::string::npos);
  CHECK(twice.find("mul (2 0) -> 3") != std::string::npos);
  CHECK(ops(around("relu(x) * x")).find(" mul ") != std::string::npos);
  CHECK(ops("block act(x) { return gelu(x) }\n" + around("act(x) * x")).find("glu (0 0)") !=
        std::string::npos);
}

TEST_CASE("shared weights", "[elaborate]") {
  const Built built(
      "model m {\n"
      "  x = embedding(100, 64)\n"
      "  repeat 1 { x = relu(x) }\n"
      "  loss = cross_entropy(linear(x, 100, split = column, tied = true, bias = true))\n"
      "}\n");
  CHECK(built.program.weights[1].tied_to == 0);
  CHECK(built.program.weights[1].role == Role::head);
  CHECK(built.program.weights[1].vocabulary);
  CHECK(built.program.parameter_count() == 100 * 64 + 100);

  const Built named(
      "model m {\n"
      "  param tied = true\n"
      "  e = embedding(100, 64, name = shared)\n"
      "  x = embedding(100, 64, tied = shared, seq = target)\n"
      "  y = embedding(50, 64)\n"
      "  loss = cross_entropy(linear(e, 100, split = column, tied = shared)) +\n"
      "    cross_entropy(linear(x, 100, split = column, name = h)) +\n"
      "    cross_entropy(linear(x, 100, split = column, tied = h)) + cross_entropy(linear(y, 50))\n"
      "}\n");
  CHECK(named.program.parameter_count() == 100 * 64 + 50 * 64 + 64 * 100 + 64 * 50);
}

TEST_CASE("heads by name or by where they lead", "[elaborate]") {
  const Built built(
      "model m {\n"
      "  x = embedding(100, 64)\n"
      "  loss = cross_entropy(softcap(linear(x, 100, split = column), 30)) +\n"
      "    cross_entropy(linear(relu(linear(x, 64, name = head)), 64, split = column))\n"
      "}\n");
  std::string roles;
  for (const Weight& w : built.program.weights) roles += std::string(name(w.role)) + " ";
  CHECK(roles == "embedding head head head ");
}

TEST_CASE("further inputs: images, a second sequence", "[elaborate]") {
  CHECK(ops("model m {\n"
            "  p = linear(input(4 * 16, 12), 64)\n"
            "  p = p + learned_positions(p, 65)\n"
            "  x = merge(embedding(100, 64), p)\n"
            "  y = embedding(100, 64, seq = target)\n"
            "  q = linear(y, 64, split = column)\n"
            "  k = linear(x, 64, split = column)\n"
            "  y = y + linear(attention(q, k, k, heads = 4), 64, split = row)\n"
            "  loss = cross_entropy(linear(y, 100, split = column))\n"
            "}\n") ==
        "0 input () -> 0 [64 x 12 sp]\n"
        "1 linear (0) -> 1 [64 x 64 sp] linear:12x64\n"
        "2 learned_positions () -> 2 [64 x 64 sp] embedding:65x64\n"
        "3 add (1 2) -> 3 [64 x 64 sp]\n"
        "4 embedding () -> 4 [seq x 64 sp] embedding:100x64r\n"
        "5 merge (4 3) -> 5 [seq x 64 sp]\n"
        "6 embedding () -> 6 [target x 64 sp] embedding:100x64r\n"
        "7 linear (6) -> 7 [target x 64 / 4] linear:64x64c\n"
        "8 linear (5) -> 8 [seq x 64 / 4] linear:64x64c\n"
        "9 attention (7 8 8) -> 9 [target x 64 / 4]\n"
        "10 linear (9) -> 10 [target x 64 sp] linear:64x64r\n"
        "11 add (6 10) -> 11 [target x 64 sp]\n"
        "12 linear (11) -> 12 [target x 100 /] head:64x100c\n"
        "13 cross_entropy (12)\n");
}

TEST_CASE("dropout: of the job unless a share is given, nothing at 0", "[elaborate]") {
  const Built built(around("dropout(x) + dropout(x, 0.1) + dropout(x, p = 0)"));
  std::vector<double> shares;
  for (const Op& op : built.program.ops)
    if (op.kind == OpKind::dropout) shares.push_back(op.p);
  CHECK(shares == std::vector<double>{-1, 0.1});
}

TEST_CASE("items of models and of the blocks they call are gathered once", "[elaborate]") {
  const Built built(
      "block f(x) { item \"a\" { bytes = 1 B } return relu(x) }\n"
      "block g(x) { item \"c\" { bytes = 1 B } return relu(x) }\n"
      "model m {\n"
      "  x = embedding(100, 64)\n"
      "  item \"b\" { bytes = 1 B }\n"
      "  repeat 2 { x = f(x) }\n"
      "  loss = cross_entropy(linear(x, 100))\n"
      "}\n");
  std::string labels;
  for (const ast::Entry* item : built.models.items) labels += item->label + " ";
  CHECK(labels == "b a ");
}
