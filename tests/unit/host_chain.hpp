// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lang/ops/rule.hpp"
#include "runtime/host/host_states.hpp"
#include "runtime/host/op_call.hpp"
#include "runtime/host/random.hpp"
#include "tests/unit/program_builder.hpp"

namespace plimsoll::testing {

using runtime::host::OpCall;

/// The ops of a hand-written program on one rank, in double: forward once, then backward where each
/// op sees nothing but one of the sets of values that its rule calls sufficient.
class HostChain {
 public:
  HostChain(ProgramBuilder& builder, const ops::Variant& variant, std::int64_t seq = 6,
            std::int64_t mbs = 2)
      : HostChain(builder.program,
                  ops::Shapes(builder.program, builder.pool, 1, builder.pool.constant(1)),
                  one_rank(seq, mbs), variant) {
    facts.attention_dropout = variant.attention_dropout ? 0.3 : 0;
    facts.dropout = variant.dropout ? 0.3 : 0;
    facts.loss_scale = 0.25;
  }
  HostChain(const Program& program, const ops::Shapes& shapes, const Env& env,
            const ops::Variant& variant)
      : program_(program), shapes_(shapes), env_(env), rank_(shapes_, env_, {}) {
    for (const Op& op : program_.ops) rules_.push_back(ops::rule(shapes_, op, variant));
    facts.flash = variant.attention != "unfused";
    values_.resize(program_.values.size());
    for (ValueId v = 0; v < values_.size(); ++v)
      values_[v] = draw(static_cast<std::size_t>(rank_.values[v].count()), 100 + v);
    for (WeightId w = 0; w < program_.weights.size(); ++w)
      weights_.push_back(draw(static_cast<std::size_t>(rank_.weights[w].count()), 900 + w));
    own_.resize(rules_.size());
  }

  std::vector<double>& weight(WeightId w) { return weights_[w]; }

  runtime::host::RunFacts facts;
  std::set<std::string> also_saved;  ///< besides the sets

  std::size_t op_count() const { return rules_.size(); }
  const ops::Rule& rule(std::size_t op) const { return rules_[op]; }

  /// sum over values that nobody reads of their elements times fixed numbers, plus the loss.
  double objective() {
    double loss = 0;
    std::map<OpId, runtime::host::Routing<double>> routing;
    for (OpId o = 0; o < rules_.size(); ++o) {
      OpCall<double> c = call(o, routing);
      c.loss = &loss;
      for (const ValueId v : program_.ops[o].inputs) c.inputs.push_back(values_[v].data());
      if (program_.ops[o].output != kNone) c.output = values_[program_.ops[o].output].data();
      c.own = [&, o](std::string_view part) -> void* { return memory(o, part); };
      run_forward(c);
    }
    loss *= facts.loss_scale;
    for (ValueId v = 0; v < values_.size(); ++v) {
      if (is_read(v) || program_.values[v].producer == kNone) continue;
      const std::vector<double> by = draw(values_[v].size(), 500);
      for (std::size_t i = 0; i < by.size(); ++i) loss += by[i] * values_[v][i];
    }
    return loss;
  }

  /// Of all inputs of the chain (values that no op makes), then of all weights. `sets[op]`: which
  /// of its sufficient sets an op sees (its first where absent).
  std::vector<std::vector<double>> gradients(const std::map<OpId, std::size_t>& sets) {
    std::map<OpId, runtime::host::Routing<double>> routing;
    std::vector<std::vector<double>> dvalues(values_.size()), dweights(weights_.size());
    for (ValueId v = 0; v < values_.size(); ++v) {
      const bool end = !is_read(v) && program_.values[v].producer != kNone;
      dvalues[v] = end ? draw(values_[v].size(), 500) : std::vector<double>(values_[v].size());
    }
    for (std::size_t w = 0; w < weights_.size(); ++w) dweights[w].resize(weights_[w].size());
    for (OpId o = static_cast<OpId>(rules_.size()); o-- > 0;) {
      const Op& op = program_.ops[o];
      OpCall<double> c = call(o, routing);
      const auto at = sets.find(o);
      const std::set<std::string> names = saved_names(o, at == sets.end() ? 0 : at->second);
      for (const ValueId v : op.inputs) {
        c.inputs.push_back(is_saved(o, names, v) ? values_[v].data() : nullptr);
        c.input_gradients.push_back(dvalues[v].data());
      }
      if (op.output != kNone) {
        c.output = is_saved(o, names, op.output) ? values_[op.output].data() : nullptr;
        c.output_gradient = dvalues[op.output].data();
      }
      for (const WeightId w : op.weights)
        c.weight_gradients.push_back(dweights[runtime::host::stored_as(program_, w)].data());
      // An experts op's routes are wanted first by the op that ends it.
      const OpId whose = op.kind == OpKind::combine ? program_.values[op.inputs[0]].experts : o;
      const auto saved_at = sets.find(whose);
      const std::set<std::string> own =
          saved_names(whose, saved_at == sets.end() ? 0 : saved_at->second);
      c.own = [this, whose, own](std::string_view part) -> void* {
        return own.count(std::string(part)) ? memory(whose, part) : nullptr;
      };
      run_backward(c);
    }
    std::vector<std::vector<double>> result;
    for (ValueId v = 0; v < values_.size(); ++v)
      if (program_.values[v].producer == kNone) result.push_back(dvalues[v]);
    for (auto& d : dweights) result.push_back(d);
    return result;
  }

  /// Central differences of objective(), in the same order.
  std::vector<std::vector<double>> differences() {
    std::vector<std::vector<double>> result;
    for (ValueId v = 0; v < values_.size(); ++v)
      if (program_.values[v].producer == kNone) result.push_back(difference(values_[v]));
    for (auto& w : weights_) result.push_back(difference(w));
    return result;
  }

  static double norm(const std::vector<double>& a) {
    double sum = 0;
    for (const double x : a) sum += x * x;
    return std::sqrt(sum);
  }

 private:
  static Env one_rank(std::int64_t seq, std::int64_t mbs) {
    Env env;
    for (Rational& v : env.values) v = 1;
    env[Var::sp] = 0;
    env[Var::seq] = seq;
    env[Var::mbs] = mbs;
    return env;
  }
  static std::vector<double> draw(std::size_t count, std::uint64_t salt) {
    std::vector<double> v(count);
    for (std::size_t i = 0; i < count; ++i)
      v[i] = runtime::host::normal(runtime::host::mix({salt, i}));
    return v;
  }
  bool is_read(ValueId v) const {
    for (const Op& op : program_.ops)
      for (const ValueId in : op.inputs)
        if (in == v) return true;
    return false;
  }
  std::set<std::string> saved_names(OpId o, std::size_t set) const {
    std::set<std::string> names = also_saved;
    names.insert(rules_[o].always.begin(), rules_[o].always.end());
    for (const std::string& n : rules_[o].sufficient.at(set)) names.insert(n);
    return names;
  }
  bool is_saved(OpId o, const std::set<std::string>& names, ValueId v) const {
    for (const ops::NamedValue& n : rules_[o].values)
      if (names.count(n.name) && std::count(n.ids.begin(), n.ids.end(), v) > 0) return true;
    return false;
  }
  /// An op's own value, as large as its rule says.
  void* memory(OpId o, std::string_view part) {
    for (const ops::NamedValue& n : rules_[o].values) {
      if (n.name != part || !n.ids.empty()) continue;
      const Rational elements = shapes_.pool().eval(n.elements, env_);
      const std::size_t size = n.dtype == "int8" ? 1 : 8;
      auto& bytes = own_[o][n.name];
      bytes.resize(static_cast<std::size_t>(elements.to_int64()) * size);
      return bytes.empty() ? nullptr : bytes.data();
    }
    return nullptr;
  }
  OpCall<double> call(OpId o, std::map<OpId, runtime::host::Routing<double>>& routing) {
    OpCall<double> c;
    c.shapes = &rank_;
    c.groups = &groups_;
    c.facts = &facts;
    c.op = o;
    const Op& op = program_.ops[o];
    for (const WeightId w : op.weights)
      c.weights.push_back(weights_[runtime::host::stored_as(program_, w)].data());
    if (!op.weights.empty()) {
      const WeightId owner = runtime::host::stored_as(program_, op.weights[0]);
      c.transposed = program_.weights[owner].role == Role::embedding && op.kind == OpKind::linear;
    }
    OpId experts = op.experts;
    if (op.kind == OpKind::experts) experts = o;
    if (op.kind == OpKind::combine) experts = program_.values[op.inputs[0]].experts;
    if (experts != kNone) c.routing = &routing[experts];
    return c;
  }
  std::vector<double> difference(std::vector<double>& x) {
    constexpr double kStep = 1e-5;
    std::vector<double> result;
    for (double& element : x) {
      const double before = element;
      element = before + kStep;
      const double more = objective();
      element = before - kStep;
      const double less = objective();
      element = before;
      result.push_back((more - less) / (2 * kStep));
    }
    objective();
    return result;
  }

  const Program& program_;
  ops::Shapes shapes_;
  Env env_;
  runtime::host::RankShapes rank_;
  runtime::host::Groups groups_;
  std::vector<ops::Rule> rules_;
  std::vector<std::vector<double>> values_, weights_;
  std::vector<std::map<std::string, std::vector<std::byte>>> own_;
};

}  // namespace plimsoll::testing
