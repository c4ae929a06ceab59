// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <map>

#include "lang/behaviour_scope.hpp"
#include "lang/elaborate.hpp"
#include "lang/ops/rule.hpp"
#include "lang/parse.hpp"

/// Which values the rule of each op names: asked of the rules themselves, on a small model that has
/// every op once.
namespace plimsoll {

namespace {

constexpr const char* kEveryOp = R"(
model every_op {
  x = dropout(embedding(16, 8), 0.5)
  x = merge(x, input(4, 8))
  x = x + learned_positions(x, 4)
  t = relative_bias(2, 4)
  repeat 1 {
    n = rmsnorm(layernorm(x))
    q = rope(linear(n, 8, split = column, units = 2, bias = true))
    k = linear(n, 4, split = column, units = 1)
    v = linear(n, 4, split = column, units = 1)
    a = attention(q, k, v, heads = 2, kv_heads = 1, causal = true)
    b = attention(q, q, q, heads = 2, kv_heads = 2, bias = t)
    x = x + linear(a + b, 8, split = row)
    f = linear(x, 8, split = column)
    f = gelu(f) + relu(f) + squared_relu(f) + tanh(f) + silu(f)
    f = f + silu(linear(x, 8, split = column)) * linear(x, 8, split = column)
    x = x + linear(f, 8, split = row)
    x = softcap(x * n, 30)
    x = linear(concat(x, n), 8)
    x = x + experts(x, 4, 2, capacity = 1.5, router_bias = true) { y => linear(y, 8) }
    x = x + mamba2(x, heads = 2, head_dim = 4, state = 2, groups = 1, conv = 2)
  }
  loss = cross_entropy(linear(x, 16, split = column))
}
)";

using ValuesByOp = std::map<std::string, std::vector<std::string>, std::less<>>;

ValuesByOp ask_the_rules() {
  Sources sources;
  Diagnostics diags;
  const std::uint32_t number = sources.add("every_op", kEveryOp);
  const ast::File file = parse(sources, number, diags);
  ModelSource source;
  const BlockTable none;
  source.sees = &none;
  for (const ast::Entry& entry : file.declarations.at(0).entries) source.entries.push_back(&entry);
  ExprPool pool;
  const std::optional<Program> program = elaborate(source, pool, diags);
  if (!program) throw InternalError(diags.render(sources, false));
  const ops::Shapes shapes(*program, pool, Rational(1), pool.constant(1));
  ValuesByOp result;
  for (const char* attention : {"flash", "unfused"})
    for (const bool dropout : {true, false})
      for (const Op& op : program->ops) {
        ops::Variant variant;
        variant.attention = attention;
        variant.dropout = variant.attention_dropout = dropout;
        std::vector<std::string>& names = result[std::string(name(op.kind))];
        for (const ops::NamedValue& value : ops::rule(shapes, op, variant).values)
          if (std::find(names.begin(), names.end(), value.name) == names.end())
            names.push_back(value.name);
      }
  return result;
}

}  // namespace

const std::vector<std::string>& op_values(std::string_view op) {
  static const ValuesByOp kValues = ask_the_rules();
  static const std::vector<std::string> kNotKnown;
  const auto at = kValues.find(op);
  return at != kValues.end() ? at->second : kNotKnown;
}

}  // namespace plimsoll
