// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/smt.hpp"

#include <z3++.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>

#include "lang/diagnostics.hpp"
#include "planner/smt_version.hpp"

namespace plimsoll::smt {

std::string version() {
  unsigned major = 0, minor = 0, build = 0, revision = 0;
  Z3_get_version(&major, &minor, &build, &revision);
  return fmt::format("{}.{}.{}", major, minor, build);
}

namespace {

/// Z3's `rlimit` has 32 bits, and 0 means no limit.
unsigned limit(std::int64_t units) {
  constexpr std::int64_t kMost = std::numeric_limits<unsigned>::max();
  return static_cast<unsigned>(std::clamp<std::int64_t>(units, 1, kMost));
}

/// A check of so many units at most is over before anyone could ask.
constexpr std::int64_t kUnwatched = 100'000;

std::int64_t resource_count(const z3::stats& stats) {
  for (unsigned i = 0; i < stats.size(); ++i)
    if (stats.key(i) == "rlimit count")
      return stats.is_uint(i) ? std::int64_t{stats.uint_value(i)}
                              : static_cast<std::int64_t>(stats.double_value(i));
  return 0;
}

Answer answer(z3::check_result result) {
  return result == z3::sat ? Answer::sat : result == z3::unsat ? Answer::unsat : Answer::unknown;
}

/// Z3's exceptions end here: what it cannot take is our bug.
template <class F>
auto guarded(F&& call) {
  try {
    return call();
  } catch (const z3::exception& e) {
    throw InternalError(std::string("z3: ") + e.msg());
  }
}

/// While it lives, ends what runs in a context once `stop` is true. A clock says when it is asked,
/// and nothing else.
class Watch {
 public:
  Watch(z3::context& context, const std::function<bool()>& stop) {
    if (!stop) return;
    thread_ = std::thread([this, &context, &stop] {
      std::unique_lock lock(mutex_);
      while (!over_.wait_for(lock, kEvery, [this] { return done_; }))
        if (stop()) context.interrupt();  // again and again: it may come before Z3 has begun
    });
  }
  ~Watch() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    over_.notify_one();
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  static constexpr std::chrono::milliseconds kEvery{20};
  std::mutex mutex_;
  std::condition_variable over_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace

struct Solver::Impl {
  z3::context context;
  z3::solver solver{context, z3::solver::simple()};
  std::vector<z3::expr> terms;
  std::vector<std::uint32_t> required;  ///< terms, in order
  std::vector<std::size_t> scopes;      ///< how many were required when each began
  std::vector<Term> assumed;            ///< by the last check
  std::optional<z3::model> model;
  unsigned limited = 0;
  std::int64_t units = 0, checks = 0;

  Impl() { configure(); }

  void configure() {
    z3::params p(context);
    p.set("random_seed", 0U);
    p.set("core.minimize", true);
    if (limited != 0) p.set("rlimit", limited);
    solver.set(p);
  }
  /// A solver that ran out of units while it took in what is required may have lost part of it
  /// (4.8.12 then calls the rest satisfiable): it is not asked again.
  void renew() {
    solver = z3::solver(context, z3::solver::simple());
    configure();
    std::size_t scope = 0;
    for (std::size_t i = 0; i < required.size(); ++i) {
      for (; scope < scopes.size() && scopes[scope] == i; ++scope) solver.push();
      solver.add(terms[required[i]]);
    }
    for (; scope < scopes.size(); ++scope) solver.push();
  }
  void require(Term t) {
    solver.add(of(t));
    required.push_back(t.id);
  }
  Term keep(const z3::expr& e) {
    terms.push_back(e);
    return {static_cast<std::uint32_t>(terms.size() - 1)};
  }
  const z3::expr& of(Term t) const {
    PLIMSOLL_ASSERT(t.id < terms.size());
    return terms[t.id];
  }
  z3::expr number(Int128 value) { return context.int_val(to_string(value).c_str()); }
  z3::expr_vector vector(std::span<const Term> list) const {
    z3::expr_vector out(const_cast<z3::context&>(context));
    for (const Term t : list) out.push_back(of(t));
    return out;
  }
};

Solver::Solver() : impl_(guarded([] { return std::make_unique<Impl>(); })) {}
Solver::~Solver() = default;

Term Solver::boolean(std::string_view name) {
  return guarded([&] { return impl_->keep(impl_->context.bool_const(std::string(name).c_str())); });
}

Term Solver::integer(std::string_view name, std::int64_t low, std::int64_t high) {
  return guarded([&] {
    const Term made = impl_->keep(impl_->context.int_const(std::string(name).c_str()));
    impl_->require(impl_->keep(impl_->of(made) >= impl_->number(low)));
    impl_->require(impl_->keep(impl_->of(made) <= impl_->number(high)));
    return made;
  });
}

Term Solver::constant(Int128 value) {
  return guarded([&] { return impl_->keep(impl_->number(value)); });
}

Term Solver::truth(bool value) {
  return guarded([&] { return impl_->keep(impl_->context.bool_val(value)); });
}

Term Solver::all(std::span<const Term> list) {
  return guarded([&] { return impl_->keep(z3::mk_and(impl_->vector(list))); });
}

Term Solver::any(std::span<const Term> list) {
  return guarded([&] { return impl_->keep(z3::mk_or(impl_->vector(list))); });
}

Term Solver::negate(Term t) {
  return guarded([&] { return impl_->keep(!impl_->of(t)); });
}

Term Solver::implies(Term condition, Term then) {
  return guarded([&] { return impl_->keep(!impl_->of(condition) || impl_->of(then)); });
}

Term Solver::equal(Term a, Term b) {
  return guarded([&] { return impl_->keep(impl_->of(a) == impl_->of(b)); });
}

Term Solver::choose(Term condition, Term then, Term otherwise) {
  return guarded([&] {
    return impl_->keep(z3::ite(impl_->of(condition), impl_->of(then), impl_->of(otherwise)));
  });
}

Term Solver::sum(std::span<const Product> products, Int128 constant) {
  return guarded([&] {
    z3::expr_vector parts(impl_->context);
    for (const Product& p : products)
      if (p.factor != 0)
        parts.push_back(p.factor == 1 ? impl_->of(p.term)
                                      : impl_->number(p.factor) * impl_->of(p.term));
    if (constant != 0 || parts.empty()) parts.push_back(impl_->number(constant));
    return impl_->keep(parts.size() == 1 ? parts[0] : z3::sum(parts));
  });
}

Term Solver::less_equal(Term a, Term b) {
  return guarded([&] { return impl_->keep(impl_->of(a) <= impl_->of(b)); });
}

Term Solver::at_least(Term integer, Int128 bound) {
  return guarded([&] { return impl_->keep(impl_->of(integer) >= impl_->number(bound)); });
}

Term Solver::at_most(Term integer, Int128 bound) {
  return guarded([&] { return impl_->keep(impl_->of(integer) <= impl_->number(bound)); });
}

Term Solver::floor_div(Term integer, Int128 divisor) {
  PLIMSOLL_ASSERT(divisor > 0);
  // Z3's division is Euclidean, which is the floor where the divisor is positive.
  return guarded([&] { return impl_->keep(impl_->of(integer) / impl_->number(divisor)); });
}

Term Solver::mod(Term integer, Int128 divisor) {
  PLIMSOLL_ASSERT(divisor > 0);
  return guarded([&] { return impl_->keep(z3::mod(impl_->of(integer), impl_->number(divisor))); });
}

Term Solver::exactly_one(std::span<const Term> booleans) {
  const Term both[] = {any(booleans), at_most_of(booleans, 1)};
  return all(both);
}

Term Solver::at_most_of(std::span<const Term> booleans, unsigned count) {
  return guarded([&] {
    if (booleans.size() <= count) return impl_->keep(impl_->context.bool_val(true));
    return impl_->keep(z3::atmost(impl_->vector(booleans), count));
  });
}

void Solver::require(Term t) {
  guarded([&] { impl_->require(t); });
}

void Solver::clause(std::span<const Term> literals) { require(any(literals)); }

Solver::Scope::Scope(Solver& solver) : solver_(solver) {
  guarded([&] { solver_.impl_->solver.push(); });
  solver_.impl_->scopes.push_back(solver_.impl_->required.size());
}

Solver::Scope::~Scope() {
  solver_.impl_->required.resize(solver_.impl_->scopes.back());
  solver_.impl_->scopes.pop_back();
  try {
    solver_.impl_->solver.pop();
  } catch (const z3::exception&) {  // only after a failure that was reported already
  }
}

Answer Solver::check(std::int64_t units, std::span<const Term> assumptions,
                     const std::function<bool()>& stop) {
  if (units <= 0 || (stop && stop())) return Answer::unknown;
  return guarded([&] {
    Impl& z = *impl_;
    if (z.limited != limit(units)) {
      z.limited = limit(units);
      z.configure();
    }
    z.assumed.assign(assumptions.begin(), assumptions.end());
    z.model.reset();
    const std::int64_t before = resource_count(z.solver.statistics());
    static const std::function<bool()> kNever;
    Answer found = Answer::unknown;
    {
      const Watch watch(z.context, units > kUnwatched ? stop : kNever);
      found =
          answer(assumptions.empty() ? z.solver.check() : z.solver.check(z.vector(assumptions)));
    }
    z.units += resource_count(z.solver.statistics()) - before;
    ++z.checks;
    if (found == Answer::sat) z.model = z.solver.get_model();
    if (found == Answer::unknown) z.renew();
    return found;
  });
}

std::vector<std::size_t> Solver::core() const {
  return guarded([&] {
    const z3::expr_vector found = impl_->solver.unsat_core();
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < impl_->assumed.size(); ++i)
      for (unsigned j = 0; j < found.size(); ++j)
        if (z3::eq(found[j], impl_->of(impl_->assumed[i]))) {
          out.push_back(i);
          break;
        }
    return out;
  });
}

std::int64_t Solver::value(Term integer) const {
  PLIMSOLL_ASSERT(impl_->model.has_value());
  return guarded([&] {
    std::int64_t out = 0;
    if (!impl_->model->eval(impl_->of(integer), true).is_numeral_i64(out))
      throw InternalError("z3: a model without a number for an integer");
    return out;
  });
}

bool Solver::holds(Term boolean) const {
  PLIMSOLL_ASSERT(impl_->model.has_value());
  return guarded([&] { return impl_->model->eval(impl_->of(boolean), true).is_true(); });
}

std::int64_t Solver::units() const { return impl_->units; }
std::int64_t Solver::checks() const { return impl_->checks; }

std::string Solver::smt2() const {
  return guarded([&] { return impl_->solver.to_smt2(); });
}

struct HittingSets::Impl {
  z3::context context;
  z3::optimize optimize{context};
  std::vector<z3::expr> in;
  bool impossible = false;
  std::int64_t units = 0;
};

HittingSets::HittingSets(std::span<const std::int64_t> weights)
    : impl_(guarded([] { return std::make_unique<Impl>(); })) {
  guarded([&] {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      PLIMSOLL_ASSERT(weights[i] >= 1);
      impl_->in.push_back(impl_->context.bool_const(fmt::format("in_{}", i).c_str()));
      impl_->optimize.add_soft(!impl_->in.back(), std::to_string(weights[i]).c_str());
    }
  });
}

HittingSets::~HittingSets() = default;

void HittingSets::hit(std::span<const std::size_t> members) {
  guarded([&] {
    z3::expr_vector literals(impl_->context);
    for (const std::size_t m : members) literals.push_back(impl_->in.at(m));
    if (literals.empty())
      impl_->impossible = true;
    else
      impl_->optimize.add(z3::mk_or(literals));
  });
}

std::optional<std::vector<bool>> HittingSets::lightest(std::int64_t units) {
  if (impl_->impossible || units <= 0) return std::nullopt;
  return guarded([&]() -> std::optional<std::vector<bool>> {
    z3::params p(impl_->context);
    p.set("rlimit", limit(units));
    impl_->optimize.set(p);
    const std::int64_t before = resource_count(impl_->optimize.statistics());
    const z3::check_result found = impl_->optimize.check();
    impl_->units += resource_count(impl_->optimize.statistics()) - before;
    if (found != z3::sat) return std::nullopt;
    const z3::model model = impl_->optimize.get_model();
    std::vector<bool> out;
    for (const z3::expr& e : impl_->in) out.push_back(model.eval(e, true).is_true());
    return out;
  });
}

std::int64_t HittingSets::units() const { return impl_->units; }

std::string z3_version() {
  unsigned major = 0, minor = 0, build = 0, revision = 0;
  Z3_get_version(&major, &minor, &build, &revision);
  return fmt::format("{}.{}.{}", major, minor, build);
}

}  // namespace plimsoll::smt
