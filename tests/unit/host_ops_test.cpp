// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Every op's backward, from nothing but what its rule calls sufficient, against finite differences
// in double.

#include <fmt/format.h>

#include "runtime/host/kernels.hpp"
#include "tests/catch.hpp"
#include "tests/unit/host_chain.hpp"

using namespace plimsoll;
using testing::HostChain;

namespace {

constexpr double kTolerance = 1e-5;  // of the gradient's norm

/// Each op's each sufficient set in turn, the other ops with their first.
void check(ProgramBuilder& b, const ops::Variant& variant = {},
           const std::function<void(HostChain&)>& prepare = {}) {
  HostChain chain(b, variant);
  if (prepare) prepare(chain);
  const auto expected = chain.differences();
  int compared = 0;
  for (OpId o = 0; o < chain.op_count(); ++o)
    for (std::size_t set = 0; set < chain.rule(o).sufficient.size(); ++set) {
      const auto found = chain.gradients({{o, set}});
      REQUIRE(found.size() == expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        std::vector<double> difference = found[i];
        for (std::size_t k = 0; k < difference.size(); ++k) difference[k] -= expected[i][k];
        std::string names;
        for (const auto& n : chain.rule(o).sufficient[set]) names += n + " ";
        INFO("op " << name(b.program.ops[o].kind) << ", saved: " << names << ", gradient " << i);
        CHECK(HostChain::norm(difference) <= kTolerance * HostChain::norm(expected[i]) + 1e-10);
        ++compared;
      }
    }
  CHECK(compared > 0);
}

ProgramBuilder builder() {
  static std::vector<std::unique_ptr<ExprPool>> pools;
  pools.push_back(std::make_unique<ExprPool>());
  return ProgramBuilder(*pools.back());
}

/// Attention of a query, a key and a value that come from outside.
ProgramBuilder attention(std::int64_t heads, std::int64_t kv_heads, std::int64_t qk, std::int64_t v,
                         const std::function<void(ProgramBuilder&, Op&)>& change = {}) {
  ProgramBuilder b = builder();
  const ValueId q = b.value(heads * qk, Split::column, heads);
  const ValueId k = b.value(kv_heads * qk, Split::column, kv_heads);
  const ValueId val = b.value(kv_heads * v, Split::column, kv_heads);
  b.attention(q, k, val, heads, kv_heads);
  Op& op = b.program.ops.back();
  if (change) change(b, op);
  return b;
}

void check_attention(ProgramBuilder b) {
  for (const bool flash : {true, false}) {
    ops::Variant variant;
    variant.attention = flash ? "flash" : "unfused";
    check(b, variant);
    if (flash) continue;
    variant.attention_dropout = true;
    check(b, variant);
  }
}

}  // namespace

TEST_CASE("host: linear, with and without a bias", "[host]") {
  ProgramBuilder b = builder();
  b.linear(b.value(5), 7, Split::column, "q");
  b.program.ops.back().weights.push_back(b.weight("", Role::bias, 1, 7, Split::column));
  check(b);
  ProgramBuilder plain = builder();
  plain.linear(plain.value(5), 3, Split::row, "o");
  check(plain);
}

TEST_CASE("host: norms from input, output or what is normalized", "[host]") {
  for (const OpKind kind : {OpKind::rmsnorm, OpKind::layernorm})
    for (const std::int64_t groups : {1, 2})
      for (const bool plus_one : {false, true}) {
        ProgramBuilder b = builder();
        b.unary(kind, b.value(8), groups);
        b.program.ops.back().plus_one = plus_one;
        if (kind == OpKind::layernorm)
          b.program.ops.back().weights.push_back(
              b.weight("", Role::bias, 1, 8 / groups, Split::none));
        check(b);
      }
}

TEST_CASE("host: element by element", "[host]") {
  for (const OpKind kind : {OpKind::gelu, OpKind::relu, OpKind::squared_relu, OpKind::silu,
                            OpKind::tanh, OpKind::softcap}) {
    ProgramBuilder b = builder();
    b.unary(kind, b.value(5));
    b.program.ops.back().cap = Rational::fraction(3, 2);
    check(b);
  }
  for (const OpKind kind : {OpKind::add, OpKind::mul, OpKind::glu}) {
    ProgramBuilder b = builder();
    const ValueId x = b.value(4), y = b.value(4);
    b.binary(kind, x, y);
    check(b);
  }
  ProgramBuilder gelu = builder();
  const ValueId x = gelu.value(4), y = gelu.value(4);
  gelu.binary(OpKind::glu, x, y);
  gelu.program.ops.back().activation = OpKind::gelu;
  check(gelu);
}

TEST_CASE("host: glu from its kept activation too", "[host]") {
  ProgramBuilder b = builder();
  const ValueId x = b.value(4), y = b.value(4);
  b.binary(OpKind::glu, x, y);
  check(b, {}, [](HostChain& chain) { chain.also_saved = {"activated"}; });
}

TEST_CASE("host: norms with statistics at hand", "[host]") {
  for (const OpKind kind : {OpKind::rmsnorm, OpKind::layernorm}) {
    ProgramBuilder b = builder();
    b.unary(kind, b.value(8));
    check(b, {}, [](HostChain& chain) { chain.also_saved = {"stats"}; });
  }
}

TEST_CASE("host: dropout", "[host]") {
  ProgramBuilder b = builder();
  b.unary(OpKind::dropout, b.value(40));
  ops::Variant variant;
  variant.dropout = true;
  check(b, variant);
  HostChain chain(b, variant);
  chain.objective();
  const auto gradient = chain.gradients({}).front();
  const auto dropped = std::count(gradient.begin(), gradient.end(), 0.0);
  CHECK(dropped > 0.15 * static_cast<double>(gradient.size()));  // 30 % of 480
  CHECK(dropped < 0.45 * static_cast<double>(gradient.size()));
}

TEST_CASE("host: rope turns heads or their last elements", "[host]") {
  for (const std::int64_t last : {0, 2}) {
    ProgramBuilder b = builder();
    b.unary(OpKind::rope, b.value(12, Split::column, 3));
    b.program.ops.back().last = last;
    check(b);
  }
}

TEST_CASE("host: rope keeps lengths and depends on distance alone", "[host]") {
  std::vector<double> q = {1, 2, 3, 4}, k = {-1, 0.5, 2, 1}, a(4), b(4);
  const auto dot = [&](std::int64_t i, std::int64_t j) {
    runtime::host::rope<double>(q.data(), a.data(), {i}, 1, 4, 4, false);
    runtime::host::rope<double>(k.data(), b.data(), {j}, 1, 4, 4, false);
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3];
  };
  CHECK(dot(3, 1) == Approx(dot(9, 7)));
  CHECK(dot(3, 1) != Approx(dot(3, 2)));
  CHECK(HostChain::norm(a) == Approx(HostChain::norm(q)));
}

TEST_CASE("host: concat once, and to each group", "[host]") {
  ProgramBuilder once = builder();
  Op op;
  op.kind = OpKind::concat;
  op.inputs = {once.value(4), once.value(3)};
  once.op(op, 7, Split::none);
  check(once);
  ProgramBuilder grouped = builder();
  op.inputs = {grouped.value(4, Split::column, 2), grouped.value(3)};
  op.groups = 2;
  grouped.op(op, 10, Split::column, 2);
  check(grouped);
  ProgramBuilder alike = builder();
  op.inputs = {alike.value(4, Split::column, 2), alike.value(6, Split::column, 2)};
  alike.op(op, 10, Split::column, 2);
  check(alike);
}

TEST_CASE("host: embedding and learned positions", "[host]") {
  ProgramBuilder b = builder();
  const ValueId x = b.embedding(11, 4);
  Op op;
  op.kind = OpKind::learned_positions;
  op.weights = {b.weight("positions", Role::embedding, 9, 4, Split::none)};
  const ValueId p = b.op(op, 4, Split::none);
  b.binary(OpKind::add, x, p);
  check(b);
}

TEST_CASE("host: attention: causal, grouped, unlike widths", "[host]") {
  check_attention(attention(4, 2, 3, 3));
  check_attention(attention(2, 1, 3, 5));
  check_attention(attention(2, 2, 2, 3, [](auto&, Op& op) { op.causal = false; }));
}

TEST_CASE("host: attention: window, chunk, softcap, alibi, sinks", "[host]") {
  check_attention(attention(2, 1, 3, 3, [](auto&, Op& op) { op.window = 2; }));
  check_attention(attention(2, 1, 3, 3, [](auto&, Op& op) { op.chunk = 3; }));
  check_attention(attention(2, 1, 3, 3, [](auto&, Op& op) {
    op.softcap = true;
    op.cap = 2;
  }));
  check_attention(attention(4, 2, 3, 3, [](auto&, Op& op) { op.alibi = true; }));
  check_attention(attention(2, 1, 3, 3, [](ProgramBuilder& b, Op& op) {
    op.sinks = true;
    op.weights = {b.weight("sinks", Role::other, 1, 2, Split::column, 2)};
  }));
}

TEST_CASE("host: cross-entropy, padding left out", "[host]") {
  ProgramBuilder b = builder();
  b.cross_entropy(b.linear(b.value(4), 9, Split::column, "head"), 9);
  check(b);
}

namespace {

/// Router, gated experts and their sum.
ProgramBuilder mixture(bool sigmoid, bool bias) {
  ProgramBuilder b = builder();
  const ValueId x = b.value(4);
  Op op;
  op.kind = OpKind::experts;
  op.inputs = {x};
  op.count = 3;
  op.top_k = 2;
  op.sigmoid = sigmoid;
  op.router_bias = bias;
  op.weights = {b.weight("router", Role::router, 4, 3, Split::none)};
  if (bias) op.weights.push_back(b.weight("router", Role::router, 1, 3, Split::none));
  const auto experts = static_cast<OpId>(b.program.ops.size());
  const ValueId t = b.op(op, 4, Split::none);
  b.program.values[t].experts = experts;
  const auto inside = [&](ValueId v) {
    b.program.ops.back().experts = experts;
    return v;
  };
  const ValueId gate = inside(b.linear(t, 5, Split::column, "gate"));
  const ValueId up = inside(b.linear(t, 5, Split::column, "up"));
  const ValueId both = inside(b.binary(OpKind::glu, gate, up));
  const ValueId down = inside(b.linear(both, 4, Split::row, "down"));
  if (bias) {
    b.program.ops.back().weights.push_back(b.weight("down", Role::bias, 1, 4, Split::none));
    b.program.weights.back().experts = experts;
    b.program.weights.back().copies = 3;
  }
  Op combine;
  combine.kind = OpKind::combine;
  combine.inputs = {down};
  const ValueId y = b.op(combine, 4, Split::none);
  b.program.values[y].experts = kNone;
  b.binary(OpKind::add, x, y);
  return b;
}

}  // namespace

TEST_CASE("host: experts, from each thing that gives the routing back", "[host]") {
  for (const bool sigmoid : {false, true})
    for (const bool bias : {false, true})
      for (const bool balanced : {true, false}) {
        ProgramBuilder b = mixture(sigmoid, bias);
        check(b, {}, [&](HostChain& chain) { chain.facts.balanced = balanced; });
      }
}

TEST_CASE("host: mamba2 from either set", "[host]") {
  for (const std::int64_t groups : {1, 2}) {
    ProgramBuilder b = builder();
    const ValueId x = b.value(5);
    Op op;
    op.kind = OpKind::mamba2;
    op.inputs = {x};
    op.heads = 4;
    op.head_dim = 2;
    op.state = 3;
    op.groups = groups;
    op.conv = 3;
    const std::int64_t inner = 8, both = 2 * groups * 3;
    op.weights = {b.weight("in_proj", Role::linear, 5, 2 * inner + both + 4, Split::column, groups),
                  b.weight("conv", Role::other, 3, inner + both, Split::column, groups),
                  b.weight("conv", Role::bias, 1, inner + both, Split::column, groups),
                  b.weight("dt_bias", Role::bias, 1, 4, Split::column, groups),
                  b.weight("A", Role::other, 1, 4, Split::column, groups),
                  b.weight("D", Role::other, 1, 4, Split::column, groups),
                  b.weight("norm", Role::norm, 1, inner, Split::column, groups),
                  b.weight("out_proj", Role::linear, inner, 5, Split::row, groups)};
    b.op(op, 5, Split::none);
    check(b);
  }
}
