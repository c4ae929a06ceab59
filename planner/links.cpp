// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/links.hpp"

#include <algorithm>
#include <cmath>

#include "planner/time_constants.hpp"

namespace plimsoll {
namespace {
double number(const Gpu& gpu, const char* name, double otherwise) {
  const auto it = gpu.numbers.find(name);
  return it != gpu.numbers.end() ? it->second.value.to_double() : otherwise;
}
}  // namespace

Links::Links(const Cluster& cluster, const Gpu& gpu, const TimeConstants& constants)
    : domain_(std::max<std::int64_t>(cluster.nvlink_domain, 1)), constants_(&constants) {
  const double nvlink = gpu.nvlink.to_double();
  link_ = nvlink > 0 ? nvlink : constants_->pcie / constants_->nvlink;
  efficiency_ = number(gpu, "nvlink_efficiency", constants_->nvlink);
  const double nic = gpu.nic.to_double();
  nic_ = (nic > 0 ? nic : constants_->default_nic) * number(gpu, "nic_efficiency", constants_->nic);
}

std::int64_t Links::local(std::int64_t n, std::int64_t stride) const {
  return std::clamp<std::int64_t>(domain_ / std::max<std::int64_t>(stride, 1), 1, n);
}

double Links::bandwidth(std::int64_t n, std::int64_t stride) const {
  const std::int64_t inside = local(n, stride);
  const double fast = efficiency_ * link_;
  return inside == n ? fast : std::min(fast, static_cast<double>(inside) * nic_);
}

double Links::latency(std::int64_t n) const {
  return n <= 1 ? 0 : constants_->alpha + constants_->beta * static_cast<double>(n - 1);
}

double Links::ring(double bytes, std::int64_t n, std::int64_t stride) const {
  if (n <= 1) return 0;
  const auto ranks = static_cast<double>(n);
  return bytes * (ranks - 1) / ranks / bandwidth(n, stride) + latency(n);
}

double Links::all_to_all(double bytes, std::int64_t n, std::int64_t stride, double top_k,
                         bool once) const {
  if (n <= 1) return 0;
  const auto ranks = static_cast<double>(n);
  const double k = std::max(top_k, 1.0);
  // Ranks, or domains, that k experts drawn at random lie in.
  const auto distinct = [&](double of) { return of * (1 - std::pow(1 - 1 / of, k)); };
  const double copies = once ? distinct(ranks) / k : 1;
  const double inside = bytes * copies * (ranks - 1) / ranks / (constants_->all_to_all * link_);
  const std::int64_t in_domain = local(n, stride);
  if (in_domain == n) return constants_->experts_exposed * inside + latency(n);
  const double domains = ranks / static_cast<double>(in_domain);
  const double reached = once ? distinct(domains) : k;
  const double across = bytes / k * reached * (domains - 1) / domains / nic_;
  return constants_->experts_exposed_nic * std::max(inside, across) + latency(n);
}

double Links::send_between_stages(double bytes, std::int64_t ranks, std::int64_t pp) const {
  return send(bytes, ranks * pp > domain_ ? domain_ : ranks);
}

double Links::send(double bytes, std::int64_t distance) const {
  return bytes / (distance < domain_ ? efficiency_ * link_ : nic_) + constants_->alpha;
}

}  // namespace plimsoll
