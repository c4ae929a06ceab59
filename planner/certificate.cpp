// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/certificate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "lang/diagnostics.hpp"
#include "planner/smt.hpp"

namespace plimsoll {

namespace {

using smt::Answer;
using smt::Term;

constexpr std::size_t kFree = ~std::size_t{0};

/// A place in a table over the indices of its variables' values: mixed radix, the first outermost.
struct Radix {
  std::vector<std::size_t> over, sizes;

  Radix(const Claim& claim, std::vector<std::size_t> variables) : over(std::move(variables)) {
    for (const std::size_t v : over) sizes.push_back(claim.variables[v].values.size());
  }
  std::size_t size() const {
    std::size_t out = 1;
    for (const std::size_t s : sizes) out *= s;
    return out;
  }
  std::size_t at(const std::vector<std::size_t>& chosen) const {
    std::size_t index = 0;
    for (std::size_t k = 0; k < over.size(); ++k) index = index * sizes[k] + chosen[over[k]];
    return index;
  }
  /// The indices that place \a i stands for, in the order of `over`.
  std::vector<std::size_t> indices(std::size_t i) const {
    std::vector<std::size_t> out(over.size());
    for (std::size_t k = over.size(); k-- > 0; i /= sizes[k]) out[k] = i % sizes[k];
    return out;
  }
};

/// What a rule allows.
struct Table {
  Radix radix;
  std::vector<char> allowed;
};

/// What follows for a variable.
struct Function {
  Radix radix;
  std::size_t variable = 0;
  std::vector<std::size_t> index;  ///< of its value; kFree: those do not go together
};

/// The whole claim in tables.
class Tables {
 public:
  explicit Tables(const Claim& claim)
      : claim_(claim), last_(claim.variables.size()), function_of_(claim.variables.size(), kFree) {
    for (std::size_t v = 0; v < claim.variables.size(); ++v)
      if (claim.variables[v].follows) add_function(v);
    for (const ClaimRule& rule : claim.rules) add_rule(rule);
  }

  const std::vector<Table>& rules() const { return rules_; }
  const std::vector<Function>& functions() const { return functions_; }
  bool allowed(const std::vector<std::size_t>& chosen) const {
    return std::all_of(rules_.begin(), rules_.end(),
                       [&](const Table& t) { return t.allowed[t.radix.at(chosen)] != 0; }) &&
           std::all_of(functions_.begin(), functions_.end(), [&](const Function& f) {
             return f.index[f.radix.at(chosen)] == chosen[f.variable];
           });
  }
  /// Calls \a each with every allowed point that has the chosen indices of \a cube (kFree: any).
  /// False where \a each ended it.
  bool walk(const std::vector<std::size_t>& cube,
            const std::function<bool(const std::vector<std::size_t>&)>& each) const {
    std::vector<std::size_t> chosen(cube.size());
    return walk(cube, each, 0, chosen);
  }

 private:
  ClaimPoint values(const Radix& radix, std::size_t i) const {
    ClaimPoint out;
    const std::vector<std::size_t> indices = radix.indices(i);
    for (std::size_t k = 0; k < indices.size(); ++k)
      out.push_back(claim_.variables[radix.over[k]].values[indices[k]]);
    return out;
  }

  void add_function(std::size_t v) {
    const ClaimVariable& variable = claim_.variables[v];
    Function f{Radix(claim_, variable.from), v, {}};
    f.index.assign(f.radix.size(), kFree);
    for (std::size_t i = 0; i < f.index.size(); ++i) {
      const std::optional<std::int64_t> is = variable.follows(values(f.radix, i));
      if (!is) continue;
      const auto at = std::lower_bound(variable.values.begin(), variable.values.end(), *is);
      if (at != variable.values.end() && *at == *is)
        f.index[i] = static_cast<std::size_t>(at - variable.values.begin());
    }
    function_of_[v] = functions_.size();
    functions_.push_back(std::move(f));
  }

  void add_rule(const ClaimRule& rule) {
    Table t{Radix(claim_, rule.over), {}};
    t.allowed.resize(t.radix.size());
    for (std::size_t i = 0; i < t.allowed.size(); ++i)
      t.allowed[i] = rule.holds(values(t.radix, i)) ? 1 : 0;
    last_[*std::max_element(rule.over.begin(), rule.over.end())].push_back(rules_.size());
    rules_.push_back(std::move(t));
  }

  bool walk(const std::vector<std::size_t>& cube,
            const std::function<bool(const std::vector<std::size_t>&)>& each, std::size_t depth,
            std::vector<std::size_t>& chosen) const {
    if (depth == cube.size()) return each(chosen);
    std::size_t first = 0, end = claim_.variables[depth].values.size();
    if (function_of_[depth] != kFree) {
      const Function& f = functions_[function_of_[depth]];
      first = f.index[f.radix.at(chosen)];
      if (first == kFree || (cube[depth] != kFree && cube[depth] != first)) return true;
      end = first + 1;
    } else if (cube[depth] != kFree) {
      first = cube[depth];
      end = first + 1;
    }
    for (chosen[depth] = first; chosen[depth] < end; ++chosen[depth]) {
      const bool here = std::all_of(last_[depth].begin(), last_[depth].end(), [&](std::size_t t) {
        return rules_[t].allowed[rules_[t].radix.at(chosen)] != 0;
      });
      if (here && !walk(cube, each, depth + 1, chosen)) return false;
    }
    return true;
  }

  const Claim& claim_;
  std::vector<Table> rules_;
  std::vector<Function> functions_;
  std::vector<std::vector<std::size_t>> last_;  ///< rules by their latest variable
  std::vector<std::size_t> function_of_;        ///< by variable
};

/// The tables as clauses over one Boolean a value.
class Master {
 public:
  Master(const Claim& claim, const Tables& tables) {
    for (const ClaimVariable& v : claim.variables) {
      std::vector<Term> is;
      for (const std::int64_t value : v.values)
        is.push_back(solver_.boolean(fmt::format("{}={}", v.name, value)));
      solver_.require(solver_.exactly_one(is));
      ++clauses_;
      is_.push_back(std::move(is));
    }
    for (const Function& f : tables.functions())
      for (std::size_t i = 0; i < f.index.size(); ++i) {
        std::vector<Term> clause;
        const std::vector<std::size_t> indices = f.radix.indices(i);
        for (std::size_t k = 0; k < indices.size(); ++k)
          clause.push_back(solver_.negate(is_[f.radix.over[k]][indices[k]]));
        if (f.index[i] != kFree) clause.push_back(is_[f.variable][f.index[i]]);
        add(clause);
      }
    for (const Table& t : tables.rules()) {
      std::vector<Term> literals;
      if (forbid(t, 0, 0, literals)) add({});
    }
  }

  smt::Solver& solver() { return solver_; }
  std::int64_t clauses() const { return clauses_; }
  Term is(std::size_t variable, std::size_t index) const { return is_[variable][index]; }
  void exclude(const std::vector<std::size_t>& cube) {
    std::vector<Term> literals;
    for (std::size_t v = 0; v < cube.size(); ++v)
      if (cube[v] != kFree) literals.push_back(solver_.negate(is_[v][cube[v]]));
    solver_.clause(literals);
  }
  std::vector<std::size_t> model() {
    std::vector<std::size_t> out;
    for (const std::vector<Term>& is : is_) {
      std::size_t i = 0;
      while (i < is.size() && !solver_.holds(is[i])) ++i;
      PLIMSOLL_ASSERT(i < is.size());
      out.push_back(i);
    }
    return out;
  }

 private:
  void add(const std::vector<Term>& clause) {
    solver_.clause(clause);
    ++clauses_;
  }
  /// Clauses for what a table forbids once its first variables have the values that index \a at
  /// says (\a literals: that they have not). True, and no clause, where that is everything.
  bool forbid(const Table& t, std::size_t depth, std::size_t at, std::vector<Term>& literals) {
    if (depth == t.radix.over.size()) return t.allowed[at] == 0;
    std::vector<std::size_t> whole;
    for (std::size_t i = 0; i < t.radix.sizes[depth]; ++i) {
      literals.push_back(solver_.negate(is_[t.radix.over[depth]][i]));
      if (forbid(t, depth + 1, at * t.radix.sizes[depth] + i, literals)) whole.push_back(i);
      literals.pop_back();
    }
    if (whole.size() == t.radix.sizes[depth]) return true;
    // Of the last variable, what remains is said at once: "or one of the others".
    if (depth + 1 == t.radix.over.size() && 2 * whole.size() > t.radix.sizes[depth]) {
      std::vector<Term> clause = literals;
      for (std::size_t i = 0; i < t.radix.sizes[depth]; ++i)
        if (!std::binary_search(whole.begin(), whole.end(), i))
          clause.push_back(is_[t.radix.over[depth]][i]);
      add(clause);
      return false;
    }
    for (const std::size_t i : whole) {
      std::vector<Term> clause = literals;
      clause.push_back(solver_.negate(is_[t.radix.over[depth]][i]));
      add(clause);
    }
    return false;
  }

  smt::Solver solver_;
  std::vector<std::vector<Term>> is_;
  std::int64_t clauses_ = 0;
};

ClaimPoint values_of(const Claim& claim, const std::vector<std::size_t>& chosen) {
  ClaimPoint out;
  for (std::size_t v = 0; v < chosen.size(); ++v)
    out.push_back(claim.variables[v].values[chosen[v]]);
  return out;
}

std::string words(const Claim& claim, const ClaimPoint& point) {
  std::vector<std::string> parts;
  for (std::size_t v = 0; v < point.size(); ++v)
    parts.push_back(fmt::format("{} {}", claim.variables[v].name, point[v]));
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// The proof at work.
class Proof {
 public:
  Proof(const Claim& claim, const std::function<Verdict(ClaimValues)>& known,
        const CertificateBudget& budget)
      : claim_(claim), known_(known), budget_(budget), tables_(claim), master_(claim, tables_) {}

  Certificate run() {
    out_.clauses = master_.clauses();
    search();
    out_.units = master_.solver().units();
    out_.checks = master_.solver().checks();
    if (out_.status == Certificate::mismatch) out_.smt2 = master_.solver().smt2();
    return std::move(out_);
  }

 private:
  void search() {
    for (;;) {
      if (budget_.stop && budget_.stop()) return;
      const Answer answer =
          master_.solver().check(budget_.units - master_.solver().units(), {}, budget_.stop);
      if (answer == Answer::unknown) return;
      if (answer == Answer::unsat) {
        out_.status = Certificate::proven;
        return;
      }
      const std::vector<std::size_t> model = master_.model();
      if (!tables_.allowed(model))
        throw InternalError("a point of the certificate breaks a rule\n" + master_.solver().smt2());
      // The model's own values where the proof goes value by value, anything elsewhere.
      std::vector<std::size_t> cube(model.size(), kFree);
      for (const std::size_t v : claim_.apart) cube[v] = model[v];
      const std::int64_t before = out_.points;
      if (!covered(cube)) return;
      PLIMSOLL_ASSERT(out_.points > before);  // the model is one of them
      master_.exclude(cube);
      ++out_.nogoods;
    }
  }

  /// Is no allowed point of the cube better?
  bool covered(const std::vector<std::size_t>& cube) {
    return tables_.walk(cube, [&](const std::vector<std::size_t>& chosen) {
      if (out_.points >= budget_.points) return false;
      ++out_.points;
      const ClaimPoint point = values_of(claim_, chosen);
      const Verdict verdict = known_(point);
      if (verdict == Verdict::no_better) return true;
      out_.status = Certificate::mismatch;
      out_.witness = point;
      const std::string where = words(claim_, point);
      out_.why = verdict == Verdict::missing
                     ? "the search never met " + where
                     : "nothing says that " + where + " is no better than the answer";
      return false;
    });
  }

  const Claim& claim_;
  const std::function<Verdict(ClaimValues)>& known_;
  const CertificateBudget& budget_;
  Tables tables_;
  Master master_;
  Certificate out_;
};

}  // namespace

Certificate certify(const Claim& claim, const std::function<Verdict(ClaimValues)>& known,
                    const CertificateBudget& budget) {
  return Proof(claim, known, budget).run();
}

void for_each_point(const Claim& claim, const std::function<bool(ClaimValues)>& each) {
  const Tables tables(claim);
  tables.walk(
      std::vector<std::size_t>(claim.variables.size(), kFree),
      [&](const std::vector<std::size_t>& chosen) { return each(values_of(claim, chosen)); });
}

}  // namespace plimsoll
