// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <string>

#include "lang/diagnostics.hpp"
#include "lang/expr_fold.hpp"

namespace plimsoll {

namespace {

using Node = ExprPool::Node;

/// How tightly a text binds, loosest first.
enum Binding { kOr, kAnd, kNot, kComparison, kSum, kProduct, kFactor };

std::string with_separators(Int128 value) {
  std::string digits = to_string(value);
  for (std::size_t at = digits.size(); at > (value < 0 ? 4u : 3u);) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

class Printer {
 public:
  explicit Printer(const ExprPool& pool) : pool_(pool) {}

  std::string text(Expr e, Binding least = kOr) const {
    std::string result;
    const Binding binding = write(e, result);
    return binding < least ? "(" + result + ")" : result;
  }

 private:
  Binding write(Expr e, std::string& out) const {
    switch (pool_.node(e)) {
      case Node::constant:
        return write_constant(pool_.value(e), out);
      case Node::variable:
        out = name(pool_.var(e));
        return kFactor;
      case Node::add:
        return write_sum(e, out);
      case Node::mul:
        out = list(Folder::flatten(pool_, Node::mul, e), " * ", kFactor);
        return kProduct;
      case Node::div:
        return write_quotient(e, out);
      case Node::floor_div:
      case Node::ceil_div: {
        const bool whole =
            pool_.is_constant(pool_.operands(e)[1]) && pool_.value(pool_.operands(e)[1]) == 1;
        std::string inner;
        if (whole) {
          inner = text(pool_.operands(e)[0]);
        } else {
          write_quotient(e, inner);
        }
        out = (pool_.node(e) == Node::ceil_div ? "ceil(" : "floor(") + inner + ")";
        return kFactor;
      }
      case Node::min:
      case Node::max:
        return write_extremum(e, out);
      case Node::equal:
        return write_comparison(pool_.operands(e)[1], "==", pool_.operands(e)[0], out);
      case Node::less_equal:
        return write_less_equal(e, false, out);
      case Node::select: {
        const auto parts = pool_.operands(e);
        out = "if(" + text(parts[0]) + ", " + text(parts[1]) + ", " + text(parts[2]) + ")";
        return kFactor;
      }
    }
    PLIMSOLL_ASSERT(false);
    return kFactor;
  }

  static Binding write_constant(const Rational& value, std::string& out) {
    if (value.is_integer()) {
      out = with_separators(value.num());
      return value < 0 ? kSum : kFactor;
    }
    out = value.str();
    return out.find('/') != std::string::npos ? kProduct : value < 0 ? kSum : kFactor;
  }

  Binding write_comparison(Expr a, const char* sign, Expr b, std::string& out) const {
    out = text(a, kSum) + " " + sign + " " + text(b, kSum);
    return kComparison;
  }

  /// A constant stands on the right.
  Binding write_less_equal(Expr e, bool negated, std::string& out) const {
    const auto parts = pool_.operands(e);
    if (pool_.is_constant(parts[0]))
      return write_comparison(parts[1], negated ? "<" : ">=", parts[0], out);
    return write_comparison(parts[0], negated ? ">" : "<=", parts[1], out);
  }

  /// The x of 1 - x where it is a truth value.
  bool is_negation(Expr e, Expr& inner) const {
    if (pool_.node(e) != Node::add || !pool_.is_boolean(e)) return false;
    inner = pool_.operands(pool_.operands(e)[1])[1];
    return true;
  }

  Binding write_sum(Expr e, std::string& out) const {
    Expr inner;
    if (is_negation(e, inner)) {
      if (pool_.node(inner) == Node::less_equal) return write_less_equal(inner, true, out);
      if (pool_.node(inner) == Node::equal)
        return write_comparison(pool_.operands(inner)[1], "!=", pool_.operands(inner)[0], out);
      out = "not " + text(inner, kNot);
      return kNot;
    }
    for (const Expr term : Folder::flatten(pool_, Node::add, e)) {
      const std::string part = text(term, kSum);
      if (out.empty()) {
        out = part;
      } else if (part[0] == '-') {
        out += " - " + part.substr(1);
      } else {
        out += " + " + part;
      }
    }
    return kSum;
  }

  Binding write_quotient(Expr e, std::string& out) const {
    const auto parts = pool_.operands(e);
    out = text(parts[0], pool_.is_constant(parts[0]) ? kOr : kProduct) + " / " +
          text(parts[1], kFactor);
    return kProduct;
  }

  Binding write_extremum(Expr e, std::string& out) const {
    const bool low = pool_.node(e) == Node::min;
    const auto parts = Folder::flatten(pool_, pool_.node(e), e);
    if (pool_.is_boolean(e)) {
      out = list(parts, low ? " and " : " or ", low ? kNot : kAnd);
      return low ? kAnd : kOr;
    }
    out = (low ? "min(" : "max(") + list(parts, ", ", kOr) + ")";
    return kFactor;
  }

  std::string list(const std::vector<Expr>& parts, const char* between, Binding least) const {
    // -1 * x is written -x, and -c * x keeps its sign bare.
    std::string result;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (i == 0 && least == kFactor && pool_.is_constant(parts[0]) && parts.size() > 1) {
        if (pool_.value(parts[0]) == -1) {
          result = "-";
          continue;
        }
        result = text(parts[0]);
        continue;
      }
      if (!result.empty() && result != "-") result += between;
      result += text(parts[i], least);
    }
    return result;
  }

  const ExprPool& pool_;
};

}  // namespace

std::string ExprPool::str(Expr e) const { return Printer(*this).text(e); }

}  // namespace plimsoll
