// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "planner/range.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "planner/residuals.hpp"

namespace plimsoll {

namespace {

enum class Counter { allocated, reserved, room };

struct Residual {
  std::string_view framework, feature;
  Counter counter;
  std::int64_t runs, low, high;  ///< limits: in 1/kOne, of a room in GiB/kOne
};

constexpr std::int64_t kOne = 100000;
/// Of fewer runs the lowest and the highest are the limits (bench/residuals.py).
constexpr std::int64_t kManyRuns = 20;
constexpr double kShare = 0.9;

constexpr Residual kResiduals[] = {
#define X(framework, feature, counter, runs, low, high) \
  {framework, feature, Counter::counter, runs, low, high},
    PLIMSOLL_RESIDUALS(X)
#undef X
};

constexpr std::int64_t kImbalances[] = {
#define X(value) value,
    PLIMSOLL_IMBALANCES(X)
#undef X
};

/// What sorts runs of one framework; bench/residuals.py tells the same of a file.
std::string feature_of(const Problem& p, const Layout& l) {
  const auto& ops = p.program->ops;
  const bool experts =
      std::any_of(ops.begin(), ops.end(), [](const Op& o) { return o.kind == OpKind::experts; });
  return fmt::format("{}{}", experts ? "experts" : "dense", l.zero == 3 ? " fsdp" : "");
}

const Residual* residual(std::string_view framework, std::string_view feature, Counter counter) {
  for (const Residual& r : kResiduals)
    if (r.framework == framework && r.feature == feature && r.counter == counter) return &r;
  return nullptr;
}

/// The prelude's frameworks were measured; one that a file declares was not, whatever its name.
bool is_measured(const Problem& p) {
  return p.module->sources()[p.framework->span.file].is_prelude();
}

Range none(const Problem& p, const std::string& feature) {
  Range range;
  range.why_none =
      is_measured(p) ? fmt::format("too few measured runs of {}, {}", p.framework->name, feature)
                     : fmt::format("no run of this file's own {} was measured", p.framework->name);
  return range;
}

Range of_runs(const Residual& r, std::string of, std::string_view counter) {
  Range range;
  range.of = std::move(of);
  range.runs = r.runs;
  range.share = r.runs < kManyRuns ? 1 : kShare;
  range.runs_of = fmt::format("{}, {}, {}", r.framework, r.feature, counter);
  return range;
}

Int128 stretched(Int128 bytes, std::int64_t ratio) { return bytes * ratio / kOne; }

}  // namespace

Range measured_range(const Problem& p, const Layout& l, const StageBill& stage) {
  const std::string feature = feature_of(p, l);
  if (!is_measured(p)) return none(p, feature);
  const Residual* reserved = residual(p.framework->name, feature, Counter::reserved);
  const Residual* r =
      reserved != nullptr ? reserved : residual(p.framework->name, feature, Counter::allocated);
  if (r == nullptr) return none(p, feature);
  Range range = of_runs(*r, "peak", r == reserved ? "reserved" : "allocated");
  const Int128 outside = stage.peak_bytes - stage.reserved_bytes;
  range.low = std::max<Int128>(stretched(stage.reserved_bytes, r->low), 0) + outside;
  range.high = stretched(stage.reserved_bytes, r->high) + outside;
  return range;
}

Range measured_room(const Problem& p, Int128 pool) {
  const Residual* r =
      is_measured(p) ? residual(p.framework->name, "serving", Counter::room) : nullptr;
  if (r == nullptr) return none(p, "serving");
  Range range = of_runs(*r, "kv_cache", "room");
  const Int128 gib = Int128{1} << 30;
  range.low = std::max<Int128>(pool + gib * r->low / kOne, 0);
  range.high = std::max<Int128>(pool + gib * r->high / kOne, 0);
  return range;
}

std::string verdict(const Problem& p, Int128 peak, Int128 hbm, const Range& range) {
  // Within the framework's margin of the memory, on either side, nobody should promise.
  const Rational margin = Rational::integer(peak) * p.inventory.margin;
  const Rational distance = Rational::integer(hbm - peak).abs();
  const bool fits = peak <= hbm;
  const bool doubtful = range.of == "peak" && (fits ? range.high > hbm : range.low <= hbm);
  return distance < margin || doubtful ? "edge" : fits ? "fits" : "does not fit";
}

Imbalances measured_imbalances() {
  const auto n = static_cast<std::int64_t>(std::size(kImbalances));
  return {Rational::fraction(1, n + 1), Rational::fraction(n, n + 1), n};
}

std::optional<Rational> measured_imbalance(const Rational& quantile) {
  const Imbalances known = measured_imbalances();
  if (quantile < known.least || quantile > known.most) return std::nullopt;
  // The i-th of n runs stands for the quantile i / (n + 1).
  const Rational at = quantile * Rational(known.runs + 1) - Rational(1);
  const std::int64_t below = std::min(at.floor().to_int64(), known.runs - 2);
  const Rational low = Rational::fraction(kImbalances[below], kOne);
  const Rational high = Rational::fraction(kImbalances[below + 1], kOne);
  return low + (high - low) * (at - Rational(below));
}

}  // namespace plimsoll
