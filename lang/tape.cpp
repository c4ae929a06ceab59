// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <numeric>

#include "lang/diagnostics.hpp"
#include "lang/expr.hpp"

namespace plimsoll {

namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

bool fits(Int128 value) { return value <= kLargest && value >= -kLargest; }

std::int64_t floor_of(std::int64_t num, std::int64_t den) {  // den > 0
  const std::int64_t quotient = num / den;
  return num % den < 0 ? quotient - 1 : quotient;
}

}  // namespace

Tape::Tape(const ExprPool& pool, std::span<const Expr> roots) {
  using Node = ExprPool::Node;
  std::vector<std::uint32_t> needed;
  std::vector<bool> seen(pool.size());
  std::vector<Expr> work(roots.begin(), roots.end());
  while (!work.empty()) {
    const Expr e = work.back();
    work.pop_back();
    if (seen[e.id]) continue;
    seen[e.id] = true;
    needed.push_back(e.id);
    for (const Expr operand : pool.operands(e)) work.push_back(operand);
  }
  // Leaves first, then users after their operands.
  const auto is_leaf = [&](std::uint32_t id) {
    return pool.node({id}) == Node::constant || pool.node({id}) == Node::variable;
  };
  std::sort(needed.begin(), needed.end(), [&](std::uint32_t a, std::uint32_t b) {
    const bool leaf_a = is_leaf(a);
    return leaf_a != is_leaf(b) ? leaf_a : a < b;
  });
  std::vector<std::uint32_t> slot_of(pool.size());
  slots_.resize(needed.size(), Slot{0, 0});
  for (std::uint32_t slot = 0; slot < needed.size(); ++slot) {
    const Expr e{needed[slot]};
    slot_of[e.id] = slot;
    if (pool.node(e) == Node::constant) {
      const Rational& value = pool.value(e);
      constants_.emplace_back(slot, value);
      if (fits(value.num()) && fits(value.den()))
        slots_[slot] = {static_cast<std::int64_t>(value.num()),
                        static_cast<std::int64_t>(value.den())};
    } else if (pool.node(e) == Node::variable) {
      inputs_.emplace_back(slot, pool.var(e));
    } else {
      if (steps_.empty()) first_step_ = slot;
      const auto operands = pool.operands(e);
      steps_.push_back({pool.node(e), slot_of[operands[0].id], slot_of[operands[1].id],
                        operands.size() > 2 ? slot_of[operands[2].id] : 0});
    }
  }
  for (const Expr root : roots) roots_.push_back(slot_of[root.id]);
  given_.resize(inputs_.size());
}

void Tape::run(const Env& env) {
  exact_done_ = false;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const Rational& value = env[inputs_[i].second];
    given_[i] = value;
    Slot& slot = slots_[inputs_[i].first];
    slot = {0, 0};
    if (fits(value.num()) && fits(value.den()))
      slot = {static_cast<std::int64_t>(value.num()), static_cast<std::int64_t>(value.den())};
  }
  Slot* out = slots_.data() + first_step_;
  for (const Step& s : steps_) *out++ = step(s);
}

/// One node in 64 bits. A slot with den 0 has no value there: overflow, or no value at all; what
/// uses it has none either, except a select that does not choose it.
Tape::Slot Tape::step(const Step& s) const {
  using Node = ExprPool::Node;
  constexpr Slot none{0, 0};
  const Slot a = slots_[s.a];
  const Slot b = slots_[s.b];
  if (s.node == Node::select) return a.den == 0 ? none : a.num != 0 ? b : slots_[s.c];
  if (a.den == 0 || b.den == 0) return none;
  const auto reduced = [](Int128 num, Int128 den) -> Slot {  // den > 0
    if (!fits(num) || !fits(den)) return {0, 0};
    const auto top = static_cast<std::int64_t>(num);
    const auto bottom = static_cast<std::int64_t>(den);
    const std::int64_t divisor = std::gcd(top, bottom);
    return {top / divisor, bottom / divisor};
  };
  const bool whole = a.den == 1 && b.den == 1;
  const auto wide = [](std::int64_t x, std::int64_t y) { return Int128{x} * y; };
  std::int64_t result = 0;
  switch (s.node) {
    case Node::add:
      if (whole)
        return __builtin_add_overflow(a.num, b.num, &result) || result == -kLargest - 1
                   ? none
                   : Slot{result, 1};
      if (a.den == b.den) return reduced(Int128{a.num} + b.num, a.den);
      return reduced(wide(a.num, b.den) + wide(b.num, a.den), wide(a.den, b.den));
    case Node::mul:
      if (whole)
        return __builtin_mul_overflow(a.num, b.num, &result) || result == -kLargest - 1
                   ? none
                   : Slot{result, 1};
      return reduced(wide(a.num, b.num), wide(a.den, b.den));
    case Node::div:
    case Node::floor_div:
    case Node::ceil_div: {
      if (b.num == 0) return none;
      Slot q{};
      if (whole) {
        const std::int64_t sign = b.num < 0 ? -1 : 1;
        q = {a.num * sign, b.num * sign};
        if (s.node == Node::div) {
          const std::int64_t quotient = q.num / q.den;
          return quotient * q.den == q.num ? Slot{quotient, 1} : reduced(q.num, q.den);
        }
      } else {
        const Int128 den = wide(a.den, b.num);
        q = den < 0 ? reduced(-wide(a.num, b.den), -den) : reduced(wide(a.num, b.den), den);
        if (s.node == Node::div || q.den == 0) return q;
      }
      if (s.node == Node::floor_div) return {floor_of(q.num, q.den), 1};
      return {-floor_of(-q.num, q.den), 1};
    }
    case Node::equal:
      return {a.num == b.num && a.den == b.den, 1};
    case Node::less_equal:
    case Node::min:
    case Node::max: {
      const bool ordered =
          a.den == b.den ? a.num <= b.num : wide(a.num, b.den) <= wide(b.num, a.den);
      if (s.node == Node::less_equal) return {ordered, 1};
      return ordered == (s.node == Node::min) ? a : b;
    }
    default:
      PLIMSOLL_ASSERT(false);
  }
  return none;
}

void Tape::run_exactly() const {
  using Node = ExprPool::Node;
  exact_.assign(slots_.size(), Rational(0));
  errors_.assign(slots_.size(), std::string());
  for (const auto& [slot, value] : constants_) exact_[slot] = value;
  for (std::size_t i = 0; i < inputs_.size(); ++i) exact_[inputs_[i].first] = given_[i];
  std::size_t out = first_step_;
  for (const Step& s : steps_) {
    const std::size_t slot = out++;
    const Rational& a = exact_[s.a];
    const Rational& b = exact_[s.b];
    if (!errors_[s.a].empty()) {
      errors_[slot] = errors_[s.a];
      continue;
    }
    const std::uint32_t other = s.node == Node::select && a.is_zero() ? s.c : s.b;
    if (!errors_[other].empty()) {
      errors_[slot] = errors_[other];
      continue;
    }
    try {
      switch (s.node) {
        case Node::add:
          exact_[slot] = a + b;
          break;
        case Node::mul:
          exact_[slot] = a * b;
          break;
        case Node::div:
          exact_[slot] = a / b;
          break;
        case Node::floor_div:
          exact_[slot] = (a / b).floor();
          break;
        case Node::ceil_div:
          exact_[slot] = (a / b).ceil();
          break;
        case Node::min:
          exact_[slot] = b < a ? b : a;
          break;
        case Node::max:
          exact_[slot] = a < b ? b : a;
          break;
        case Node::equal:
          exact_[slot] = a == b ? 1 : 0;
          break;
        case Node::less_equal:
          exact_[slot] = a <= b ? 1 : 0;
          break;
        case Node::select:
          exact_[slot] = exact_[other];
          break;
        default:
          PLIMSOLL_ASSERT(false);
      }
    } catch (const ArithmeticError& error) {
      errors_[slot] = error.what();
    }
  }
  exact_done_ = true;
}

Rational Tape::value(std::size_t i) const {
  const std::uint32_t slot = roots_[i];
  if (slots_[slot].den == 1) return slots_[slot].num;
  if (slots_[slot].den != 0) return Rational::fraction(slots_[slot].num, slots_[slot].den);
  if (!exact_done_) run_exactly();
  if (!errors_[slot].empty()) throw ArithmeticError(errors_[slot]);
  return exact_[slot];
}

std::int64_t Tape::integer(std::size_t i) const {
  const Slot slot = slots_[roots_[i]];
  return slot.den == 1 ? slot.num : value(i).to_int64();
}

}  // namespace plimsoll
