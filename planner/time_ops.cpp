// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/time_ops.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace plimsoll {
namespace {

double number(const Gpu& gpu, const char* name, double otherwise) {
  const auto it = gpu.numbers.find(name);
  return it != gpu.numbers.end() ? it->second.value.to_double() : otherwise;
}

/// Backward's traffic of an op that is no matrix product, of forward's; lang/ops/traffic.hpp.
constexpr double kBackwardTraffic = 1.75;

/// SMs or CUs.
constexpr double kUnitsAmpere = 108, kUnitsHopper = 132, kUnitsBlackwell = 148, kUnitsMi300 = 304,
                 kUnitsConsumer = 142;

Architecture hopper(const TimePath& path, const TimeConstants& c) {
  double attention = c.attention_hopper;
  if (path.torch && path.kernels == TimePath::Kernels::current) attention *= c.attention_torch;
  if (path.kernels == TimePath::Kernels::y2023) attention = c.attention_2023_hopper;
  return {c.gemm_hopper, c.fp8_hopper, attention, kUnitsHopper};
}

Architecture architecture_of(const Gpu& gpu, const TimePath& path, const TimeConstants& c) {
  const bool y2023 = path.kernels == TimePath::Kernels::y2023;
  if (gpu.sm == 0) return {c.gemm_mi300, c.fp8_mi300, c.attention_mi300, kUnitsMi300};
  if (gpu.sm == 80)
    return {c.gemm_ampere, c.gemm_ampere, y2023 ? c.attention_2023_ampere : c.attention_ampere,
            kUnitsAmpere};
  if (gpu.sm == 90) return hopper(path, c);
  if (gpu.sm == 100 || gpu.sm == 103) {
    const double ultra = gpu.sm == 103 ? c.blackwell_ultra : 1;
    const bool torch = path.torch && path.kernels == TimePath::Kernels::current;
    return {c.gemm_blackwell * ultra, c.fp8_blackwell * ultra,
            c.attention_blackwell * ultra * (torch ? c.attention_torch : 1), kUnitsBlackwell};
  }
  return {c.gemm_consumer, c.fp8_consumer, c.attention_consumer, kUnitsConsumer};
}

double peak(const Gpu& gpu, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto it = gpu.peak.find(name); it != gpu.peak.end() && it->second.sign() > 0)
      return it->second.to_double();
  return 0;
}

}  // namespace

Rates Rates::of(const Gpu& gpu, const TimePath& path, const TimeConstants& c) {
  const std::string& precision = path.precision;
  Rates r;
  r.constants = &c;
  r.architecture = architecture_of(gpu, path, c);
  r.architecture.gemm = number(gpu, "gemm_efficiency", r.architecture.gemm);
  r.architecture.gemm_fp8 = number(gpu, "fp8_efficiency", r.architecture.gemm_fp8);
  if (path.rowwise) r.architecture.gemm_fp8 *= c.rowwise;
  r.architecture.attention = number(gpu, "attention_efficiency", r.architecture.attention);
  const bool full = precision == "fp32";
  r.element = full ? 4 : 2;
  r.flops = full ? peak(gpu, {"tf32", "fp32", "bf16", "fp16"})
                 : peak(gpu, {precision == "fp16" ? "fp16" : "bf16", "bf16", "fp16", "fp32"});
  if (r.flops <= 0) r.flops = 1e12;
  r.flops_fp8 = precision == "fp8" ? peak(gpu, {"fp8"}) : 0;
  r.bandwidth = gpu.bandwidth.to_double() * number(gpu, "bandwidth_efficiency", c.bandwidth);
  if (r.bandwidth <= 0) r.bandwidth = 1e12;
  return r;
}

double gemm_time(const Rates& rates, double m, double n, double k, double copies, bool fp8,
                 double output_bytes) {
  if (!(m > 0 && n > 0 && k > 0 && copies > 0)) return 0;
  fp8 = fp8 && rates.flops_fp8 > 0;
  const TimeConstants& c = *rates.constants;
  double fill = 0;
  for (const Tile& tile : kTiles) {
    const double rows = std::ceil(m / tile.m), cols = std::ceil(n / tile.n);
    const double useful = m * n / (rows * tile.m * cols * tile.n);
    const double waves = rows * cols * copies / rates.architecture.units;
    fill = std::max(fill, tile.efficiency * useful * waves / std::ceil(waves));
  }
  double efficiency = (fp8 ? rates.architecture.gemm_fp8 : rates.architecture.gemm) * k /
                      (k + c.inner_half) * std::pow(fill, c.wave_exponent);
  if (copies > 1) efficiency *= c.grouped;
  const double arithmetic =
      2 * m * n * k * copies / ((fp8 ? rates.flops_fp8 : rates.flops) * efficiency);
  const double width = fp8 ? 1 : rates.element;
  const double bytes = copies * (width * (m * k + k * n) + output_bytes * m * n);
  return std::max(arithmetic, bytes / rates.bandwidth) + c.launch;
}

namespace {
/// The GPU's time and the host's, each mostly hidden behind the other.
double together(double gpu, double host, double n) {
  if (!(host > 0)) return gpu;
  const double longer = std::max(gpu, host), shorter = std::min(gpu, host);
  return longer * std::pow(1 + std::pow(shorter / longer, n), 1 / n);
}
}  // namespace

double SegmentTime::total(RecomputeMode mode) const {
  const double again = mode < recompute.size() ? recompute[mode] : 0;
  const double launches = mode < host_again.size() ? host_again[mode] : 0;
  return together(forward, host, blend) + together(backward + again, host + launches, blend);
}

Env SegmentTimer::environment(const TimeKey& key) const {
  Env env;
  const auto set = [&](Var v, std::int64_t value) { env[v] = value; };
  set(Var::tp, key.tp);
  set(Var::cp, key.cp);
  set(Var::ep, key.ep);
  set(Var::etp, key.etp);
  set(Var::mbs, key.mbs);
  set(Var::seq, key.seq);
  set(Var::sp, key.sp ? 1 : 0);
  for (const Var v : {Var::pp, Var::vpp, Var::dp, Var::shard, Var::microbatches, Var::expert_dp,
                      Var::expert_shard, Var::gpus, Var::nodes, Var::gpus_per_node})
    set(v, 1);
  set(Var::target, target_ > 0 ? target_ : key.seq);
  return env;
}

void SegmentTimer::run(const TimeKey& key) {
  tape_->run(environment(key));
  for (std::size_t i = 0; i < roots_.size(); ++i) values_[i] = tape_->value(i).to_double();
}

double SegmentTimer::traffic(const Traffic& c, const TimedOp& op, const TimeKey& key,
                             const Links& links, double hide) const {
  std::int64_t n = key.tp, stride = 1;
  if (c.group == ops::Group::cp) n = key.cp, stride = key.tp;
  if (c.group == ops::Group::ep) n = key.ep, stride = key.etp;
  if (c.group == ops::Group::etp) n = key.etp;
  const double bytes = values_[c.bytes];
  if (n <= 1 || !(bytes > 0)) return 0;
  const double exposed =
      c.group == ops::Group::tp && path_.tp_overlap ? constants_.tp_overlapped : 1;
  switch (c.kind) {
    case ops::CollectiveKind::all_gather:
    case ops::CollectiveKind::reduce_scatter:
      return links.ring(bytes, n, stride) * exposed * (c.hidden_partly ? constants_.regather : 1);
    case ops::CollectiveKind::all_reduce:
      return 2 * links.ring(bytes, n, stride) * exposed;
    case ops::CollectiveKind::all_to_all:
      return links.all_to_all(bytes, n, stride, op.top_k,
                              path_.dispatch != TimePath::Dispatch::alltoall);
    case ops::CollectiveKind::ring:
      return std::max(
          0.0, links.ring(bytes, n, stride) + constants_.alpha * static_cast<double>(n - 2) - hide);
  }
  return 0;
}

/// Of an op's own traffic (no matrix product), how much there is as this stack runs it.
double SegmentTimer::traffic_factor(const TimedOp& op) const {
  if (op.kind == OpKind::attention) return 1;
  if (op.kind == OpKind::experts || op.kind == OpKind::combine) {
    if (path_.fused_experts) return constants_.routed_fused;
    // DeepEP and HybridEP sort rows by rank as they send them; what is left sorts by expert.
    const bool sorted = path_.dispatch != TimePath::Dispatch::alltoall;
    return sorted ? constants_.routed_sorted : 1;
  }
  if (op.in_experts && path_.fused_experts && op.kind != OpKind::linear) return 0;
  return path_.eager ? constants_.eager : 1;
}

/// What the host needs to launch a layer's forward.
double SegmentTimer::host_time(const TimedSegment& s, const TimeKey& key) const {
  if (!s.is_layer || path_.launch == TimePath::Launch::graphs) return 0;
  if (path_.launch != TimePath::Launch::legacy) {
    // tp's collectives are launched too, and each expert as if it were an op.
    double launches = 0;
    if (path_.launch == TimePath::Launch::kernels)
      launches = s.launches + s.casts + (key.tp > 1 ? s.tp_collectives : 0) +
                 s.attentions * 2 * static_cast<double>(key.cp - 1);
    if (s.experts > 0) launches += std::max(1.0, s.experts / static_cast<double>(key.ep));
    const bool waits = s.counted && path_.dispatch != TimePath::Dispatch::hybridep;
    return constants_.host_op * launches + (waits ? constants_.host_counts : 0);
  }
  const double eighth = static_cast<double>(key.tp) / 8;
  return constants_.host_legacy + (key.tp > 1 ? constants_.host_legacy_tp8 * eighth * eighth : 0);
}

SegmentTimer::Cost SegmentTimer::cost(const TimedOp& op, const TimeKey& key, const Rates& rates,
                                      const Links& links) const {
  Cost out;
  const bool fp8 = op.fp8 && rates.flops_fp8 > 0;
  for (const Product& p : op.products) {
    const double m = values_[p.m], n = values_[p.n], k = values_[p.k], copies = values_[p.count];
    out.forward += gemm_time(rates, m, n, k, copies, fp8, rates.element);
    out.backward += gemm_time(rates, m, k, n, copies, fp8, rates.element);
    if (op.trained)
      out.backward += gemm_time(rates, k, n, m, copies, fp8, constants_.weight_gradient_bytes);
    if (fp8) {
      out.forward += constants_.quantize_bytes * m * k * copies / rates.bandwidth;
      out.backward += constants_.quantize_bytes * m * n * copies / rates.bandwidth;
    }
  }
  if (op.in_experts && op.biased && !op.products.empty()) {
    // A bias of each expert on its own rows, and what bounds the activation, in kernels of their
    // own.
    const Product& p = op.products.front();
    const double bytes = constants_.expert_bias * values_[p.m] * values_[p.n] * values_[p.count] *
                         (path_.fused_experts ? constants_.expert_bias_fused : 1);
    out.forward += bytes / rates.bandwidth;
    out.backward += kBackwardTraffic * bytes / rates.bandwidth;
  }
  double attention_backward = 0;
  if (const double flops = values_[op.attention]; flops > 0) {
    const double rate = path_.unfused
                            ? rates.flops * rates.architecture.gemm * constants_.unfused_product
                            : rates.flops * rates.architecture.attention;
    out.attention_forward = flops / rate;
    if (path_.fp8_attention) out.attention_forward /= constants_.attention_fp8;
    if (path_.torch && key.cp > 2) out.attention_forward *= constants_.cp_torch;
    attention_backward = path_.unfused ? 2 * out.attention_forward
                                       : constants_.attention_backward_flops *
                                             out.attention_forward / constants_.attention_backward;
  }
  // Around cp's ring every step is a kernel of its own, and one that adds its result to the last.
  const double steps = op.kind == OpKind::attention ? static_cast<double>(key.cp) : 1;
  const double kernels = constants_.launch * 2 * (steps - 1);
  const double factor = steps * traffic_factor(op) / rates.bandwidth;
  out.forward += out.attention_forward + values_[op.bytes_forward] * factor + kernels;
  out.backward += attention_backward + values_[op.bytes_backward] * factor + kernels;
  const auto exchange = [&](const std::vector<Traffic>& all, double attention) {
    double sum = 0;
    for (const Traffic& c : all) {
      const double t = traffic(c, op, key, links, constants_.ring_hidden * attention);
      sum += t;
      (c.group == ops::Group::cp ? out.cp : c.group == ops::Group::ep ? out.ep : out.tp) += t;
    }
    return sum;
  };
  out.forward_traffic = exchange(op.forward, out.attention_forward);
  out.ep_forward = out.ep;
  out.forward += out.forward_traffic;
  out.backward_traffic = exchange(op.backward, attention_backward);
  out.backward += out.backward_traffic;
  return out;
}

/// A layer's forward exchange runs beside another micro-batch's backward and the other way round:
/// what is longer than that compute is exposed, and of the rest what the products lose to it.
void SegmentTimer::hide_experts(SegmentTime& t, double ep_forward) const {
  const double ep_backward = t.ep - ep_forward;
  const double forward = t.forward - ep_forward, backward = t.backward - ep_backward;
  const auto exposed = [&](double sent, double beside) {
    return std::max(constants_.ep_overlapped * sent, sent - beside);
  };
  const double first = exposed(ep_forward, backward), second = exposed(ep_backward, forward);
  t.forward = forward + first;
  t.backward = backward + second;
  t.ep = first + second;
}

std::vector<SegmentTime> SegmentTimer::times(const TimeKey& key, const Rates& rates,
                                             const Links& links) {
  run(key);
  std::vector<SegmentTime> out;
  out.reserve(segments_.size());
  for (const TimedSegment& s : segments_) {
    SegmentTime t;
    double ep_forward = 0;
    t.recompute.assign(modes_, 0);
    for (const TimedOp& op : s.ops) {
      const Cost c = cost(op, key, rates, links);
      t.forward += c.forward;
      t.backward += c.backward;
      t.tp += c.tp;
      t.cp += c.cp;
      t.ep += c.ep;
      ep_forward += c.ep_forward;
      for (std::size_t mode = 1; mode < modes_; ++mode)
        if (op.again[mode]) t.recompute[mode] += c.forward;
    }
    if (path_.ep_overlap && t.ep > 0) hide_experts(t, ep_forward);
    t.host = host_time(s, key);
    t.host_again.assign(modes_, 0);
    t.host_again[kFullRecompute] = t.host;
    if (path_.launch == TimePath::Launch::kernels)
      for (std::size_t mode = kFullRecompute + 1; mode < modes_; ++mode)
        for (const TimedOp& op : s.ops)
          if (op.again[mode]) t.host_again[mode] += constants_.host_op;
    t.blend = constants_.host_blend;
    for (const std::vector<Slot>& kept : s.away) {
      double bytes = 0;
      for (const Slot i : kept) bytes += values_[i];
      // Each way beside that direction's compute.
      const double way = bytes / pcie_;
      t.away.push_back(std::max(0.0, way - t.forward) + std::max(0.0, way - t.backward));
    }
    for (const Slot i : s.dense) t.parameters.dense += values_[i];
    for (const Slot i : s.expert) t.parameters.expert += values_[i];
    for (const Slot i : s.frozen_dense) t.parameters.frozen_dense += values_[i];
    for (const Slot i : s.frozen_expert) t.parameters.frozen_expert += values_[i];
    out.push_back(std::move(t));
  }
  return out;
}

std::vector<std::vector<OpSeconds>> SegmentTimer::op_times(const TimeKey& key, const Rates& rates,
                                                           const Links& links) {
  run(key);
  std::vector<std::vector<OpSeconds>> out;
  for (const TimedSegment& s : segments_) {
    std::vector<OpSeconds>& ops = out.emplace_back();
    for (const TimedOp& op : s.ops) {
      const Cost c = cost(op, key, rates, links);
      ops.push_back(
          {op.kind, c.forward, c.backward, c.forward_traffic, c.backward_traffic, op.again});
    }
  }
  return out;
}

double SegmentTimer::model_flops(std::int64_t seq) {
  TimeKey key;
  key.seq = seq;
  run(key);
  double sum = 0;
  for (const TimedSegment& s : segments_) {
    double one = 0;
    for (const std::uint32_t i : s.flops) one += values_[i];
    sum += one * static_cast<double>(s.times);
  }
  return sum;
}

}  // namespace plimsoll
