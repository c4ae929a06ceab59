// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

/// A proof, checked by a solver, that a search left nothing out: every point that the rules of its
/// space allow was met by it, with a bound that says why it cannot be better than the answer. The
/// rules are stated once more for it, apart from the search's own way of listing points.
namespace plimsoll {

/// The values of a claim's variables.
using ClaimPoint = std::vector<std::int64_t>;
using ClaimValues = std::span<const std::int64_t>;

struct ClaimVariable {
  std::string name;
  std::vector<std::int64_t> values;  ///< ascending
  /// Where it follows from others: from which (before it), and how; nullopt where those do not go
  /// together. What is not among `values` is not allowed.
  std::vector<std::size_t> from = {};
  std::function<std::optional<std::int64_t>(ClaimValues)> follows = {};
};

/// What some variables must meet.
struct ClaimRule {
  std::string name;
  std::vector<std::size_t> over;  ///< each once; few, since every combination is looked at
  std::function<bool(ClaimValues)> holds;
};

/// A space of points, as a proof states it.
struct Claim {
  std::vector<ClaimVariable> variables;
  std::vector<ClaimRule> rules;
  /// Variables that a proof goes through value by value; the rest it covers at once. Few.
  std::vector<std::size_t> apart;
};

/// What a search knows of a point.
enum class Verdict : std::uint8_t {
  no_better,  ///< a bound, or its value, says that it is no better than the answer
  better,     ///< nothing says so
  missing,    ///< it never met the point
};

struct CertificateBudget {
  std::int64_t units = 40'000'000;    ///< of the solver, see smt.hpp
  std::int64_t points = 100'000'000;  ///< looked at
  std::function<bool()> stop;
};

struct Certificate {
  enum Status {
    proven,
    unknown,   ///< the budget ran out
    mismatch,  ///< `witness` is allowed, and the search does not know it to be no better
  };
  Status status = unknown;
  std::int64_t clauses = 0;  ///< that state the rules
  std::int64_t nogoods = 0;  ///< each covers points all of which were looked at
  std::int64_t points = 0;   ///< that the rules allow, looked at
  std::int64_t units = 0, checks = 0;
  ClaimPoint witness;
  std::string why;   ///< of a mismatch, in words
  std::string smt2;  ///< and what the solver was asked
};

/// Points have a value for every variable, in the claim's order. Throws InternalError where the
/// solver's point breaks a rule.
Certificate certify(const Claim&, const std::function<Verdict(ClaimValues)>& known,
                    const CertificateBudget& = {});

/// The points that the rules allow, in lexicographic order; false from \a each ends it.
void for_each_point(const Claim&, const std::function<bool(ClaimValues)>& each);

}  // namespace plimsoll
