// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <random>

#include "lang/module.hpp"
#include "lang/ops/rule.hpp"
#include "tests/catch.hpp"

/// The op rules on every published model of the prelude: what all ranks do together is what one
/// alone would do.
using namespace plimsoll;
using ops::Rule;
using ops::Shapes;

namespace {

Env layout(std::int64_t seq, std::int64_t tp, std::int64_t ep, std::int64_t etp, std::int64_t cp) {
  Env env;
  for (const Var v : {Var::pp, Var::vpp, Var::dp, Var::shard, Var::mbs}) env[v] = 1;
  env[Var::mbs] = 2;
  env[Var::seq] = env[Var::target] = seq;
  env[Var::tp] = tp;
  env[Var::ep] = ep;
  env[Var::etp] = etp;
  env[Var::cp] = cp;
  env[Var::sp] = tp > 1 ? 1 : 0;
  return env;
}

/// Does every divided width of the model divide into whole units, none of them replicated?
bool divides(const Program& p, std::int64_t tp, std::int64_t ep, std::int64_t etp) {
  return std::all_of(p.weights.begin(), p.weights.end(), [&](const Weight& w) {
    const std::int64_t ranks = w.experts == kNone ? tp : etp;
    if (w.experts != kNone && w.copies % ep != 0) return false;
    if (w.split == Split::none) return true;
    const std::int64_t side = w.split == Split::row ? w.rows : w.cols;
    return (w.units > 0 ? w.units : side) % ranks == 0;
  });
}

/// Multiplications of the model's linears for one token: experts of which k of n are at work.
Rational linear_flops(const Program& p) {
  Rational sum = 0;
  for (const Op& op : p.ops) {
    if (op.kind != OpKind::linear && op.kind != OpKind::experts) continue;
    const Weight& w = p.weights[op.weights[0]];
    Rational work = Rational(2) * w.rows * w.cols;
    if (w.experts != kNone) work *= p.ops[w.experts].top_k;
    sum += work;
  }
  return sum;
}

}  // namespace

TEST_CASE("ranks share out the work and the weights of every model", "[ops][property]") {
  Diagnostics diags;
  const Module module = compile("empty.plan", "dtype mine { bits = 8 }\n", diags);
  REQUIRE_FALSE(diags.has_errors());
  const unsigned seed = 20261129;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto power = [&](int most) {
    return std::int64_t{1} << std::uniform_int_distribution<int>(0, most)(random);
  };
  int models = 0, layouts = 0;
  for (const std::string& name : module.names("model")) {
    const Program* program = module.program(name, diags);
    if (program == nullptr) {  // a template
      diags = Diagnostics();
      continue;
    }
    ++models;
    INFO(name);
    ExprPool& pool = module.pool();
    const Shapes shapes(*program, pool, 1, pool.constant(1));
    // Other matrices than linears', or other tokens than the text's.
    const bool plain = std::none_of(program->ops.begin(), program->ops.end(), [](const Op& op) {
      return op.kind == OpKind::mamba2 || op.kind == OpKind::input;
    });
    std::vector<Expr> flops, attention, values;
    for (const Op& op : program->ops) {
      const Rule rule = ops::rule(shapes, op, {});
      REQUIRE_FALSE(rule.sufficient.empty());
      flops.push_back(pool.sub(rule.flops_forward, rule.attention_flops));
      attention.push_back(rule.attention_flops);
      for (const ops::NamedValue& v : rule.values) values.push_back(v.elements);
    }
    std::vector<Expr> held;
    for (WeightId w = 0; w < program->weights.size(); ++w)
      held.push_back(shapes.weight_elements(w));
    const Expr work[] = {pool.sum(flops), pool.sum(attention), pool.sum(held)};
    const std::int64_t seq = 4096;
    const Rational alone = pool.eval(work[1], layout(seq, 1, 1, 1, 1));
    if (plain) {
      CHECK(pool.eval(work[0], layout(seq, 1, 1, 1, 1)) == linear_flops(*program) * 2 * seq);
    }
    for (int i = 0; i < 6; ++i) {
      const std::int64_t tp = power(3), etp = power(2), ep = power(3), cp = power(2);
      if (!divides(*program, tp, ep, etp)) continue;
      ++layouts;
      INFO("tp " << tp << " ep " << ep << " etp " << etp << " cp " << cp);
      const Env env = layout(seq, tp, ep, etp, cp);
      const Rational ranks = tp * cp;
      CHECK(pool.eval(work[0], env) * ranks == pool.eval(work[0], layout(seq, 1, 1, 1, 1)));
      CHECK(pool.eval(work[1], env) * ranks == alone);
      Tape tape(pool, values);
      tape.run(env);
      for (std::size_t k = 0; k < values.size(); ++k) {
        if (!tape.value(k).is_integer() || tape.value(k) < 0) FAIL(pool.str(values[k]));
      }
      Tape weights(pool, held);
      weights.run(env);
      for (WeightId w = 0; w < program->weights.size(); ++w) {
        const Weight& weight = program->weights[w];
        std::int64_t parts = weight.experts == kNone ? 1 : ep;
        if (weight.split != Split::none) parts *= weight.experts == kNone ? tp : etp;
        if (weights.value(w) * parts != Rational::integer(weight.numel())) FAIL(weight.name);
      }
    }
  }
  CHECK(models >= 80);
  CHECK(layouts > 200);
}
