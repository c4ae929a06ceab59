// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "planner/peak.hpp"

#include <algorithm>

#include "planner/bill_lines.hpp"
#include "planner/other_moments.hpp"
#include "planner/range.hpp"
#include "planner/segments.hpp"
#include "planner/serve.hpp"
#include "planner/stage_cost.hpp"

namespace plimsoll {

namespace {

const Gpu& gpu_of(const Problem& p, const Layout& l, std::int64_t stage) {
  if (l.stage_pool.empty()) return p.cluster->pools.front().gpu;
  return p.cluster->pools[l.stage_pool[static_cast<std::size_t>(stage)]].gpu;
}

}  // namespace

Int128 usable_memory(const Problem& p, const Layout& l, std::int64_t stage) {
  return gpu_of(p, l, stage).memory - p.cluster->occupied;
}

Int128 host_share(const Problem& p, const Layout& l, std::int64_t stage) {
  const auto pool = l.stage_pool.empty() ? 0 : l.stage_pool[static_cast<std::size_t>(stage)];
  if (p.cluster->host_memory <= 0) return Int128{1} << 62;  // check_offload() asks for it
  return p.cluster->host_memory / std::max<std::int64_t>(p.cluster->pools[pool].gpus_per_node, 1);
}

bool uses_host(const Problem& p, const Layout& l) {
  return l.offload.sign() != 0 || p.inventory.offloads_activations;
}

namespace {
// Below these, 64 bits hold a product and a sum.
constexpr std::int64_t kSmall = std::int64_t{1} << 30, kLargeSum = std::int64_t{1} << 62;
}  // namespace

Footprint footprint(const Inventory& inventory, const Bytes& bytes, std::int64_t outside) {
  const std::int64_t allocated = inventory.counts_blocks ? bytes.blocks : bytes.live;
  const Rational& factor = inventory.reserved_factor;
  std::int64_t scaled = 0, reserved = 0;
  if (factor.num() < kSmall && factor.den() < kSmall &&
      !__builtin_mul_overflow(allocated, static_cast<std::int64_t>(factor.num()), &scaled) &&
      scaled >= 0 && scaled < kLargeSum)
    reserved = (scaled + static_cast<std::int64_t>(factor.den()) - 1) /
               static_cast<std::int64_t>(factor.den());
  else
    reserved = (Rational(allocated) * factor).ceil().to_int64();
  return footprint(inventory, bytes, outside, reserved);
}

Footprint footprint(const Inventory& inventory, const Bytes& bytes, std::int64_t outside,
                    std::int64_t reserved) {
  Footprint f;
  f.allocated = inventory.counts_blocks ? bytes.blocks : bytes.live;
  f.reserved = std::max(f.allocated, reserved);
  f.peak = f.reserved + outside;
  return f;
}

bool replays(const Problem& p) { return p.segments && !p.job->serve && p.inventory.is_replayed(); }

namespace {

/// The peak of a stage whose largest moment is \a most.
Footprint exact_footprint(const Problem& p, const Layout& l, std::int64_t stage, const Bytes& most,
                          std::int64_t outside) {
  return replays(p) ? footprint(p.inventory, most, outside, p.segments->reserved(p, l, stage))
                    : footprint(p.inventory, most, outside);
}

/// More than a stage's segments come to: what tells which stages need not be replayed. Of 400
/// random layouts of seven models none came to more than 1.21 of its blocks, 256 MiB, and, where
/// ZeRO 1 or 2 keep the weights in a buffer, what the parameters took before it was made; of small
/// models one came to 1.43 of 2.3 GiB. This leaves room beyond both.
Int128 generous(const Bytes& most, const Constructed& constructed) {
  return Int128{most.blocks} + most.blocks / 3 + (std::int64_t{1} << 30) + constructed.parameters;
}

}  // namespace

struct Pricer::Impl {
  explicit Impl(const Problem& p) : problem(p), model(p) {}

  struct Stage {
    std::int64_t number = 0, outside = 0;
    Bytes most;
    Int128 usable = 0;
    Int128 left = 0;   ///< at least, see generous()
    Int128 least = 0;  ///< of what it takes
  };
  /// Stages that differ in nothing but how many micro-batches they hold, the fullest first. Fewer
  /// micro-batches take no more segments, to 0.25 % of them or one of 20 MiB (400 random layouts;
  /// of some 4,000 pairs of neighbours four took more, by 0.06, 0.2 and 0.24 %): the first stands
  /// for all of them.
  using Family = std::vector<Stage>;
  /// Those of the prepared layout, the tightest first.
  std::vector<Family> families(const Layout& l);
  /// What is in host memory, of the stage of the prepared layout where least is left.
  void set_host(const Layout& l, Peak& worst);
  /// Does it take more than \a limit?
  bool is_over(const Layout& l, const Stage&, Int128 limit);

  const Problem& problem;
  CostModel model;
};

void Pricer::Impl::set_host(const Layout& l, Peak& worst) {
  if (!uses_host(problem, l)) return;
  for (std::int64_t i = 0; i < l.pp; ++i) {
    const Int128 host = model.host_bytes(i), share = host_share(problem, l, i);
    if (i == 0 || share - host < worst.host_share - worst.host_bytes)
      worst.host_bytes = host, worst.host_share = share;
  }
}

std::vector<Pricer::Impl::Family> Pricer::Impl::families(const Layout& l) {
  std::vector<Family> found;
  for (std::int64_t i = 0; i < l.pp; ++i) {
    Stage s;
    s.number = i;
    s.most = model.most(i, s.outside);
    s.usable = usable_memory(problem, l, i);
    const Constructed constructed = model.constructed(i);
    s.left = s.usable - generous(s.most, constructed) - s.outside;
    s.least = constructed.together + s.outside;
    const auto own = std::find_if(found.begin(), found.end(), [&](const Family& f) {
      return f.front().usable == s.usable && model.alike(f.front().number, i);
    });
    if (own == found.end())
      found.push_back({s});
    else
      own->push_back(s);
  }
  for (Family& f : found)
    std::stable_sort(f.begin(), f.end(),
                     [](const Stage& a, const Stage& b) { return a.most.blocks > b.most.blocks; });
  return found;
}

Pricer::Pricer(const Problem& p) : impl_(std::make_unique<Impl>(p)) {}
Pricer::~Pricer() = default;

Pricer::Peak Pricer::peak(const Layout& l) {
  const Problem& p = impl_->problem;
  Peak worst;
  if (p.job->serve) {
    const Bill b = bill(p, l);
    return {b.peak_bytes, b.peak_stage, b.fits, b.hbm_bytes - b.peak_bytes, 0, 0};
  }
  impl_->model.set(l);
  impl_->set_host(l, worst);
  for (std::int64_t stage = 0; stage < l.pp; ++stage) {
    std::int64_t outside = 0;
    const Bytes most = impl_->model.most(stage, outside);
    const Int128 bytes = footprint(p.inventory, most, outside).peak;
    const Int128 left = usable_memory(p, l, stage) - bytes;
    if (stage == 0 || left < worst.headroom_bytes) {
      worst.headroom_bytes = left;
      worst.bytes = bytes;
      worst.stage = stage;
    }
  }
  worst.fits = worst.headroom_bytes >= 0 && worst.host_bytes <= worst.host_share;
  return worst;
}

Pricer::Peak Pricer::exact(const Layout& l) {
  const Problem& p = impl_->problem;
  if (!replays(p)) return peak(l);
  impl_->model.set(l);
  Peak worst;
  impl_->set_host(l, worst);
  const std::vector<Impl::Family> families = impl_->families(l);
  bool first = true;
  for (const Impl::Family& family : families) {
    const Impl::Stage& s = family.front();
    if (!first && s.left > worst.headroom_bytes) break;
    const Int128 bytes = exact_footprint(p, l, s.number, s.most, s.outside).peak;
    const Int128 left = s.usable - bytes;
    if (first || left < worst.headroom_bytes ||
        (left == worst.headroom_bytes && s.number < worst.stage)) {
      worst.headroom_bytes = left;
      worst.bytes = bytes;
      worst.stage = s.number;
    }
    first = false;
  }
  worst.fits = worst.headroom_bytes >= 0 && worst.host_bytes <= worst.host_share;
  return worst;
}

bool Pricer::Impl::is_over(const Layout& l, const Stage& s, Int128 limit) {
  if (s.least > limit) return true;
  if (s.usable - s.left <= limit) return false;
  const Int128 left = limit - s.outside;  // for segments, which hold the blocks at least
  return left < footprint(problem.inventory, s.most, 0, 0).peak ||
         problem.segments->more_than(static_cast<std::int64_t>(left), problem, l, s.number);
}

std::vector<std::int64_t> Pricer::stages_over(const Layout& l, std::int64_t cap) {
  std::vector<std::int64_t> over;
  if (!replays(impl_->problem)) return over;
  impl_->model.set(l);
  for (const Impl::Family& family : impl_->families(l)) {
    const auto is_over = [&](const Impl::Stage& s) {
      return impl_->is_over(l, s, std::min<Int128>(s.usable, cap));
    };
    if (!is_over(family.front())) continue;
    // The first that holds few enough micro-batches: those before it are over.
    const auto enough = std::partition_point(family.begin() + 1, family.end(), is_over);
    for (auto s = family.begin(); s != enough; ++s) over.push_back(s->number);
  }
  std::sort(over.begin(), over.end());
  return over;
}

bool Pricer::any_stage_over(const Layout& l, std::int64_t cap) {
  if (!replays(impl_->problem)) return false;
  impl_->model.set(l);
  const std::vector<Impl::Family> families = impl_->families(l);
  return std::any_of(families.begin(), families.end(), [&](const Impl::Family& family) {
    const Impl::Stage& s = family.front();
    return impl_->is_over(l, s, std::min<Int128>(s.usable, cap));
  });
}

StageBill Pricer::lines(const Layout& l, bool exactly) {
  const Problem& p = impl_->problem;
  StageBill b;
  b.stage = (exactly ? exact(l) : peak(l)).stage;
  const StageCost cost = impl_->model.stage(b.stage);
  const Moment most = impl_->model.moments(cost, false).front();
  itemise(p, impl_->model, cost, most,
          exactly ? exact_footprint(p, l, b.stage, most.bytes, cost.outside)
                  : footprint(p.inventory, most.bytes, cost.outside),
          b, false);
  for (const BillLine& line : b.lines)
    b.categories[static_cast<std::size_t>(line.category)] += line.bytes;
  return b;
}

namespace {

StageBill bill_stage(const Problem& p, const Layout& l, CostModel& model, std::int64_t stage) {
  const StageCost cost = model.stage(stage);
  const std::vector<Moment> moments = model.moments(cost, false);
  const Moment& peak = moments.front();
  StageBill b;
  b.stage = stage;
  b.layers = l.stage_layers[static_cast<std::size_t>(stage)];
  const Footprint f = exact_footprint(p, l, stage, peak.bytes, cost.outside);
  itemise(p, model, cost, peak, f, b);
  b.live_bytes = peak.bytes.live;
  b.allocated_bytes = f.allocated;
  b.reserved_bytes = f.reserved;
  b.peak_bytes = f.peak;
  // Segments at other moments: in the proportion that they have to the peak's blocks.
  const auto with_segments = [&](const Bytes& bytes) {
    const Footprint own = footprint(p.inventory, bytes, cost.outside);
    if (!replays(p) || f.allocated == 0) return Int128{own.peak};
    return Int128{own.allocated} * f.reserved / f.allocated + cost.outside;
  };
  b.steady_bytes = with_segments(cost.between);
  b.update_bytes = with_segments(cost.update);
  b.steady_allocated_bytes = footprint(p.inventory, cost.between, 0).allocated;
  b.first_step_bytes = with_segments(model.moments(cost, true).front().bytes);
  for (const Moment& m : moments) {
    b.moments.push_back({moment_name(p, cost, m), with_segments(m.bytes)});
    b.moments_allocated.push_back(footprint(p.inventory, m.bytes, 0).allocated);
  }
  b.others = other_moments(p, model, cost, with_segments);
  for (const BillLine& line : b.lines)
    b.categories[static_cast<std::size_t>(line.category)] += line.bytes;
  return b;
}

void conclude(Bill& result, const Problem& p) {
  const StageBill& worst = result.stages[static_cast<std::size_t>(result.peak_stage)];
  result.peak_bytes = worst.peak_bytes;
  result.hbm_bytes = worst.hbm_bytes;
  result.fits = result.peak_bytes <= result.hbm_bytes;
  result.range = measured_range(p, result.layout, worst);
  result.verdict = verdict(p, result.peak_bytes, result.hbm_bytes, result.range);
}

}  // namespace

Bill peak_bill(const Problem& p, const Layout& l) {
  if (p.job->serve) return bill(p, l);
  Bill result;
  result.layout = l;
  result.params = p.program->parameter_count();
  result.peak_stage = Pricer(p).exact(l).stage;
  CostModel model(p);
  model.set(l);
  result.stages.resize(static_cast<std::size_t>(l.pp));
  StageBill& tightest = result.stages[static_cast<std::size_t>(result.peak_stage)];
  tightest = bill_stage(p, l, model, result.peak_stage);
  tightest.hbm_bytes = usable_memory(p, l, result.peak_stage);
  conclude(result, p);
  return result;
}

Bill bill(const Problem& p, const Layout& l) {
  if (p.job->serve) {
    Bill served = serve_bill(p, l);
    if (served.peak_bytes > Int128{1} << 62)
      throw ArithmeticError("the server holds more bytes than 64 bits can count");
    return served;
  }
  Bill result;
  result.layout = l;
  result.params = p.program->parameter_count();
  CostModel model(p);
  model.set(l);
  Int128 least = 0;
  for (std::int64_t stage = 0; stage < l.pp; ++stage) {
    result.stages.push_back(bill_stage(p, l, model, stage));
    StageBill& made = result.stages.back();
    made.hbm_bytes = usable_memory(p, l, stage);
    const Int128 left = made.hbm_bytes - made.peak_bytes;
    if (stage == 0 || left < least) {
      least = left;
      result.peak_stage = stage;
    }
  }
  conclude(result, p);
  return result;
}

}  // namespace plimsoll
