// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lang/ops/rule.hpp"
#include "planner/layout.hpp"
#include "planner/links.hpp"
#include "planner/time_constants.hpp"
#include "planner/time_path.hpp"

/// Times of ops and of segments (a layer, or what stands beside layers), for one micro-batch on
/// one rank. Seconds. Formulas: ../shared/TIME.md §1.
namespace plimsoll {

/// What a GPU reaches of its data sheet's dense rate.
struct Architecture {
  double gemm = 0;       ///< 16-bit products
  double gemm_fp8 = 0;   ///< of the fp8 rate
  double attention = 0;  ///< flash attention, forward
  double units = 1;      ///< SMs or CUs, for wave quantisation
};

/// What a GPU does in a second, as far as it is reached.
struct Rates {
  Architecture architecture;
  double flops = 0, flops_fp8 = 0;  ///< datasheet, dense; `flops` at the job's 16 or 32 bits
  double bandwidth = 0;             ///< HBM, reached
  double element = 2;               ///< bytes of an activation or weight

  const TimeConstants* constants = &kTimeConstants;

  static Rates of(const Gpu&, const TimePath&, const TimeConstants& = kTimeConstants);
};

/// M x N x K, \a copies times, with tile and wave quantisation; or the time its bytes take.
/// \a output_bytes: of an element of the result.
double gemm_time(const Rates&, double m, double n, double k, double copies, bool fp8,
                 double output_bytes);

/// Parameters on a rank. Frozen ones have no gradients and no states.
struct Parameters {
  double dense = 0, expert = 0, frozen_dense = 0, frozen_expert = 0;
  void add(const Parameters& p, double times) {
    dense += times * p.dense;
    expert += times * p.expert;
    frozen_dense += times * p.frozen_dense;
    frozen_expert += times * p.frozen_expert;
  }
};

/// What one segment costs on one rank and micro-batch.
struct SegmentTime {
  double forward = 0, backward = 0;  ///< all of it, no recomputation, the host not counted
  double tp = 0, cp = 0, ep = 0;     ///< the part of both that is communication
  std::vector<double> recompute;     ///< by mode: added to backward
  double host = 0;                   ///< what launching a forward takes
  std::vector<double> host_again;    ///< by mode: added for the backward's
  double blend = 1;                  ///< TimeConstants::host_blend
  Parameters parameters;
  double total(RecomputeMode mode) const;  ///< forward and backward, the host counted
  /// By mode: activations that go to host memory and come back, as far as compute does not hide
  /// them; no bound counts it.
  std::vector<double> away;
};

/// One op of a segment: seconds of one micro-batch on one rank, the host not counted. Of it
/// `…_sent` is collectives.
struct OpSeconds {
  OpKind kind{};
  double forward = 0, backward = 0, forward_sent = 0, backward_sent = 0;
  std::vector<bool> again;  ///< by recompute mode: its forward runs a second time
};

/// What the times of segments depend on.
struct TimeKey {
  std::int64_t tp = 1, cp = 1, ep = 1, etp = 1, mbs = 1, seq = 0;
  bool sp = false;
  friend bool operator==(const TimeKey&, const TimeKey&) = default;
};

/// The program's rules flattened for timing; made once a job.
class SegmentTimer {
 public:
  explicit SegmentTimer(const Problem&, const TimeConstants& = kTimeConstants);
  /// Layer classes in order, then root segments.
  std::vector<SegmentTime> times(const TimeKey&, const Rates&, const Links&);
  /// Of the same segments, op by op: what times() adds up.
  std::vector<std::vector<OpSeconds>> op_times(const TimeKey&, const Rates&, const Links&);
  /// FLOPs of one sequence's forward and backward over the whole model, nothing divided or
  /// recomputed; causal attention counts the half that is computed.
  double model_flops(std::int64_t seq);
  /// The variables that rules read, everything else 1.
  Env environment(const TimeKey&) const;

 private:
  using Slot = std::uint32_t;  ///< index into values_
  struct Product {
    Slot m, n, k, count;
  };
  struct Traffic {
    ops::CollectiveKind kind;
    ops::Group group;
    Slot bytes;
    bool hidden_partly = false;  ///< gathers again what forward gathered
  };
  struct TimedOp {
    OpKind kind;
    bool fp8 = false, trained = true;
    bool in_experts = false, biased = false;  ///< stands in the body of experts; has a bias
    std::vector<Product> products;
    Slot attention, bytes_forward, bytes_backward;
    std::vector<Traffic> forward, backward;
    double top_k = 1;
    std::vector<bool> again;  ///< by recompute mode: run a second time in backward
  };
  struct TimedSegment {
    std::vector<TimedOp> ops;
    bool is_layer = false;
    double experts = 0;         ///< of the mixture in it
    bool counted = false;       ///< no capacity tells how many rows each expert gets
    double tp_collectives = 0;  ///< of forward
    double launches = 0;        ///< ops, fused linears once
    double attentions = 0;      ///< of these
    double casts = 0;           ///< of these, products whose operand fp8 casts first
    std::vector<Slot> dense, expert, frozen_dense, frozen_expert;  ///< parameter counts
    std::vector<Slot> flops;                                       ///< forward, backward
    std::vector<std::vector<Slot>> away;  ///< by mode: bytes of tensors that host memory keeps
    std::int64_t times = 1;               ///< segments of this class in the model
  };
  struct Cost {
    double forward = 0, backward = 0, tp = 0, cp = 0, ep = 0, attention_forward = 0;
    double ep_forward = 0;  ///< of ep
    double forward_traffic = 0, backward_traffic = 0;
  };
  TimedSegment compile(std::uint32_t segment, const Problem&, const ops::Shapes&,
                       std::uint32_t trace);
  Cost cost(const TimedOp&, const TimeKey&, const Rates&, const Links&) const;
  double traffic(const Traffic&, const TimedOp&, const TimeKey&, const Links&, double hide) const;
  double traffic_factor(const TimedOp&) const;
  void hide_experts(SegmentTime&, double ep_forward) const;
  double host_time(const TimedSegment&, const TimeKey&) const;
  void run(const TimeKey&);
  Slot slot(Expr);

  const TimeConstants& constants_;
  TimePath path_;

  std::vector<Expr> roots_;
  std::optional<Tape> tape_;    ///< of roots_
  std::vector<double> values_;  ///< of roots_, at the last run
  std::vector<TimedSegment> segments_;
  std::size_t modes_ = 2;
  double pcie_ = 0;          ///< B/s of one GPU
  bool fuses_ = false;       ///< the stack stores linears that read one value as one weight
  std::int64_t target_ = 0;  ///< tokens of the other sequence; 0: as long as `seq`
};

}  // namespace plimsoll
