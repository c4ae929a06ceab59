// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/questions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "lang/conditions.hpp"
#include "lang/diagnostics.hpp"
#include "lang/print.hpp"

namespace plimsoll {
namespace {

constexpr std::size_t kMostCombinations = 50'000;
constexpr std::int64_t kMostDivided = std::int64_t{1} << 40;

std::uint64_t bit(Var v) { return std::uint64_t{1} << static_cast<unsigned>(v); }

/// The values that a variable can take at all: those that the job gives it, else every one that
/// divides what it must divide. A search tries some of them. nullopt where that is not known.
class Ranges {
 public:
  explicit Ranges(const Problem& problem) : problem_(problem), pool_(problem.module->pool()) {
    experts_ = std::any_of(problem.program->ops.begin(), problem.program->ops.end(),
                           [](const Op& op) { return op.kind == OpKind::experts; });
  }

  std::optional<std::set<Rational>> of(Var v) const {
    const auto it = problem_.job->layout.find(std::string(name(v)));
    if (it != problem_.job->layout.end() && !it->second.values.empty()) return given(it->second);
    return otherwise(v);
  }

 private:
  std::optional<std::set<Rational>> given(const Choice& choice) const {
    std::set<Rational> out;
    for (const eval::Value& value : choice.values) {
      const auto n = number(value);
      if (!n) return std::nullopt;
      out.insert(*n);
    }
    return out;
  }

  std::optional<Rational> number(const eval::Value& value) const {
    std::optional<Expr> e;
    if (const auto* n = value.as<eval::Number>()) e = n->expr;
    if (const auto* b = value.as<eval::Boolean>()) e = b->expr;
    if (const auto* w = value.as<eval::OpenWord>()) e = w->expr;
    if (e) return pool_.is_constant(*e) ? std::optional(pool_.value(*e)) : std::nullopt;
    const auto* word = value.as<eval::Word>();
    const std::string text = word != nullptr ? word->text : value.is_none() ? "none" : "";
    const auto& modes = problem_.inventory.recompute_modes;
    if (const auto at = std::find(modes.begin(), modes.end(), text); at != modes.end())
      return Rational(at - modes.begin());
    return std::nullopt;
  }

  static void add_divisors(std::set<Rational>& out, std::int64_t n) {
    for (std::int64_t d = 1; n <= kMostDivided && d * d <= n; ++d)
      if (n % d == 0) out.insert({Rational(d), Rational(n / d)});
  }

  std::set<Rational> nodes() const {
    std::set<Rational> out;
    if (problem_.cluster->pools.size() == 1)
      for (const std::int64_t n : problem_.cluster->pools.front().nodes) out.insert(Rational(n));
    return out;
  }

  std::set<Rational> gpus() const {
    if (problem_.cluster->pools.size() > 1) return {Rational(problem_.cluster->gpus())};
    std::set<Rational> out;
    for (const Rational& n : nodes())
      out.insert(n * Rational(problem_.cluster->pools.front().gpus_per_node));
    return out;
  }

  std::set<Rational> divisors_of_gpus() const {
    std::set<Rational> out;
    for (const Rational& n : gpus()) add_divisors(out, n.to_int64());
    return out;
  }

  std::optional<std::set<Rational>> divisors_of_batch() const {
    const auto batches = of(Var::batch);
    if (!batches) return std::nullopt;
    std::set<Rational> out;
    for (const Rational& n : *batches)
      if (n.is_integer()) add_divisors(out, n.to_int64());
    return out;
  }

  static std::set<Rational> up_to(std::int64_t first, std::int64_t last) {
    std::set<Rational> out;
    for (std::int64_t i = first; i <= last; ++i) out.insert(Rational(i));
    return out;
  }

  std::optional<std::set<Rational>> otherwise(Var v) const {
    const Job& job = *problem_.job;
    const std::set<Rational> none = {Rational(0)}, one = {Rational(1)};
    switch (v) {
      case Var::tp:
      case Var::cp:
      case Var::dp:
        return divisors_of_gpus();
      case Var::pp: {
        std::set<Rational> out = divisors_of_gpus();
        out.erase(out.upper_bound(Rational(problem_.program->layer_count)), out.end());
        return out;
      }
      case Var::vpp:
        return job.serve ? one : up_to(1, problem_.program->layer_count);
      case Var::ep:
      case Var::etp:
        return experts_ ? divisors_of_gpus() : one;
      case Var::mbs:
      case Var::microbatches:
        return job.serve ? one : divisors_of_batch();
      case Var::zero:
        return job.serve ? none : up_to(0, 3);
      case Var::sp:
        return job.serve ? none : up_to(0, 1);
      case Var::recompute:
        return job.serve ? none : up_to(0, std::ssize(problem_.inventory.recompute_modes) - 1);
      case Var::offload:
        return none;
      case Var::seq:
        if (!job.serve && !job.seq.is_zero()) return std::set<Rational>{job.seq};
        return job.serve ? std::optional(std::set<Rational>{job.context}) : std::nullopt;
      case Var::batch:
        if (job.batch_in_tokens || job.batch.is_zero()) return std::nullopt;
        return std::set<Rational>{job.batch};
      case Var::nodes:
        return nodes();
      case Var::gpus:
        return gpus();
      case Var::gpus_per_node:
        return std::set<Rational>{Rational(problem_.cluster->pools.front().gpus_per_node)};
      case Var::hbm:
        if (problem_.cluster->pools.size() > 1) return std::nullopt;
        return std::set<Rational>{Rational::integer(problem_.cluster->pools.front().gpu.memory -
                                                    problem_.cluster->occupied)};
      default:
        return std::nullopt;
    }
  }

  const Problem& problem_;
  const ExprPool& pool_;
  bool experts_ = false;
};

/// A condition with the values that its variables can take.
struct Question {
  const Condition* condition = nullptr;
  Lowered lowered;
  std::vector<Var> variables;
  std::vector<std::vector<Rational>> values;  ///< by variable; empty where one's are not known
  bool free = false;                          ///< something that it reads can differ
};

Question ask(const Ranges& ranges, const Condition& c, Lowered lowered) {
  Question q;
  q.condition = &c;
  q.free = !lowered.expr.has_value();
  bool known = true;
  for (std::size_t i = 0; i < kVarCount; ++i) {
    const auto v = static_cast<Var>(i);
    if ((lowered.variables & bit(v)) == 0) continue;
    q.variables.push_back(v);
    const auto values = ranges.of(v);
    if (!values || values->empty()) {
      known = false;
      continue;
    }
    q.free = q.free || values->size() > 1;
    q.values.emplace_back(values->begin(), values->end());
  }
  if (!known) {
    q.free = true;
    q.values.clear();
  }
  q.lowered = std::move(lowered);
  return q;
}

/// Shares of 0 to 1: the only derived numbers whose range is known beforehand.
bool is_share(Var v) { return v == Var::headroom || v == Var::mfu || v == Var::bubble; }

/// Does it hold at some combination of the values? nullopt where that is not known.
std::optional<bool> ever(const ExprPool& pool, Question& q) {
  if (!q.lowered.expr) return std::nullopt;
  if (q.variables.size() == 1 && is_share(q.variables.front()) &&
      print(*q.condition->expr).find("==") == std::string::npos) {
    q.values.assign(1, {});
    for (std::int64_t i = 0; i <= 100; ++i) q.values.front().push_back(Rational::fraction(i, 100));
  }
  if (q.values.size() != q.variables.size()) return std::nullopt;
  std::size_t combinations = 1;
  for (const auto& values : q.values) {
    combinations *= values.size();
    if (combinations > kMostCombinations) return std::nullopt;
  }
  Env env;
  for (std::size_t i = 0; i < combinations; ++i) {
    std::size_t rest = i;
    for (std::size_t k = 0; k < q.values.size(); ++k) {
      env[q.variables[k]] = q.values[k][rest % q.values[k].size()];
      rest /= q.values[k].size();
    }
    try {
      if (!pool.eval(*q.lowered.expr, env).is_zero()) return true;
    } catch (const ArithmeticError&) {
      // Without a value it does not hold.
    }
  }
  return false;
}

std::string names_of(const std::vector<Var>& variables) {
  std::string out;
  for (std::size_t i = 0; i < variables.size(); ++i)
    out += fmt::format("{}{}",
                       i == 0                      ? ""
                       : i + 1 == variables.size() ? " and "
                                                   : ", ",
                       name(variables[i]));
  return out;
}

/// "1, 2, 4 … 64".
std::string values_text(const std::vector<Rational>& values) {
  constexpr std::size_t kShown = 8;
  std::string out;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values.size() > kShown && i + 1 < values.size() && i + 2 > kShown) {
      out += " …";
      i = values.size() - 1;
      out += ' ' + values[i].str();
      break;
    }
    out += (out.empty() ? "" : ", ") + values[i].str();
  }
  return out;
}

/// Adds the variables that an expression names; folding may have taken them out of its value.
void add_named(const ast::Expr& e, std::vector<Var>& out) {
  if (e.kind == ast::ExprKind::name)
    for (std::size_t v = 0; v < kVarCount; ++v)
      if (name(static_cast<Var>(v)) == e.text &&
          std::find(out.begin(), out.end(), static_cast<Var>(v)) == out.end())
        out.push_back(static_cast<Var>(v));
  for (const ast::Argument& argument : e.args)
    if (argument.value) add_named(*argument.value, out);
}

void warn_of(const Problem& problem, const Ranges& ranges, Question q, std::string_view kind,
             Diagnostics& diags) {
  const std::optional<bool> holds = ever(problem.module->pool(), q);
  const Span at = q.condition->span;
  std::vector<Var> named;
  if (q.variables.empty()) add_named(*q.condition->expr, named);
  std::erase_if(named, [&](Var v) {
    const auto values = ranges.of(v);
    return values && values->size() < 2;
  });
  if (!q.free && !named.empty()) {
    const bool always = holds.value_or(true);
    diags
        .warning(
            at, fmt::format("this {} is {} true, whatever {} {}", kind, always ? "always" : "never",
                            names_of(named), named.size() == 1 ? "is" : "are"))
        .with_help(always ? "leave it out" : "change it: no layout can meet it");
    return;
  }
  if (!q.free) {
    const bool always = holds.value_or(true);
    Diagnostic& warning = diags.warning(
        at, fmt::format("this {} {} nothing that is free: it {} holds", kind,
                        q.variables.empty() ? "reads" : "is about", always ? "always" : "never"));
    bool given = false;
    for (const Var v : q.variables)
      if (const auto it = problem.job->layout.find(std::string(name(v)));
          it != problem.job->layout.end() && it->second.span) {
        warning.label(it->second.span, fmt::format("{} is given here", name(v)));
        given = true;
      }
    warning.with_help(!given   ? "leave it out: what it reads is the same at every layout"
                      : always ? "leave it out, or leave what it is about to the planner"
                               : "change one of them: no layout can meet both");
    return;
  }
  if (holds.value_or(true)) return;
  const bool one = q.variables.size() == 1;
  std::string help;
  if (one && is_share(q.variables.front()))
    help = fmt::format("{} is a share of 1: write 5% or 0.05", name(q.variables.front()));
  else if (one && !values_text(q.values.front()).empty())
    help = fmt::format("{} can be {}", name(q.variables.front()), values_text(q.values.front()));
  else
    help = "change it, or what the job and the cluster say of these variables";
  diags
      .warning(at, fmt::format("this {} is never true, whatever {} {}", kind, names_of(q.variables),
                               one ? "is" : "are"))
      .with_help(help);
}

/// Reports numbers of a step that a server does not have, at \a where.
void check_served(const Problem& problem, std::uint64_t variables, Span where, Diagnostics& diags) {
  if (!problem.job->serve) return;
  for (const Var v : {Var::step_time, Var::tokens_per_second, Var::mfu, Var::bubble, Var::days,
                      Var::cost, Var::microbatches}) {
    if ((variables & bit(v)) == 0) continue;
    diags.error(where, fmt::format("'{}' serves: it has no {}", problem.job->name, name(v)))
        .with_help("a server's plan is by memory: sequences, peak, headroom, gpus");
    return;
  }
}

/// Reports a cost without a price, at \a where.
void check_price(const Problem& problem, std::uint64_t variables, Span where, Diagnostics& diags) {
  if ((variables & bit(Var::cost)) == 0) return;
  for (const Pool& pool : problem.cluster->pools)
    if (pool.gpu.price.sign() <= 0) {
      diags
          .error(where,
                 fmt::format("the cost is asked for, and gpu '{}' has no price", pool.gpu.name))
          .label(problem.cluster->span, "in this cluster")
          .with_help("add a line such as price = 2.5 USD/h to the cluster or to a gpu of your own");
      return;
    }
}

}  // namespace

void check_questions(const Problem& problem, Diagnostics& diags) {
  const Job& job = *problem.job;
  Diagnostics said;  // compile() has reported what is wrong with conditions
  const Ranges ranges(problem);
  const auto look = [&](const std::vector<Condition>& conditions, std::string_view kind) {
    for (const Condition& c : conditions) {
      auto lowered = lower_condition(*problem.module, job, *c.expr, said);
      if (!lowered) continue;
      check_served(problem, lowered->variables, c.span, diags);
      check_price(problem, lowered->variables, c.span, diags);
      if (c.from_framework) continue;
      warn_of(problem, ranges, ask(ranges, c, std::move(*lowered)), kind, diags);
    }
  };
  look(job.require, "requirement");
  look(job.prefer, "preference");
  if (job.objective.expr == nullptr) return;
  if (const auto lowered = lower_number(*problem.module, job, *job.objective.expr, said)) {
    check_served(problem, lowered->variables, job.objective.span, diags);
    check_price(problem, lowered->variables, job.objective.span, diags);
  }
}

}  // namespace plimsoll
