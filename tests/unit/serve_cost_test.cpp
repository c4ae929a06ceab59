// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/serve_cost.hpp"

#include <fstream>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/unit/program_builder.hpp"

using namespace plimsoll;

namespace {

struct Fixture {
  ExprPool pool;
  ProgramBuilder b{pool};
  Serving serving;
  Env env;

  explicit Fixture(std::int64_t layers, const Shape& s, std::int64_t tp = 1) {
    for (const Var v : {Var::tp, Var::pp, Var::cp, Var::ep, Var::etp, Var::dp, Var::mbs, Var::seq})
      env[v] = 1;
    env[Var::tp] = tp;
    serving.batch_tokens = 8192;
    ValueId x = b.embedding(s.vocab, s.hidden);
    for (std::int64_t i = 0; i < layers; ++i) {
      b.begin(true);
      x = llama_layer(b, x, s);
    }
    b.begin(false);
    b.program.segments.back().layer = b.program.layer_count - 1;
    b.cross_entropy(b.linear(b.unary(OpKind::rmsnorm, x), s.vocab, Split::column, "head"), s.vocab);
    serving.in_weight_bits.assign(b.program.weights.size(), true);
  }
  std::vector<std::uint32_t> stage(std::vector<std::int64_t> layers, std::int64_t at) const {
    return stage_segments(b.program, layers, at);
  }
  std::vector<std::uint32_t> all() const { return stage({b.program.layer_count}, 0); }
  ops::Shapes shapes() { return {b.program, pool, 1, pool.constant(1)}; }
  StageCache cache(std::int64_t block, std::int64_t context) {
    return stage_cache(shapes(), serving, block, context, all());
  }
  Rational eval(Expr e) const { return pool.eval(e, env); }
};

const Shape k70b{8192, 64, 8, 28672, 128256};

}  // namespace

TEST_CASE("the articles' cache figures for Llama 3 70B", "[serve]") {
  Fixture f(80, k70b);
  CHECK(f.eval(f.cache(1, 1).page) == Rational(327680));
  CHECK(f.eval(f.cache(16, 8192).sequence) == Rational(8192) * 327680);
  CHECK(f.eval(f.cache(16, 8193).sequence) == Rational(8208) * 327680);  // a page more
  f.serving.cache_bits = 8;
  CHECK(f.eval(f.cache(1, 1).page) == Rational(163840));
  f.env[Var::tp] = 4;
  CHECK(f.eval(f.cache(1, 1).page) == Rational(163840 / 4));
  f.env[Var::tp] = 32;  // eight heads: each rank holds one
  CHECK(f.eval(f.cache(1, 1).page) == Rational(163840 / 8));
  Fixture mha(80, {8192, 64, 64, 28672, 128256});
  CHECK(mha.eval(mha.cache(1, 1).page) == Rational(2621440));
}

TEST_CASE("windows and chunks bound a sequence's pages", "[serve]") {
  Fixture f(2, k70b);
  f.b.program.segments[1].layer_class = 1;
  for (Op& op : f.b.program.ops)
    if (op.kind == OpKind::attention && op.segment == 1) op.window = 1024;
  f.serving.batch_tokens = 2048;
  const StageCache cache = f.cache(16, 32768);
  CHECK_FALSE(cache.uniform);
  const std::int64_t page = 16 * 2 * 8 * 128 * 2;
  CHECK(f.eval(cache.page) == Rational(2 * page));
  // ceil((1023 + 2048) / 16) + 1 = 193 pages and 2048
  CHECK(f.eval(cache.sequence) == Rational((193 + 2048) * page));
  for (Op& op : f.b.program.ops)
    if (op.kind == OpKind::attention && op.segment == 1) op.window = 0, op.chunk = 8192;
  CHECK(f.eval(f.cache(16, 32768).sequence) == Rational(((8192 + 2048) / 16 + 2048) * page));
  CHECK(f.eval(f.cache(16, 4096).sequence) == Rational((256 + 256) * page));
}

TEST_CASE("weights in the job's dtype, over tp and pp, embedding and head apart", "[serve]") {
  Fixture f(80, k70b);
  const auto bytes = [&](const std::vector<std::uint32_t>& segments) {
    const ServedWeights w = served_weights(f.shapes(), f.serving, segments);
    return std::pair(f.eval(w.quantized), f.eval(w.plain));
  };
  const Rational params = Rational::integer(f.b.program.parameter_count());
  CHECK(params == Rational(70553706496));
  CHECK(bytes(f.all()) == std::pair(params * 2, Rational(0)));
  f.serving.weight_bits = 4;
  CHECK(bytes(f.all()).first == params / 2);  // 35.3e9: seeds.json, weights-int4-70b
  for (WeightId w = 0; w < f.b.program.weights.size(); ++w)
    f.serving.in_weight_bits[w] = f.b.program.weights[w].role == Role::linear;
  const std::int64_t table = 128256ll * 8192, norms = 161 * 8192;
  CHECK(bytes(f.all()) ==
        std::pair((params - 2 * table - norms) / 2, Rational(2 * (2 * table + norms))));
  f.serving.in_weight_bits.assign(f.b.program.weights.size(), true);
  Rational sum = 0;
  for (std::int64_t stage = 0; stage < 4; ++stage)
    sum += bytes(f.stage({19, 21, 21, 19}, stage)).first;
  CHECK(sum == params / 2);
  f.env[Var::tp] = 8;
  CHECK(bytes(f.all()).first == (params - norms) / 16 + Rational(norms) / 2);
}

TEST_CASE("tied weights are held once a stage", "[serve]") {
  Fixture f(4, {1024, 8, 8, 4096, 32000});
  for (Weight& w : f.b.program.weights)
    if (w.name == "head") w.tied_to = 0;
  const auto bytes = [&](std::vector<std::int64_t> layers, std::int64_t stage) {
    return f.eval(
        served_weights(f.shapes(), f.serving, f.stage(std::move(layers), stage)).quantized);
  };
  const Rational params = Rational::integer(f.b.program.parameter_count());
  CHECK(bytes({4}, 0) == params * 2);
  CHECK(bytes({2, 2}, 0) + bytes({2, 2}, 1) == params * 2 + Rational(2 * 1024 * 32000));
}

TEST_CASE("cache tokens of published rooms, within what their figures were rounded to", "[serve]") {
  std::ifstream file(PLIMSOLL_SOURCE_DIR "/tests/data/serving_room.csv");
  std::string line;
  std::getline(file, line);
  int rows = 0;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::vector<std::string> f;
    for (std::string field; std::getline(fields, field, ',');) f.push_back(field);
    const auto n = [&](std::size_t i) { return std::stoll(f.at(i)); };
    Fixture fixture(n(1), {n(2) * n(4), n(2), n(3), 1024, 1024}, n(5));
    const double token = fixture.eval(fixture.cache(1, 1).page).to_double();
    INFO(line);
    const double tokens = std::stod(f.at(6)) * 1024 * 1024 * 1024 / token;
    CHECK(tokens == Approx(static_cast<double>(n(7))).epsilon(0.002));
    ++rows;
  }
  CHECK(rows == 6);
}
