// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/expr.hpp"

#include <unordered_map>

#include "lang/diagnostics.hpp"
#include "lang/expr_fold.hpp"

namespace plimsoll {

namespace {

constexpr std::uint32_t kEmpty = ~0u;

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}

std::uint64_t hash_of(const Rational& value) {
  std::uint64_t hash = mix(1, static_cast<std::uint64_t>(value.num()));
  hash = mix(hash, static_cast<std::uint64_t>(value.num() >> 64));
  hash = mix(hash, static_cast<std::uint64_t>(value.den()));
  return mix(hash, static_cast<std::uint64_t>(value.den() >> 64));
}

bool any_rational(Var v) {
  return v == Var::headroom || v == Var::mfu || v == Var::bubble || v == Var::offload ||
         v == Var::cost || v == Var::days || v == Var::step_time || v == Var::tokens_per_second;
}

bool at_least_one(Var v) {
  switch (v) {
    case Var::tp:
    case Var::pp:
    case Var::vpp:
    case Var::cp:
    case Var::ep:
    case Var::etp:
    case Var::dp:
    case Var::shard:
    case Var::mbs:
    case Var::seq:
    case Var::gpus:
    case Var::nodes:
    case Var::gpus_per_node:
    case Var::expert_dp:
    case Var::expert_shard:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string_view name(Var v) {
  static constexpr std::string_view names[] = {
#define X(name) #name,
      PLIMSOLL_VARIABLES(X)
#undef X
  };
  return names[static_cast<std::size_t>(v)];
}

ExprPool::ExprPool() {
  nodes_.reserve(1024);
  table_.assign(2048, kEmpty);
  constant(0);  // a default Expr is this one
}

const Rational& ExprPool::value(Expr e) const {
  PLIMSOLL_ASSERT(is_constant(e));
  return constants_[nodes_[e.id].payload];
}

Var ExprPool::var(Expr e) const {
  PLIMSOLL_ASSERT(node(e) == Node::variable);
  return static_cast<Var>(nodes_[e.id].payload);
}

std::span<const Expr> ExprPool::operands(Expr e) const {
  const Stored& stored = nodes_[e.id];
  std::size_t count = 2;
  if (stored.node == Node::constant || stored.node == Node::variable) count = 0;
  if (stored.node == Node::select) count = 3;
  return {stored.operands.data(), count};
}

Expr ExprPool::constant(const Rational& value) {
  const std::uint64_t mask = table_.size() - 1;
  for (std::uint64_t at = hash_of(value) & mask;; at = (at + 1) & mask) {
    const std::uint32_t id = table_[at];
    if (id == kEmpty) break;
    if (nodes_[id].node == Node::constant && constants_[nodes_[id].payload] == value) return {id};
  }
  constants_.push_back(value);
  return intern(Node::constant, {}, {}, {}, static_cast<std::uint32_t>(constants_.size() - 1));
}

Expr ExprPool::variable(Var v) {
  return intern(Node::variable, {}, {}, {}, static_cast<std::uint32_t>(v));
}

/// The node's id; the same one for the same node. A constant's payload is new: `constant` looked.
Expr ExprPool::intern(Node node, Expr a, Expr b, Expr c, std::uint32_t payload) {
  Stored stored{node, 0, {a, b, c}, payload, 0};
  std::uint64_t hash = 0;
  if (node == Node::constant) {
    hash = hash_of(constants_[payload]);
  } else {
    hash = mix(mix(mix(mix(static_cast<std::uint64_t>(node) + 17, a.id), b.id), c.id), payload);
  }
  const std::uint64_t mask = table_.size() - 1;
  std::uint64_t at = hash & mask;
  for (; table_[at] != kEmpty; at = (at + 1) & mask) {
    const Stored& other = nodes_[table_[at]];
    if (other.node == node && other.payload == payload && other.operands == stored.operands)
      return {table_[at]};
  }
  if (node == Node::variable) {
    stored.variables = std::uint64_t{1} << payload;
  } else if (node != Node::constant) {
    stored.variables = nodes_[a.id].variables | nodes_[b.id].variables |
                       (node == Node::select ? nodes_[c.id].variables : 0);
  }
  stored.facts = facts_of(stored);
  const auto id = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back(stored);
  table_[at] = id;
  if (nodes_.size() * 2 > table_.size()) grow();
  return {id};
}

void ExprPool::grow() {
  std::vector<std::uint32_t> larger(table_.size() * 2, kEmpty);
  const std::uint64_t mask = larger.size() - 1;
  for (std::uint32_t id = 0; id < nodes_.size(); ++id) {
    const Stored& s = nodes_[id];
    std::uint64_t at = 0;
    if (s.node == Node::constant) {
      at = hash_of(constants_[s.payload]);
    } else {
      at = mix(
          mix(mix(mix(static_cast<std::uint64_t>(s.node) + 17, s.operands[0].id), s.operands[1].id),
              s.operands[2].id),
          s.payload);
    }
    at &= mask;
    while (larger[at] != kEmpty) at = (at + 1) & mask;
    larger[at] = id;
  }
  table_ = std::move(larger);
}

std::uint8_t ExprPool::facts_of(const Stored& s) const {
  constexpr std::uint8_t whole = kInteger | kNonnegative | kBoolean;
  const auto a = nodes_.empty() ? std::uint8_t{0} : nodes_[s.operands[0].id].facts;
  const auto b = nodes_.empty() ? std::uint8_t{0} : nodes_[s.operands[1].id].facts;
  const auto both = static_cast<std::uint8_t>(a & b);
  const auto either = static_cast<std::uint8_t>(a | b);
  unsigned facts = 0;
  switch (s.node) {
    case Node::constant: {
      const Rational& value = constants_[s.payload];
      facts = (value.is_integer() ? kInteger : 0) | (value >= 0 ? kNonnegative : 0) |
              (value > 0 ? kPositive : 0) | (value == 0 || value == 1 ? kBoolean : 0);
      break;
    }
    case Node::variable: {
      const Var v = static_cast<Var>(s.payload);
      if (any_rational(v)) return 0;
      facts = kInteger | kNonnegative;
      if (at_least_one(v)) facts |= kPositive;
      if (v == Var::sp || v == Var::first || v == Var::last) facts |= kBoolean;
      break;
    }
    case Node::add: {
      facts = both & (kInteger | kNonnegative);
      if ((both & kNonnegative) != 0) facts |= either & kPositive;
      // 1 - x of a truth value.
      const Stored& right = nodes_[s.operands[1].id];
      if (is_constant(s.operands[0]) && value(s.operands[0]) == 1 && right.node == Node::mul &&
          is_constant(right.operands[0]) && value(right.operands[0]) == -1 &&
          (nodes_[right.operands[1].id].facts & kBoolean) != 0)
        facts |= whole;
      break;
    }
    case Node::mul:
      facts = both;
      break;
    case Node::div:
      facts = both & (kNonnegative | kPositive);
      break;
    case Node::floor_div:
      facts = kInteger | (both & kNonnegative);
      break;
    case Node::ceil_div:
      facts = kInteger | (both & (kNonnegative | kPositive));
      break;
    case Node::min:
    case Node::select: {
      const std::uint8_t c = s.node == Node::select ? nodes_[s.operands[2].id].facts : a;
      facts = b & c;
      break;
    }
    case Node::max:
      facts = (both & (kInteger | kBoolean)) | (either & (kNonnegative | kPositive));
      break;
    case Node::equal:
    case Node::less_equal:
      facts = whole;
      break;
  }
  return static_cast<std::uint8_t>(facts);
}

Rational ExprPool::eval(Expr e, const Env& env) const {
  if (is_constant(e)) return value(e);
  Tape tape(*this, std::span(&e, 1));
  tape.run(env);
  return tape.value(0);
}

namespace {

/// Sums and products are rebuilt whole, so that the recursion is only as deep as the expression
/// nests, and of a select whose condition becomes known only the chosen arm is built.
class Substitution {
 public:
  Substitution(ExprPool& pool, const Env& env, std::uint64_t mask)
      : pool_(pool), env_(env), mask_(mask) {}

  Expr apply(Expr e) {
    if ((pool_.depends_on(e) & mask_) == 0) return e;
    if (const auto found = done_.find(e.id); found != done_.end()) return found->second;
    const Expr result = build(e);
    done_.emplace(e.id, result);
    return result;
  }

 private:
  using Node = ExprPool::Node;

  Expr build(Expr e) {
    const Node node = pool_.node(e);
    if (node == Node::variable) return pool_.constant(env_[pool_.var(e)]);
    if (node == Node::add || node == Node::mul) {
      std::vector<Expr> parts = Folder::flatten(pool_, node, e);
      for (Expr& part : parts) part = apply(part);
      return node == Node::add ? pool_.sum(parts) : pool_.product(parts);
    }
    const auto span = pool_.operands(e);
    const std::array<Expr, 3> parts{span[0], span[1], span.size() > 2 ? span[2] : Expr{}};
    const Expr a = apply(parts[0]);
    if (node == Node::select) {
      if (pool_.is_constant(a)) return apply(parts[pool_.value(a).is_zero() ? 2 : 1]);
      return pool_.select(a, apply(parts[1]), apply(parts[2]));
    }
    const Expr b = apply(parts[1]);
    switch (node) {
      case Node::div:
        return pool_.div(a, b);
      case Node::floor_div:
        return pool_.floor_div(a, b);
      case Node::ceil_div:
        return pool_.ceil_div(a, b);
      case Node::min:
        return pool_.min(a, b);
      case Node::max:
        return pool_.max(a, b);
      case Node::equal:
        return pool_.equal(a, b);
      default:
        PLIMSOLL_ASSERT(node == Node::less_equal);
        return pool_.less_equal(a, b);
    }
  }

  ExprPool& pool_;
  const Env& env_;
  std::uint64_t mask_;
  std::unordered_map<std::uint32_t, Expr> done_;
};

}  // namespace

Expr ExprPool::substitute(Expr e, const Env& env, std::uint64_t mask) {
  return Substitution(*this, env, mask).apply(e);
}

}  // namespace plimsoll
