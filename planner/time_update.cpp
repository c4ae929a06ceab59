// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/time_update.hpp"

#include <algorithm>
#include <cmath>

#include "planner/time_constants.hpp"

namespace plimsoll {
namespace {

double as_double(std::int64_t v) { return static_cast<double>(v); }

/// The ranks that hold the same dense and the same expert parameters, and those of them that
/// share out states.
struct Groups {
  std::int64_t dense, dense_shard, dense_stride, expert, expert_shard, expert_stride;
};
Groups groups(const Layout& l) {
  constexpr std::int64_t one = 1;
  Groups g{};
  g.dense = std::max(l.dp * l.cp, one);
  g.dense_shard = std::clamp(l.shard > 0 ? l.shard : g.dense, one, g.dense);
  g.dense_stride = l.tp;
  g.expert_stride = std::max(l.etp * l.ep, one);
  g.expert = std::max(g.dense * l.tp / g.expert_stride, one);
  g.expert_shard = std::max(g.expert * g.dense_shard / g.dense, one);
  return g;
}

}  // namespace

UpdateTimer::UpdateTimer(const Problem& problem, const TimePath& path,
                         const TimeConstants& constants)
    : problem_(&problem), constants_(&constants) {
  gpus_per_node_ =
      as_double(std::max<std::int64_t>(problem.cluster->pools.front().gpus_per_node, 1));
  for (const Item& item : problem.inventory.items)
    if (item.category == Category::gradients) {
      gradient_bytes_ = item.dtype == "bf16" || item.dtype == "fp16" ? 2 : 4;
      break;
    }
  weight_bytes_ = problem.inventory.facts.weight_bytes.to_double();
  fixed = path.kernels == TimePath::Kernels::y2023 ? constants.step_2023
          : path.torch                             ? constants.step_torch
                                                   : constants.step_megatron;
}

double UpdateTimer::exchange(const Layout& l, const Links& link, const Parameters& held,
                             double forward, double backward, bool bound) const {
  const Groups g = groups(l);
  double scatter = 0, gather = 0;
  const auto part = [&](double params, std::int64_t n, std::int64_t stride, std::int64_t shard) {
    if (params <= 0 || n <= 1) return;
    const double buckets = std::ceil(params / constants_->bucket);
    const double grads = gradient_bytes_ * params, weights = weight_bytes_ * params;
    const auto ring = [&](double bytes, std::int64_t group, std::int64_t step) {
      const double moved = link.ring(bytes, group, step);
      return bound ? std::max(0.0, moved - link.latency(group))
                   : moved + (buckets - 1) * link.latency(group);
    };
    if (l.zero == 0) {
      scatter += 2 * ring(grads, n, stride);
      return;
    }
    const std::int64_t s = std::clamp<std::int64_t>(shard, 1, n);
    scatter += ring(grads, s, stride);
    if (s < n)  // replicas of the shard group add up what each holds
      scatter += 2 * ring(grads / as_double(s), n / s, stride * s);
    gather += ring(weights, s, stride);
  };
  part(held.dense, g.dense, g.dense_stride, g.dense_shard);
  part(held.expert, g.expert, g.expert_stride, g.expert_shard);
  if (l.zero >= 3) return 0;  // inside the micro-batches, see gathered()
  const double m = as_double(l.microbatches);
  // ZeRO 2 has no room for whole gradients: it scatters those of every micro-batch.
  const double times = l.zero == 2 ? m : 1;
  return times * (scatter - constants_->overlap_dp * std::min(scatter, backward)) + gather -
         constants_->overlap_dp * std::min(gather, forward);
}

double UpdateTimer::gathered(const Layout& l, const Links& link, const Parameters& held,
                             double compute, bool bound) const {
  const Groups g = groups(l);
  if (l.zero < 3 || g.dense <= 1) return 0;
  const auto ring = [&](double moved, std::int64_t n, std::int64_t stride) {
    return link.ring(moved, n, stride) - (bound ? link.latency(n) : 0);
  };
  const auto part = [&](double trained, double frozen, std::int64_t n, std::int64_t stride,
                        std::int64_t shard) {
    if (trained + frozen <= 0) return 0.0;
    const double grads = gradient_bytes_ * trained;
    double t = ring(2 * weight_bytes_ * (trained + frozen) + grads, shard, stride);
    if (shard < n && grads > 0) t += 2 * ring(grads / as_double(shard), n / shard, stride * shard);
    return t;
  };
  const double comm =
      part(held.dense, held.frozen_dense, g.dense, g.dense_stride, g.dense_shard) +
      part(held.expert, held.frozen_expert, g.expert, g.expert_stride, g.expert_shard);
  return comm - constants_->overlap_fsdp * std::min(comm, compute);
}

double UpdateTimer::optimizer(const Layout& l, const Rates& rate, const Parameters& on_rank) const {
  const Groups g = groups(l);
  const bool shared = l.zero > 0;
  const double held = on_rank.dense / (shared ? as_double(g.dense_shard) : 1) +
                      on_rank.expert / (shared ? as_double(g.expert_shard) : 1);
  double t = (constants_->optimizer_bytes * held +
              (l.zero < 3 ? constants_->gradient_bytes : 0) * (on_rank.dense + on_rank.expert)) /
             rate.bandwidth;
  const double away = l.offload.to_double();
  if (away > 0) {
    const double pcie = problem_->cluster->pcie.sign() > 0
                            ? problem_->cluster->pcie.to_double() / gpus_per_node_
                            : constants_->pcie;
    t += away * held *
         (constants_->offload_bytes / pcie +
          constants_->host_update * gpus_per_node_ / constants_->host_bandwidth);
  }
  return t + fixed;
}

}  // namespace plimsoll
