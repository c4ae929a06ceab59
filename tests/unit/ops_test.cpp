// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <functional>
#include <map>
#include <random>
#include <set>

#include "lang/ops/rule.hpp"
#include "tests/catch.hpp"
#include "tests/unit/program_builder.hpp"

using namespace plimsoll;
using ops::Rule;
using ops::Shapes;
using ops::Variant;

namespace {

Env layout(std::int64_t mbs, std::int64_t seq, std::int64_t tp = 1, bool sp = false) {
  Env env;
  for (const Var v : {Var::tp, Var::pp, Var::vpp, Var::cp, Var::ep, Var::etp, Var::dp, Var::mbs})
    env[v] = 1;
  env[Var::mbs] = mbs;
  env[Var::seq] = seq;
  env[Var::tp] = tp;
  env[Var::sp] = sp ? 1 : 0;
  return env;
}

const std::map<std::string, int> kBytes = {{"act", 2}, {"fp32", 4}, {"int8", 1}, {"int64", 8}};

const ops::NamedValue& named(const Rule& rule, const std::string& name) {
  for (const ops::NamedValue& value : rule.values)
    if (value.name == name) return value;
  FAIL("no value " << name);
  return rule.values[0];
}

using Saves = std::function<std::vector<std::string>(const Op&, const Rule&)>;

/// Bytes saved by the ops of one segment: a program's value once, however many ops save it; a name
/// may be followed by its dtype.
Rational saved(const ProgramBuilder& b, const Shapes& shapes, const Variant& variant,
               const Env& env, const Saves& saves, std::uint32_t segment = 1) {
  std::set<std::pair<ValueId, int>> seen;
  Rational total = 0;
  const Segment& s = b.program.segments[segment];
  for (OpId id = s.first_op; id < s.first_op + s.op_count; ++id) {
    const Op& op = b.program.ops[id];
    const Rule rule = ops::rule(shapes, op, variant);
    std::vector<std::string> names = saves(op, rule);
    names.insert(names.end(), rule.always.begin(), rule.always.end());
    for (const std::string& entry : names) {
      const auto colon = entry.find(':');
      const ops::NamedValue& value = named(rule, entry.substr(0, colon));
      const int bytes =
          kBytes.at(colon == std::string::npos ? value.dtype : entry.substr(colon + 1));
      if (value.ids.empty()) total += b.pool.eval(value.elements, env) * bytes;
      for (const ValueId v : value.ids)
        if (seen.insert({v, bytes}).second) total += b.pool.eval(shapes.elements(v), env) * bytes;
    }
  }
  return total;
}

std::vector<std::string> minimal(const Op&, const Rule& rule) { return rule.minimal; }

struct Fixture {
  ExprPool pool;
  ProgramBuilder b{pool};
  Variant variant;
  ValueId x = kNone;
  std::optional<Shapes> shapes_;

  void llama(const Shape& s) {
    x = b.embedding(s.vocab, s.hidden);
    b.begin(true);
    x = llama_layer(b, x, s);
    b.begin(false);
    b.cross_entropy(b.linear(b.unary(OpKind::rmsnorm, x), s.vocab, Split::column, "head"), s.vocab);
  }
  const Shapes& shapes(Rational imbalance = 1, Rational multiple = 1) {
    shapes_.emplace(b.program, pool, imbalance, pool.constant(multiple));
    return *shapes_;
  }
  const Op& find(OpKind kind, const std::string& name = "") const {
    for (const Op& op : b.program.ops)
      if (op.kind == kind && (name.empty() || op.name == name)) return op;
    FAIL("no op " << name);
    return b.program.ops[0];
  }
  Rational eval(Expr e, const Env& env) const { return pool.eval(e, env); }
};

const Shape k70b{8192, 64, 8, 28672, 128256};
const Shape k8b{4096, 32, 8, 14336, 128256};

}  // namespace

TEST_CASE("the GPT block saves s*b*h*(34 + 5*a*s/h) bytes", "[ops]") {
  // Korthikanti et al. 2022: attention 11, MLP 19, norms 4, scores 5; article's block for h = 4096.
  for (const OpKind activation : {OpKind::gelu, OpKind::relu})
    for (const std::int64_t mbs : {1, 4}) {
      Fixture f;
      const std::int64_t h = 4096, a = 32, s = 2048;
      const ValueId x = f.b.embedding(50257, h);
      f.b.begin(true);
      gpt_layer(f.b, x, h, a, activation);
      f.variant.attention = "unfused";
      f.variant.dropout = f.variant.attention_dropout = true;
      const Rational bytes = saved(f.b, f.shapes(), f.variant, layout(mbs, s), minimal);
      CHECK(bytes == Rational(mbs * (34 * s * h + 5 * a * s * s)));
      if (mbs == 1) CHECK(bytes == Rational(956301312));
      // Tensor and sequence parallel: all of it divided (ibid., table 2).
      CHECK(saved(f.b, f.shapes(), f.variant, layout(mbs, s, 8, true), minimal) == bytes / 8);
      // Without sequence parallelism 10 of the 34 are whole on every rank.
      CHECK(saved(f.b, f.shapes(), f.variant, layout(mbs, s, 8, false), minimal) ==
            Rational(mbs) * (Rational(10 * s * h) + Rational(24 * s * h + 5 * a * s * s) / 8));
    }
}

TEST_CASE("MEGATRON.md's first worked layer: 1,073.03 MiB", "[ops]") {
  Fixture f;
  f.llama(k70b);
  const Saves megatron = [](const Op& op, const Rule&) -> std::vector<std::string> {
    switch (op.kind) {
      case OpKind::rmsnorm:
        return {"input", "stats"};
      case OpKind::linear:
      case OpKind::glu:
        return {"input"};
      case OpKind::attention:
        return {"q", "k", "v", "output", "lse"};
      default:
        return {};
    }
  };
  const Rational mib = 1024 * 1024;
  const Rational bytes = saved(f.b, f.shapes(), f.variant, layout(1, 4096), megatron) / mib;
  // 64 x + 64 norm + 64 + 8 + 8 q, k, v + 1 lse + 64 o + 64 + 64 + 448 + 224 + two norms'
  // statistics
  CHECK(bytes == Rational(64 + 64 + 64 + 8 + 8 + 1 + 64 + 64 + 64 + 448 + 224) +
                     Rational::fraction(2 * 4 * 4096, 1024 * 1024));
}

TEST_CASE("FSDP.md R1: an eager torch block saves 16h + 8q + 4n + 8f bytes a token", "[ops]") {
  Fixture f;
  f.llama(k70b);
  const Saves eager = [](const Op& op, const Rule&) -> std::vector<std::string> {
    switch (op.kind) {
      case OpKind::rmsnorm:
        return {"input:fp32", "normalized"};
      case OpKind::linear:
        return {"input"};
      case OpKind::glu:
        return {"input", "activated"};
      case OpKind::attention:
        return {"q", "k_expanded", "v_expanded", "output", "lse"};
      default:
        return {};
    }
  };
  const std::int64_t h = 8192, q = 8192, n = 64, ffn = 28672, tokens = 3 * 512;
  CHECK(saved(f.b, f.shapes(), f.variant, layout(3, 512), eager) ==
        Rational(tokens * (16 * h + 8 * q + 4 * n + 8 * ffn)));
}

TEST_CASE("what suffices for backward", "[ops]") {
  Fixture f;
  f.llama(k8b);
  const auto sets = [&](OpKind kind) {
    std::set<std::set<std::string>> result;
    for (const auto& names : ops::rule(f.shapes(), f.find(kind), f.variant).sufficient)
      result.insert({names.begin(), names.end()});
    return result;
  };
  using Sets = std::set<std::set<std::string>>;
  CHECK(sets(OpKind::rmsnorm) == Sets{{"input"}, {"output", "stats"}, {"normalized", "stats"}});
  CHECK(sets(OpKind::linear) == Sets{{"input"}});
  CHECK(sets(OpKind::add) == Sets{{}});
  CHECK(sets(OpKind::attention) ==
        Sets{{"q", "k", "v", "output", "lse"}, {"q", "k_expanded", "v_expanded", "output", "lse"}});
  f.variant.attention = "unfused";
  CHECK(sets(OpKind::attention) ==
        Sets{{"q", "k", "v", "probs"}, {"q", "k_expanded", "v_expanded", "probs"}});
  f.variant.attention_dropout = true;
  CHECK(sets(OpKind::attention).count({"q", "k", "v", "probs", "mask"}) == 1);
  f.variant.trained_weights = false;
  CHECK(sets(OpKind::linear) == Sets{{}, {"input"}});
}

TEST_CASE("every set names values that exist, and the minimal one suffices", "[ops]") {
  Fixture f;
  f.llama(k8b);
  const ValueId y = f.b.unary(OpKind::softcap, f.b.unary(OpKind::relu, f.x));
  f.b.binary(OpKind::concat, f.b.unary(OpKind::tanh, y), f.b.unary(OpKind::dropout, y));
  for (const char* attention : {"flash", "cudnn", "unfused"})
    for (const bool on : {false, true})
      for (const Op& op : f.b.program.ops) {
        f.variant.attention = attention;
        f.variant.dropout = f.variant.attention_dropout = f.variant.trained_weights = on;
        const Rule rule = ops::rule(f.shapes(), op, f.variant);
        REQUIRE_FALSE(rule.sufficient.empty());
        CHECK(rule.sufficient.front() == rule.minimal);
        for (const auto& set : rule.sufficient)
          for (const std::string& name : set) named(rule, name);
      }
}

TEST_CASE("sequence parallelism's temporaries and collectives", "[ops]") {
  Fixture f;
  f.llama(k70b);
  const std::int64_t whole = 2 * 2 * 4096 * 8192;  // 2 B * T * h
  const Env sp = layout(2, 4096, 8, true), tp = layout(2, 4096, 8, false);
  const Env alone = layout(2, 4096, 1, true);
  const auto sum = [&](const std::vector<ops::Temporary>& list, const Env& env) {
    Rational total = 0;
    for (const auto& t : list) total += f.eval(t.bytes, env);
    return total;
  };
  for (const char* name : {"q", "k", "up"}) {
    const Rule column = ops::rule(f.shapes(), f.find(OpKind::linear, name), f.variant);
    CHECK(sum(column.forward_temporaries, sp) == Rational(whole));
    CHECK(sum(column.backward_temporaries, sp) == Rational(2 * whole));
    CHECK(sum(column.forward_temporaries, tp) == Rational(0));
    CHECK(sum(column.backward_temporaries, alone) == Rational(0));
  }
  const Rule row = ops::rule(f.shapes(), f.find(OpKind::linear, "down"), f.variant);
  CHECK(sum(row.forward_temporaries, sp) == Rational(whole));
  CHECK(sum(row.backward_temporaries, sp) == Rational(whole));
  CHECK(sum(row.forward_temporaries, tp) == Rational(0));

  // A layer: two gathers and two reduce-scatters forward, or two all-reduces; q, k, v share one.
  const auto count = [&](bool forward, const Env& env) {
    std::map<ops::CollectiveKind, int> result;
    const Segment& s = f.b.program.segments[1];
    for (OpId id = s.first_op; id < s.first_op + s.op_count; ++id) {
      const Rule rule = ops::rule(f.shapes(), f.b.program.ops[id], f.variant);
      for (const auto& c : forward ? rule.forward_collectives : rule.backward_collectives) {
        if (c.group != ops::Group::tp || f.eval(c.bytes, env).is_zero()) continue;
        CHECK(f.eval(c.bytes, env) == Rational(whole));
        ++result[c.kind];
      }
    }
    return result;
  };
  using Kind = ops::CollectiveKind;
  CHECK(count(true, sp) == std::map<Kind, int>{{Kind::all_gather, 2}, {Kind::reduce_scatter, 2}});
  CHECK(count(true, tp) == std::map<Kind, int>{{Kind::all_reduce, 2}});
  CHECK(count(false, sp) == std::map<Kind, int>{{Kind::all_gather, 4}, {Kind::reduce_scatter, 2}});
  CHECK(count(false, tp) == std::map<Kind, int>{{Kind::all_reduce, 2}});
}

TEST_CASE("arithmetic: two operations a parameter and token, causal attention by halves", "[ops]") {
  Fixture f;
  f.llama(k8b);
  Rational forward = 0, backward = 0, attention = 0;
  const Env env = layout(1, 8192);
  for (const Op& op : f.b.program.ops) {
    const Rule rule = ops::rule(f.shapes(), op, f.variant);
    forward += f.eval(rule.flops_forward, env);
    backward += f.eval(rule.flops_backward, env);
    attention += f.eval(rule.attention_flops, env);
  }
  const std::int64_t linears = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336;
  const std::int64_t head = 4096 * 128256;
  CHECK(attention == Rational(2) * 8192 * 8192 * 4096);  // 4 s^2 h / 2
  CHECK(forward - attention == Rational(2 * 8192) * (linears + head));
  CHECK(backward == forward * 2);

  Op windowed = f.find(OpKind::attention);
  windowed.window = 1024;  // pairs w*s - w*w/2
  CHECK(f.eval(ops::rule(f.shapes(), windowed, f.variant).attention_flops, env) ==
        Rational(4 * 4096) * (1024 * 8192 - 1024 * 512));
  windowed.window = 100000;
  CHECK(f.eval(ops::rule(f.shapes(), windowed, f.variant).attention_flops, env) == attention);
  windowed.window = 0;
  windowed.chunk = 2048;
  CHECK(f.eval(ops::rule(f.shapes(), windowed, f.variant).attention_flops, env) == attention / 4);
}

TEST_CASE("a layer's HBM traffic is TIME.md's", "[ops]") {
  Fixture f;
  f.llama(k70b);
  const auto total = [&](const Env& env, bool forward) {
    Rational sum = 0;
    const Segment& s = f.b.program.segments[1];
    for (OpId id = s.first_op; id < s.first_op + s.op_count; ++id) {
      const Rule rule = ops::rule(f.shapes(), f.b.program.ops[id], f.variant);
      sum += f.eval(forward ? rule.bytes_forward : rule.bytes_backward, env);
    }
    return sum;
  };
  const std::int64_t m = 4096;
  const auto formula = [&](int t, int t_sp) {
    return Rational(20 * 8192 * m) / t_sp +
           (Rational::fraction(28, 10) * (64 + 16) * 128 * m + Rational(6) * 28672 * m) / t;
  };
  CHECK(total(layout(1, m), true) == formula(1, 1));
  CHECK(total(layout(1, m, 8, false), true) == formula(8, 1));
  CHECK(total(layout(1, m, 8, true), true) == formula(8, 8));
  CHECK(total(layout(1, m, 8, true), false) == formula(8, 8) * Rational::fraction(7, 4));
}

TEST_CASE("caches: GQA, replicated heads, MLA", "[ops]") {
  Fixture f;
  f.llama(k70b);
  const auto cache = [&](std::int64_t tp) {
    return f.eval(ops::rule(f.shapes(), f.find(OpKind::attention), f.variant).cache_per_token,
                  layout(1, 8192, tp));
  };
  CHECK(cache(1) * 2 * 80 == Rational(327680));  // seeds.json: kv-70b-bf16
  CHECK(cache(4) == Rational(2 * 2 * 128));
  CHECK(cache(16) == Rational(2 * 128));  // one head, held twice
  Op mla = f.find(OpKind::attention);
  mla.cache = {f.b.value(512), f.b.value(64)};
  const Rule rule = ops::rule(f.shapes(), mla, f.variant);
  CHECK(f.eval(rule.cache_per_token, layout(1, 1, 8)) * 2 * 61 == Rational(70272));
}

TEST_CASE("experts: rows that are sent and received", "[ops]") {
  Fixture f;
  const std::int64_t h = 4096, ffn = 1536, count = 128, k = 8;
  const ValueId x = f.b.embedding(1000, h);
  f.b.begin(true);
  Op o;
  o.kind = OpKind::experts;
  o.inputs = {x};
  o.count = count;
  o.top_k = k;
  o.weights = {f.b.weight("router", Role::router, h, count, Split::none)};
  const ValueId t = f.b.op(o, h, Split::none);
  f.b.program.values[t].experts = f.b.at(t).producer;
  const ValueId g = f.b.linear(t, ffn, Split::column, "gate");
  const ValueId u = f.b.linear(t, ffn, Split::column, "up");
  const ValueId d = f.b.linear(f.b.binary(OpKind::glu, g, u), h, Split::row, "down");
  Op back;
  back.kind = OpKind::combine;
  back.inputs = {d};
  const ValueId y = f.b.op(back, h, Split::none);
  f.b.program.values[y].experts = kNone;

  Env env = layout(2, 4096, 4, true);
  env[Var::ep] = 8;
  env[Var::etp] = 2;
  const Shapes& shapes = f.shapes();
  const std::int64_t tokens = 2 * 4096 / 4;
  const Op& experts = f.b.program.ops[f.b.at(t).experts];
  CHECK(f.eval(shapes.permuted(experts), env) == Rational(tokens * k));
  CHECK(f.eval(shapes.routed(experts), env) == Rational(tokens * k * 2));
  CHECK(f.eval(shapes.elements(t), env) == Rational(tokens * k * 2 * h));
  Op padded = experts;
  padded.capacity = Rational::fraction(13, 10);
  const std::int64_t slots = (tokens * k * 13 / 10 + count - 1) / count;  // 166.4 an expert
  CHECK(f.eval(shapes.permuted(padded), env) == Rational(slots * count));
  CHECK(f.eval(shapes.routed(padded), env) == Rational(slots * count * 2));
  CHECK(f.eval(shapes.elements(g), env) == Rational(tokens * k * ffn));
  const Rule gate = ops::rule(shapes, f.find(OpKind::linear, "gate"), f.variant);
  CHECK(f.eval(gate.products[0].count, env) == Rational(16));
  CHECK(f.eval(gate.products[0].m, env) == Rational(tokens * k * 2 / 16));
  CHECK(f.eval(gate.flops_forward, env) == Rational(2 * tokens * k * h) * ffn);
  CHECK(gate.forward_temporaries.empty());
  CHECK(f.eval(shapes.weight_elements(f.find(OpKind::linear, "down").weights[0]), env) ==
        Rational(16 * h * ffn / 2));
  // Saved by Megatron (MEGATRON.md §4): dense router tensors 13 B, input of fc1, fc1, act.
  const Saves megatron = [](const Op& op, const Rule&) -> std::vector<std::string> {
    if (op.kind == OpKind::experts) return {"logits", "scores", "probs", "map"};
    if (op.kind == OpKind::combine) return {"probs"};
    return {"input"};
  };
  const std::int64_t rows = tokens * k * 2;
  CHECK(saved(f.b, shapes, f.variant, env, megatron) ==
        Rational(tokens * count * 13 + 2 * tokens * h +
                 rows * (2 * h + 2 * 2 * ffn / 2 + 2 * ffn / 2 + 4)));

  CHECK(f.eval(f.shapes(Rational::fraction(5, 4)).routed(experts), env) == Rational(rows * 5 / 4));
  Op capacity = experts;
  capacity.capacity =
      Rational::fraction(11, 10);  // ceil(1.1 * 16384 / 128) = 141 a rank and expert
  CHECK(f.eval(f.shapes().routed(capacity), env) == Rational(128 * 141 * 2));
}

TEST_CASE("Mamba-2: what is saved, its arithmetic and its state", "[ops]") {
  Fixture f;
  const ValueId x = f.b.embedding(1000, 4096);  // Nemotron-H 8B's mixer
  Op o;
  o.kind = OpKind::mamba2;
  o.inputs = {x};
  o.heads = 128;
  o.head_dim = 64;
  o.state = 128;
  o.groups = 8;
  o.conv = 4;
  f.b.op(o, 4096, Split::none);
  const Rule rule = ops::rule(f.shapes(), f.find(OpKind::mamba2), f.variant);
  const std::int64_t inner = 8192, mixed = 8192 + 2 * 8 * 128, s = 2048;
  const Env one = layout(1, s), eight = layout(1, s, 8, true);
  CHECK(f.eval(rule.cache_fixed, one) == Rational(inner * 128 + 3 * mixed));
  CHECK(f.eval(rule.cache_fixed, eight) == Rational(inner * 128 + 3 * mixed) / 8);
  CHECK(f.eval(named(rule, "projected").elements, one) == Rational(s * (inner + mixed + 128)));
  CHECK(f.eval(named(rule, "scanned").elements, eight) == Rational(s * inner / 8));
  CHECK(f.eval(named(rule, "states").elements, one) == Rational(s / 256 * inner * 128));
  const Rational products =
      Rational(2 * s) * 4096 * (inner + mixed + 128) + Rational(2 * s) * 4096 * inner;
  CHECK(f.eval(rule.flops_forward, one) ==
        products + Rational(s) * (256 * 8 * 128 + 256 * inner + 4 * 128 * inner + 8 * mixed));
}

TEST_CASE("attention to another sequence", "[ops]") {
  Fixture f;
  const ValueId x = f.b.embedding(1000, 512);
  const ValueId e = f.b.embedding(1000, 512);
  f.b.program.values[x].tokens = f.pool.variable(Var::target);
  const ValueId q = f.b.linear(x, 512, Split::column, "q", 8);
  const ValueId k = f.b.linear(e, 512, Split::column, "k", 8);
  const ValueId v = f.b.linear(e, 512, Split::column, "v", 8);
  f.b.program.values[q].tokens = f.pool.variable(Var::target);
  f.b.attention(q, k, v, 8, 8);
  f.b.program.ops.back().causal = false;
  f.variant.attention = "unfused";
  Env env = layout(3, 1024, 2);
  env[Var::target] = 256;
  const Rule rule = ops::rule(f.shapes(), f.find(OpKind::attention), f.variant);
  CHECK(f.eval(named(rule, "probs").elements, env) == Rational(3 * 4 * 256 * 1024));
  CHECK(f.eval(named(rule, "lse").elements, env) == Rational(3 * 4 * 256));
  CHECK(f.eval(rule.attention_flops, env) == Rational(3 * 4) * (2 * 128) * (256 * 1024));
  env[Var::cp] = 4;
  CHECK(f.eval(named(rule, "probs").elements, env) == Rational(3 * 4 * 256 * 1024 / 4));
}

TEST_CASE("vocabularies are padded, in weights and logits", "[ops]") {
  Fixture f;
  f.llama({4096, 32, 8, 14336, 50257});
  const Env env = layout(1, 1024, 8, true);
  f.shapes_.emplace(f.b.program, f.pool, 1,
                    f.pool.mul(f.pool.constant(128), f.pool.variable(Var::tp)));
  const Shapes& shapes = *f.shapes_;
  const Op& head = f.find(OpKind::linear, "head");
  CHECK(f.eval(shapes.weight_elements(head.weights[0]), env) == Rational(51200 / 8 * 4096));
  CHECK(f.eval(shapes.weight_elements(f.find(OpKind::embedding).weights[0]), env) ==
        Rational(51200 / 8 * 4096));
  CHECK(f.eval(shapes.elements(head.output), env) == Rational(1024 * 51200 / 8));
  CHECK(f.b.program.parameter_count() > 0);
}

TEST_CASE("ranks together hold each weight once, and units never split", "[ops][property]") {
  const unsigned seed = 20261129;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int i = 0; i < 500; ++i) {
    Fixture f;
    const std::int64_t tp = 1 << pick(0, 4), each = 2 * pick(1, 8);
    const std::int64_t kv = 1 << pick(0, 5), rows = 16 * pick(1, 9);
    const ValueId x = f.b.embedding(tp * pick(1, 50), rows);
    f.b.linear(x, kv * each, Split::column, "k", kv);
    f.b.linear(f.b.linear(x, tp * each, Split::column, "up"), rows, Split::row, "down");
    const Env env = layout(1, 16, tp);
    for (const Op& op : f.b.program.ops)
      for (const WeightId w : op.weights) {
        const Weight& weight = f.b.program.weights[w];
        const Rational held = f.eval(f.shapes().weight_elements(w), env);
        const std::int64_t times = weight.units == 0 ? tp : std::min(tp, kv);
        REQUIRE(held * times == Rational::integer(weight.numel()));
        if (weight.units != 0) REQUIRE((held / (rows * each)).is_integer());
      }
  }
}
