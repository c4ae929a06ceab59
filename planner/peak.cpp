// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "planner/peak.hpp"

#include <algorithm>

#include "planner/bill_lines.hpp"
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

namespace {
// Below these, 64 bits hold a product and a sum.
constexpr std::int64_t kSmall = std::int64_t{1} << 30, kLargeSum = std::int64_t{1} << 62;
}  // namespace

Footprint footprint(const Inventory& inventory, const Bytes& bytes, std::int64_t outside) {
  Footprint f;
  f.allocated = inventory.counts_blocks ? bytes.blocks : bytes.live;
  const Rational& factor = inventory.reserved_factor;
  std::int64_t scaled = 0;
  if (factor.num() < kSmall && factor.den() < kSmall &&
      !__builtin_mul_overflow(f.allocated, static_cast<std::int64_t>(factor.num()), &scaled) &&
      scaled >= 0 && scaled < kLargeSum)
    f.reserved = (scaled + static_cast<std::int64_t>(factor.den()) - 1) /
                 static_cast<std::int64_t>(factor.den());
  else
    f.reserved = (Rational(f.allocated) * factor).ceil().to_int64();
  f.peak = f.reserved + outside;
  return f;
}

struct Pricer::Impl {
  explicit Impl(const Problem& p) : problem(p), model(p) {}
  const Problem& problem;
  CostModel model;
};

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
  for (std::int64_t stage = 0; stage < l.pp; ++stage) {
    std::int64_t outside = 0;
    const Bytes most = impl_->model.most(stage, outside);
    const Int128 bytes = footprint(p.inventory, most, outside).peak;
    if (l.offload.sign() != 0) {
      const Int128 host = impl_->model.host_bytes(stage), share = host_share(p, l, stage);
      if (stage == 0 || share - host < worst.host_share - worst.host_bytes)
        worst.host_bytes = host, worst.host_share = share;
    }
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

StageBill Pricer::lines(const Layout& l) {
  const Problem& p = impl_->problem;
  StageBill b;
  b.stage = peak(l).stage;
  const StageCost cost = impl_->model.stage(b.stage);
  itemise(p, impl_->model, cost, impl_->model.moments(cost, false).front(), b, false);
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
  itemise(p, model, cost, peak, b);
  const Footprint f = footprint(p.inventory, peak.bytes, cost.outside);
  b.live_bytes = peak.bytes.live;
  b.allocated_bytes = f.allocated;
  b.reserved_bytes = f.reserved;
  b.peak_bytes = f.peak;
  const auto with_segments = [&](const Bytes& bytes) {
    return Int128{footprint(p.inventory, bytes, cost.outside).peak};
  };
  b.steady_bytes = with_segments(cost.between);
  b.update_bytes = with_segments(cost.update);
  b.steady_allocated_bytes = footprint(p.inventory, cost.between, 0).allocated;
  b.first_step_bytes = with_segments(model.moments(cost, true).front().bytes);
  for (const Moment& m : moments) {
    b.moments.push_back({moment_name(p, cost, m), with_segments(m.bytes)});
    b.moments_allocated.push_back(footprint(p.inventory, m.bytes, 0).allocated);
  }
  for (const BillLine& line : b.lines)
    b.categories[static_cast<std::size_t>(line.category)] += line.bytes;
  return b;
}

}  // namespace

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
  const StageBill& worst = result.stages[static_cast<std::size_t>(result.peak_stage)];
  result.peak_bytes = worst.peak_bytes;
  result.hbm_bytes = worst.hbm_bytes;
  result.fits = result.peak_bytes <= result.hbm_bytes;
  // Within the framework's margin of the memory, on either side, nobody should promise.
  const Rational margin = Rational::integer(result.peak_bytes) * p.inventory.margin;
  const Rational distance = Rational::integer(result.hbm_bytes - result.peak_bytes).abs();
  result.verdict = distance < margin ? "edge" : result.fits ? "fits" : "does not fit";
  return result;
}

}  // namespace plimsoll
