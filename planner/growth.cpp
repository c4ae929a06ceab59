// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/growth.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "planner/peak.hpp"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 26;
constexpr std::int64_t kMostTimes = 1024;  ///< as large a batch as is asked for

class Grower {
 public:
  Grower(const Problem& problem, const Layout& layout)
      : problem_(problem), layout_(layout), pricer_(problem) {}

  using Setter = std::function<void(Layout&, std::int64_t)>;

  /// The peak with a value set; nullopt where that layout cannot be.
  std::optional<Pricer::Peak> peak(const Setter& set, std::int64_t value) {
    Layout l = layout_;
    set(l, value);
    try {
      resolve(problem_, l);
      if (!why_impossible(problem_, l).empty()) return std::nullopt;
      return pricer_.peak(l);
    } catch (const ArithmeticError&) {
      return std::nullopt;
    }
  }

  /// Over the multiples of \a unit up to \a most.
  Growth by_steps(std::string knob, std::int64_t now, std::int64_t unit, std::int64_t most,
                  const Setter& set) {
    Growth out;
    out.knob = std::move(knob);
    out.now = now;
    const auto fits = [&](std::int64_t steps) {
      const auto p = peak(set, steps * unit);
      return p && p->fits;
    };
    std::int64_t good = 0, bad = std::max<std::int64_t>(now / unit, 1);
    while (bad * unit <= most && fits(bad)) good = bad, bad *= 2;
    out.endless = bad * unit > most;
    while (!out.endless && bad - good > 1) {
      const std::int64_t middle = good + (bad - good) / 2;
      (fits(middle) ? good : bad) = middle;
    }
    out.largest = good * unit;
    if (out.endless) return out;
    if (const auto p = peak(set, bad * unit); p && !p->fits) {
      out.next = bad * unit;
      out.next_bytes = p->bytes;
    }
    return out;
  }

  /// Over the divisors of \a whole.
  Growth by_divisors(std::string knob, std::int64_t now, std::int64_t whole, const Setter& set) {
    Growth out;
    out.knob = std::move(knob);
    out.now = now;
    out.endless = true;
    for (std::int64_t d = 1; d <= whole; ++d) {
      if (whole % d != 0) continue;
      const auto p = peak(set, d);
      if (!p) continue;
      if (p->fits) {
        out.largest = d;
        continue;
      }
      if (d <= now) continue;
      out.endless = false;
      out.next = d;
      out.next_bytes = p->bytes;
      break;
    }
    return out;
  }

 private:
  const Problem& problem_;
  const Layout& layout_;
  Pricer pricer_;
};

}  // namespace

std::vector<Growth> growth(const Problem& problem, const Layout& l) {
  if (problem.job->serve) return {};
  Grower grower(problem, l);
  std::int64_t unit = 1;
  if (l.cp > 1) unit = std::lcm(unit, 2 * l.cp);
  if (l.sp) unit = std::lcm(unit, l.cp * l.tp);
  constexpr std::int64_t kWhole = 1024;
  if (l.seq >= kWhole) unit = std::lcm(unit, kWhole);
  if (l.seq % unit != 0) unit = std::gcd(unit, l.seq);
  std::vector<Growth> out;
  out.push_back(grower.by_steps("seq", l.seq, unit, kMostTokens,
                                [](Layout& x, std::int64_t v) { x.seq = v; }));
  out.push_back(grower.by_divisors("mbs", l.mbs, l.batch / std::max<std::int64_t>(l.dp, 1),
                                   [](Layout& x, std::int64_t v) { x.mbs = v; }));
  const std::int64_t sequences = l.mbs * l.dp * (l.vpp > 1 ? l.pp : 1);
  out.push_back(grower.by_steps("batch", l.batch, sequences, l.batch * kMostTimes,
                                [](Layout& x, std::int64_t v) { x.batch = v; }));
  return out;
}

}  // namespace plimsoll
