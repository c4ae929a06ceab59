// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>

#include "lang/module.hpp"
#include "lang/ops/rule.hpp"
#include "planner/time_defaults.hpp"

namespace plimsoll {

/// The links of a cluster as collectives see them. Ranks are numbered tp fastest, then cp, then
/// dp, then pp (experts: etp, ep, then the rest), so a group is `n` ranks with a stride.
/// Times in seconds, bandwidths in B/s; formulas: ../shared/TIME.md §1.
class Links {
 public:
  Links() = default;
  Links(const Cluster&, const Gpu&, const TimeConstants& = kTimeConstants);

  /// Ranks of the group that lie in one NVLink domain.
  std::int64_t local(std::int64_t n, std::int64_t stride) const;
  /// What a rank of the group sends per second: NVLink inside a domain; across domains the NICs of
  /// its ranks in one domain together, since a ring enters and leaves each domain once.
  double bandwidth(std::int64_t n, std::int64_t stride) const;
  /// A ring all-gather or reduce-scatter of \a bytes (the whole tensor); an all-reduce is two.
  double ring(double bytes, std::int64_t n, std::int64_t stride) const;
  double latency(std::int64_t n) const;
  /// One way, \a bytes sent by each rank, a token going to \a top_k of the \a n ranks. Exposed.
  /// \a once: a token crosses once to each domain that has one of its experts (DeepEP, HybridEP).
  double all_to_all(double bytes, std::int64_t n, std::int64_t stride, double top_k,
                    bool once) const;
  /// From a rank to its neighbour \a distance ranks away.
  double send(double bytes, std::int64_t distance) const;
  /// Between neighbours of \a pp stages of \a ranks each, over the slowest boundary: the NIC
  /// unless all stages lie in one domain.
  double send_between_stages(double bytes, std::int64_t ranks, std::int64_t pp) const;

 private:
  double link_ = 0;        ///< inside a domain, before efficiency
  double efficiency_ = 0;  ///< of it, for rings
  double nic_ = 0;         ///< reached, a GPU
  std::int64_t domain_ = 1;
  const TimeConstants* constants_ = &kTimeConstants;
};

}  // namespace plimsoll
