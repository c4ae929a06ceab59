// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/time.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "planner/links.hpp"
#include "planner/stages.hpp"
#include "planner/time_constants.hpp"
#include "planner/time_ops.hpp"
#include "planner/time_update.hpp"

namespace plimsoll {
namespace {

/// Seconds of one stage: a micro-batch, and what follows the last one, with their parts.
struct StageSeconds {
  double pace = 0, tp = 0, cp = 0, ep = 0, recompute = 0, gathered = 0;
  double tail = 0, dp = 0, optimizer = 0;
};

/// The times of a stage's segments, added up.
struct SegmentSum {
  double forward = 0, total = 0, plain = 0;  ///< plain: nothing recomputed
  double tp = 0, cp = 0, ep = 0;
  Parameters parameters;

  /// \a totals: t.total(), by mode.
  void add(const SegmentTime& t, const double* totals, RecomputeMode mode, double count) {
    if (count == 0) return;
    forward += count * t.forward;
    total += count * totals[mode];
    plain += count * totals[0];
    tp += count * t.tp;
    cp += count * t.cp;
    ep += count * t.ep;
    parameters.add(t.parameters, count);
  }
};

/// Stages that are alike, listed once.
struct StageKind {
  StageWork work;
  std::int64_t count = 1;
};

struct KeyHash {
  std::size_t operator()(const TimeKey& k) const {
    std::uint64_t h = 1469598103934665603ull;
    for (const std::int64_t v : {k.tp, k.cp, k.ep, k.etp, k.mbs, k.seq, k.sp ? 1l : 0l})
      h = (h ^ static_cast<std::uint64_t>(v)) * 1099511628211ull;
    return static_cast<std::size_t>(h ^ (h >> 29));
  }
};

struct ShapeHash {
  std::size_t operator()(const std::vector<std::int64_t>& v) const {
    std::uint64_t h = 1469598103934665603ull;
    for (const std::int64_t x : v) h = (h ^ static_cast<std::uint64_t>(x)) * 1099511628211ull;
    return static_cast<std::size_t>(h ^ (h >> 29));
  }
};

double as_double(std::int64_t v) { return static_cast<double>(v); }

/// Of stage \a i; 0 where nothing is, all where the mode is the framework's.
std::int64_t recomputed_layers(const Layout& l, std::size_t i) {
  if (l.recompute == 0) return 0;
  return l.recompute_layers.empty() || l.recompute != kFullRecompute ? l.stage_layers[i]
                                                                     : l.recompute_layers[i];
}

}  // namespace

constinit const TimeConstants kTimeConstants{};

struct Clock::Impl {
  const Problem& problem;
  const TimeConstants& c;
  TimePath path;
  UpdateTimer update;
  SegmentTimer timer;
  std::vector<Rates> rates;  ///< by pool
  std::vector<Links> links;
  struct Timed {
    std::vector<std::vector<SegmentTime>> pools;  ///< by pool, by segment
    std::vector<std::vector<double>> totals;      ///< by pool: [segment * modes + mode]
    std::size_t modes = 2;
    std::vector<double> whole;  ///< by mode: one micro-batch through the whole model, least
    double forward = 0;         ///< of it, on the first pool
    /// Of the layouts last asked about, by mode and way of folding: whole_layers().
    struct Slowest {
      std::int64_t pp = 0, vpp = 0;
      double least = 0;
    };
    mutable std::vector<Slowest> slowest;
    Parameters parameters;  ///< on a rank, over all stages

    const double* total(std::size_t pool, std::size_t segment) const {
      return totals[pool].data() + segment * modes;
    }
  };
  std::unordered_map<TimeKey, Timed, KeyHash> timed;
  const TimeKey* last_key = nullptr;
  const Timed* last_timed = nullptr;
  LayerIndex index;
  std::unordered_map<std::vector<std::int64_t>, std::vector<StageKind>, ShapeHash> kinds;
  std::vector<std::int64_t> shape;  ///< scratch
  std::vector<std::int64_t> class_layers;
  std::unordered_map<std::int64_t, double> flops;  ///< by sequence length
  std::vector<Expr> boundaries;                    ///< distinct sends between stages, bytes
  std::optional<Tape> boundary_tape;
  std::unordered_map<TimeKey, std::pair<double, double>, KeyHash> boundary_bytes;  ///< least, most
  bool uniform = false;
  std::vector<std::uint32_t> roots[2];  ///< beside the first and the last layer

  Impl(const Problem& p, const TimeConstants& constants)
      : problem(p),
        c(constants),
        path(time_path(p)),
        update(p, path, constants),
        timer(p, constants),
        index(*p.program, p.inventory) {
    calibrate();
    uniform = index.uniform();
    if (index.layers() > 1) {
      roots[0] = index.work({{0, 1}}, 0).roots;
      roots[1] = index.work({{index.layers() - 1, 1}}, 0).roots;
    }
    class_layers.assign(p.program->class_count, 0);
    for (const Segment& s : p.program->segments)
      if (s.is_layer) ++class_layers[s.layer_class];
    for (std::size_t i = 0; i + 1 < p.inventory.boundary_bytes.size(); ++i) {
      const Expr e = p.inventory.boundary_bytes[i];
      if (p.program->segments[i].is_layer &&
          std::find(boundaries.begin(), boundaries.end(), e) == boundaries.end())
        boundaries.push_back(e);
    }
    boundary_tape.emplace(p.module->pool(), boundaries);
  }

  /// All that follows from constants and GPUs.
  void calibrate() {
    rates.clear();
    links.clear();
    timed.clear();
    last_key = nullptr;
    for (const Pool& pool : problem.cluster->pools) {
      rates.push_back(Rates::of(pool.gpu, path, c));
      links.emplace_back(*problem.cluster, pool.gpu, c);
    }
    update = UpdateTimer(problem, path, c);
  }

  const Timed& segments(const Layout& l) {
    const TimeKey key{l.tp, l.cp, l.ep, l.etp, l.mbs, l.seq, l.sp};
    if (last_key != nullptr && *last_key == key) return *last_timed;
    auto [it, fresh] = timed.try_emplace(key);
    if (fresh) fill(key, it->second);
    last_key = &it->first;
    last_timed = &it->second;
    return it->second;
  }

  void fill(const TimeKey& key, Timed& out) {
    for (std::size_t p = 0; p < rates.size(); ++p)
      out.pools.push_back(timer.times(key, rates[p], links[p]));
    const std::size_t modes = std::max<std::size_t>(problem.inventory.recompute_modes.size(), 2);
    out.whole.assign(modes, 0);
    out.modes = modes;
    out.slowest.resize(2 * modes);
    for (const auto& pool : out.pools) {
      auto& totals = out.totals.emplace_back();
      for (const SegmentTime& t : pool)
        for (std::size_t mode = 0; mode < modes; ++mode)
          totals.push_back(t.total(static_cast<RecomputeMode>(mode)));
    }
    const auto& first = out.pools.front();
    for (std::size_t k = 0; k < first.size(); ++k) {
      const bool layer = k < class_layers.size();
      const double count = layer ? as_double(class_layers[k]) : 1;
      out.parameters.add(first[k].parameters, count);
      out.forward += count * first[k].forward;
      for (std::size_t mode = 0; mode < modes; ++mode) {
        double least = std::numeric_limits<double>::infinity();
        for (std::size_t p = 0; p < out.pools.size(); ++p)
          least = std::min(least, out.total(p, k)[layer ? mode : 0]);
        out.whole[mode] += count * least;
      }
    }
  }

  /// Of equal layers with something heavier at both ends: the least that the slowest stage can
  /// take, since stages hold whole layers. 0 where layers are unlike. \a mode: of every layer.
  double whole_layers(const Layout& l, const Timed& t, std::size_t mode) const {
    Timed::Slowest& last = t.slowest[2 * mode + (folded(l.schedule) ? 1 : 0)];
    if (last.pp != l.pp || last.vpp != l.vpp) last = {l.pp, l.vpp, slowest_stage(l, t, mode)};
    return last.least;
  }

  double slowest_stage(const Layout& l, const Timed& t, std::size_t mode) const {
    const std::int64_t layers = index.layers();
    if (!uniform || l.pp < 2 || links.size() > 1 || layers % l.vpp != 0) return 0;
    const double each = as_double(l.vpp) * t.total(0, 0)[mode];
    if (each <= 0) return 0;
    double ends[2] = {0, 0};
    for (const std::uint32_t r : roots[0]) ends[0] += t.total(0, class_layers.size() + r)[0];
    for (const std::uint32_t r : roots[1]) ends[1] += t.total(0, class_layers.size() + r)[0];
    // A folded schedule puts both ends on the first stage.
    if (folded(l.schedule)) ends[0] += ends[1], ends[1] = 0;
    const auto held = [&](double pace) {
      const auto count = [&](double extra) {
        return std::floor((pace - extra) / each * (1 + 1e-12) + 1e-9);
      };
      return count(ends[0]) + as_double(l.pp - 2) * count(0) + count(ends[1]);
    };
    const double rounds = as_double(layers / l.vpp);
    const double mean = (rounds * each + ends[0] + ends[1]) / as_double(l.pp);
    // The least pace is a whole number of layers of some stage: the next ones from the mean on.
    double least = std::numeric_limits<double>::infinity();
    for (const double extra : {0.0, ends[0], ends[1]}) {
      double k = std::max(1.0, std::floor((mean - extra) / each));
      while (k < rounds && held(k * each + extra) < rounds) ++k;
      least = std::min(least, k * each + extra);
    }
    return least * (1 - 1e-9);
  }

  const std::vector<StageKind>& stages(const Layout& l) {
    shape.assign({l.pp, l.vpp, l.recompute == 0 ? 0 : 1, folded(l.schedule) ? 1 : 0});
    shape.insert(shape.end(), l.stage_layers.begin(), l.stage_layers.end());
    if (l.recompute != 0)
      shape.insert(shape.end(), l.recompute_layers.begin(), l.recompute_layers.end());
    for (const std::uint32_t pool : l.stage_pool) shape.push_back(-1 - std::int64_t{pool});
    auto [it, fresh] = kinds.try_emplace(shape);
    if (!fresh) return it->second;
    const auto on_stages = pieces(*problem.program, l);
    for (std::size_t i = 0; i < on_stages.size(); ++i) {
      StageWork work = index.work(on_stages[i], recomputed_layers(l, i));
      if (!l.stage_pool.empty()) work.pool = l.stage_pool[i];
      const auto alike = std::find_if(it->second.begin(), it->second.end(),
                                      [&](const StageKind& kind) { return kind.work == work; });
      if (alike != it->second.end())
        ++alike->count;
      else
        it->second.push_back({std::move(work), 1});
    }
    return it->second;
  }

  StageSeconds stage_seconds(const Layout& l, const StageWork& work) {
    const auto pool = static_cast<std::size_t>(work.pool);
    const Timed& timed_here = segments(l);
    const auto& times = timed_here.pools[pool];
    SegmentSum s;
    const auto add = [&](std::size_t k, RecomputeMode mode, double count) {
      s.add(times[k], timed_here.total(pool, k), mode, count);
    };
    for (std::size_t k = 0; k < work.layers.size(); ++k) {
      add(k, l.recompute, as_double(work.recomputed[k]));
      add(k, 0, as_double(work.layers[k] - work.recomputed[k]));
    }
    for (const std::uint32_t r : work.roots) add(class_layers.size() + r, 0, 1);
    double away = 0;
    for (std::size_t k = 0; k < work.layers.size(); ++k) {
      const auto exposed = [&](std::size_t mode) {
        return mode < times[k].away.size() ? times[k].away[mode] : 0.0;
      };
      away += as_double(work.recomputed[k]) * exposed(l.recompute) +
              as_double(work.layers[k] - work.recomputed[k]) * exposed(0);
    }
    StageSeconds out;
    out.gathered = update.gathered(l, links[pool], s.parameters, s.total, false);
    out.pace = s.total + out.gathered + away;
    out.tp = s.tp;
    out.cp = s.cp;
    out.ep = s.ep;
    out.recompute = s.total - s.plain;
    // Traffic hides behind a backward without recomputation: more of it must not seem to help.
    out.dp = update.exchange(l, links[pool], s.parameters, s.forward, s.plain - s.forward, false);
    out.optimizer = update.optimizer(l, rates[pool], s.parameters);
    out.tail = out.dp + out.optimizer;
    return out;
  }

  /// Bytes that a stage sends on for one micro-batch: the least and the most over all cuts.
  std::pair<double, double> boundary(const Layout& l) {
    const TimeKey key{l.tp, l.cp, l.ep, l.etp, l.mbs, l.seq, l.sp};
    auto [it, fresh] = boundary_bytes.try_emplace(key);
    if (!fresh) return it->second;
    boundary_tape->run(timer.environment(key));
    double least = boundaries.empty() ? 0 : std::numeric_limits<double>::infinity(), most = 0;
    for (std::size_t i = 0; i < boundaries.size(); ++i) {
      const double bytes = boundary_tape->value(i).to_double();
      least = std::min(least, bytes);
      most = std::max(most, bytes);
    }
    return it->second = {least, most};
  }

  /// Sends between stages; at the cheapest cuts where \a least.
  double sends(const Layout& l, bool least) {
    if (l.pp <= 1) return 0;
    const auto [fewest, most] = boundary(l);
    const double bytes = least ? fewest : most;
    const double one = links.front().send_between_stages(bytes, l.tp * l.cp * l.dp, l.pp);
    const double m = as_double(l.microbatches);
    const double chunks = l.vpp > 1 ? c.interleaved_sends * as_double(l.vpp) : 1;
    const double legacy =
        path.launch == TimePath::Launch::legacy ? c.legacy_send * (m + as_double(l.pp - 1)) : 0;
    return 2 * one * (m * chunks + as_double(l.pp - 1)) + legacy;
  }

  /// Of the datasheet, at the job's precision: the mean over the GPUs.
  double mean_rate(const Layout& l) const {
    const auto of = [](const Rates& r) { return r.flops_fp8 > 0 ? r.flops_fp8 : r.flops; };
    if (l.stage_pool.empty()) return of(rates.front());
    double sum = 0;
    for (const std::uint32_t pool : l.stage_pool) sum += of(rates[pool]);
    return sum / as_double(l.pp);
  }

  double model_flops(std::int64_t seq) {
    const auto it = flops.find(seq);
    if (it != flops.end()) return it->second;
    return flops.emplace(seq, timer.model_flops(seq)).first->second;
  }
};

namespace {
constexpr double kLongest = 9e9;  ///< seconds, so that nanoseconds fit 64 bits

std::int64_t nanoseconds(double seconds) {
  if (!(seconds >= 0 && seconds < kLongest))
    throw ArithmeticError(fmt::format("a step of {:.3g} s is longer than can be told", seconds));
  return static_cast<std::int64_t>(std::ceil(seconds * 1e9));
}

/// Of the time that the stages other than the slowest add to a step, the share that the schedule
/// leaves idle.
std::pair<std::int64_t, std::int64_t> idle_share(const Layout& l) {
  switch (l.schedule) {
    case Schedule::zb_h1:
      return kZeroBubbleH1;
    case Schedule::zb_v:
      return {0, 1};
    case Schedule::dualpipe_v:
      return kDualPipeV;
    case Schedule::one_f_one_b:
    case Schedule::interleaved:
    case Schedule::gpipe:
      break;
  }
  return {1, std::max<std::int64_t>(l.vpp, 1)};
}
}  // namespace

std::int64_t Composition::step(std::int64_t slowest, Int128 sum, std::int64_t tail) const {
  // microbatches * slowest + idle / of * (sum - slowest), rounded up.
  const Int128 scaled = (Int128{microbatches} * of - idle) * slowest + idle * sum;
  const Int128 total = (scaled + of - 1) / of + sends + tail;
  if (total > static_cast<Int128>(kLongest * 1e9))
    throw ArithmeticError(fmt::format("a step of {:.3g} s is longer than can be told",
                                      static_cast<double>(total) * 1e-9));
  return std::max<std::int64_t>(static_cast<std::int64_t>(total), 1);
}

Clock::Clock(const Problem& problem, const TimeConstants& constants)
    : impl_(std::make_unique<Impl>(problem, constants)) {}
Clock::~Clock() = default;

void Clock::recalibrate() { impl_->calibrate(); }

StageTime Clock::stage(const Layout& outer, const StageWork& work) {
  const StageSeconds s = impl_->stage_seconds(outer, work);
  return {nanoseconds(s.pace), nanoseconds(s.tail)};
}

Composition Clock::composition(const Layout& outer) {
  const auto [idle, of] = idle_share(outer);
  return {outer.microbatches, idle, of, nanoseconds(impl_->sends(outer, false))};
}

StepTime Clock::step(const Layout& l) {
  StageSeconds slowest, last;
  StageTime most;
  Int128 sum = 0;
  for (const StageKind& kind : impl_->stages(l)) {
    const StageSeconds s = impl_->stage_seconds(l, kind.work);
    const StageTime whole{nanoseconds(s.pace), nanoseconds(s.tail)};
    sum += Int128{kind.count} * whole.pace;
    if (whole.pace > most.pace) most.pace = whole.pace, slowest = s;
    if (whole.tail > most.tail) most.tail = whole.tail, last = s;
  }
  const Composition composed = composition(l);
  StepTime t;
  t.nanoseconds = composed.step(most.pace, sum, most.tail);
  const double m = as_double(l.microbatches), seconds = as_double(t.nanoseconds) * 1e-9;
  t.bubble = static_cast<double>(composed.idle * (sum - most.pace)) / as_double(composed.of) * 1e-9;
  t.p2p = as_double(composed.sends) * 1e-9;
  t.tp = m * slowest.tp;
  t.cp = m * slowest.cp;
  t.ep = m * slowest.ep;
  t.recompute = m * slowest.recompute;
  t.dp = last.dp + m * slowest.gathered;
  t.optimizer = last.optimizer;
  t.compute =
      std::max(0.0, m * (slowest.pace - slowest.gathered) - t.tp - t.cp - t.ep - t.recompute);
  t.bubble_share = t.bubble / seconds;
  tell_throughput(l, seconds, t);
  return t;
}

StepTime Clock::throughput(const Layout& outer, std::int64_t nanoseconds) {
  StepTime t;
  t.nanoseconds = std::max<std::int64_t>(nanoseconds, 1);
  tell_throughput(outer, as_double(t.nanoseconds) * 1e-9, t);
  return t;
}

void Clock::tell_throughput(const Layout& l, double seconds, StepTime& t) {
  t.model_flops = impl_->model_flops(l.seq) * as_double(l.batch);
  const double gpus = as_double(l.tp * l.pp * l.cp * l.dp);
  t.tflops_per_gpu = t.model_flops / seconds / gpus / 1e12;
  t.mfu = t.model_flops / seconds / gpus / impl_->mean_rate(l);
  t.tokens_per_second = as_double(l.batch) * as_double(l.seq) / seconds;
}

std::int64_t Clock::lower_bound(const Layout& l) {
  const Impl::Timed& t = impl_->segments(l);
  const auto mode = std::min<std::size_t>(l.recompute, t.whole.size() - 1);
  // How many layers a search recomputes is open: none of them, at least.
  const double whole = t.whole[mode == kFullRecompute ? 0 : mode];
  const double pp = as_double(l.pp), m = as_double(l.microbatches);
  const auto [idle_part, idle_of] = idle_share(l);
  const double idle = as_double(idle_part) / as_double(idle_of);
  // (m - idle) * slowest + idle * sum, and the slowest stage takes at least the mean, and whole
  // layers.
  double slowest = whole / pp, sum = whole;
  double seconds = 0;
  const Links& link = impl_->links.front();
  if (impl_->links.size() == 1) {
    Parameters mean;
    mean.add(t.parameters, 1 / pp);
    if (l.zero >= 3) {
      const double gathered = impl_->update.gathered(l, link, mean, whole / pp, true);
      slowest += gathered;
      sum += pp * gathered;
    }
    seconds +=
        impl_->update.exchange(l, link, mean, t.forward / pp, (t.whole[0] - t.forward) / pp, true);
    seconds += impl_->update.optimizer(l, impl_->rates.front(), mean);
    seconds += impl_->sends(l, true);
  }
  slowest = std::max(slowest, impl_->whole_layers(l, t, mode == kFullRecompute ? 0 : mode));
  seconds += (m - idle) * slowest + idle * sum;
  seconds = std::min(seconds, kLongest);
  // A whole nanosecond and a billionth below, so that rounding cannot make it too high.
  return static_cast<std::int64_t>(std::floor(seconds * 1e9 * (1 - 1e-9))) - 1;
}

std::int64_t Clock::core_bound(const Layout& core) {
  Layout l = core;
  const auto [idle_part, idle_of] = idle_share(l);
  const double idle = as_double(idle_part) / as_double(idle_of);
  double seconds = std::numeric_limits<double>::infinity();
  for (const bool sp : {false, true}) {
    if (sp && l.tp == 1) break;
    l.sp = sp;
    const Impl::Timed& t = impl_->segments(l);
    for (std::size_t mode = 0; mode < t.whole.size(); ++mode) {
      const double slowest =
          std::max(t.whole[mode] / as_double(l.pp), impl_->whole_layers(l, t, mode));
      seconds =
          std::min(seconds, (as_double(l.microbatches) - idle) * slowest + idle * t.whole[mode]);
    }
  }
  if (impl_->links.size() == 1) {
    double sends = std::numeric_limits<double>::infinity();
    for (const bool sp : {false, true}) {
      if (sp && l.tp == 1) break;
      l.sp = sp;
      sends = std::min(sends, impl_->sends(l, true));
    }
    seconds += impl_->update.fixed + sends;
  }
  seconds = std::min(seconds, kLongest);
  return static_cast<std::int64_t>(std::floor(seconds * 1e9 * (1 - 1e-9))) - 1;
}

}  // namespace plimsoll
