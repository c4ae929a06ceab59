// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

/// Every constant of the time model, in this one place. "fit" ones were fitted to published step
/// times by bench/fit_time.py; the rows that each touches are named, errors on rows that were not
/// fitted are in docs/planner.md. "fixed" ones come from kernel timings or are byte counts;
/// "assumed" ones have no measurement behind them. Second digits mean nothing. Formulas, and the
/// values that were started from: ../shared/TIME.md.
///
/// A constant is a field, so that the fit can change it; the program uses the defaults.
namespace plimsoll {

// clang-format off
#define PLIMSOLL_TIME_CONSTANTS(X) \
  /* Matrix products */ \
  X(inner_half, 128, "fixed: K / (K + 128); 183 A100 and 514 B200 product timings of SimuMax") \
  X(wave_exponent, 0.5, "fixed: of the filled share of tiles and waves; same timings") \
  X(launch, 5e-6, "fixed: seconds a product; same timings") \
  X(grouped, 0.85, "fixed: 120 grouped-product timings of SimuMax") \
  X(weight_gradient_bytes, 8, "fixed: read and write of an fp32 accumulator") \
  X(quantize_bytes, 2.1, "fit: bytes an element cast to fp8; Bridge") \
  X(rowwise, 0.683, "fit: of fp8 products with a scale a row; torchtitan, torchao") \
  /* What a GPU reaches of its data sheet's dense rate: 16-bit products, fp8 ones, attention */ \
  X(gemm_ampere, 0.786, "fit: llm-foundry, vTrain, SC21") \
  X(attention_ampere, 0.516, "fit: prior; one row") \
  X(gemm_hopper, 0.644, "fit: llm-foundry, Automodel, Bridge") \
  X(fp8_hopper, 0.612, "fit: NeMo launcher, Bridge") \
  X(attention_hopper, 0.51, "held at TIME.md's fit (32 rows): two rows with cp would draw it to 0.24, long sequences alone do not") \
  X(attention_hopper_torch, 0.321, "fit: flash attention 2 of torch; torchtitan, torchao") \
  X(gemm_blackwell, 0.61, "held at TIME.md's fit (104 rows): GPT-OSS alone would draw it to 0.52 in place of expert_bias") \
  X(fp8_blackwell, 0.565, "fit: Bridge") \
  X(attention_blackwell, 0.458, "fit: Bridge, SimuMax, torchao") \
  X(gemm_mi300, 0.406, "fit: torchao") \
  X(fp8_mi300, 0.352, "fit: torchao") \
  X(attention_mi300, 0.247, "fit: torchao") \
  X(gemm_consumer, 0.60, "assumed: Ada and consumer Blackwell") \
  X(fp8_consumer, 0.50, "assumed") \
  X(attention_consumer, 0.45, "assumed") \
  X(blackwell_ultra, 1.25, "fit: B300 and GB300 against the same data sheet; Bridge") \
  X(attention_2023_ampere, 0.34, "fit: kernels of early 2023; llm-foundry") \
  X(attention_2023_hopper, 0.194, "fit: kernels of early 2023; llm-foundry") \
  /* Machines that published rows name and the prelude has not; used by bench/ alone */ \
  X(gemm_h100_500w, 0.605, "fit: torchtitan") \
  X(fp8_h100_500w, 0.518, "fit: torchtitan") \
  X(gemm_b200_limited, 0.438, "fit: SimuMax, torchao") \
  X(fp8_b200_limited, 0.251, "fit: torchao") \
  /* Attention */ \
  X(attention_backward_flops, 2.5, "fixed: flash attention computes the scores again") \
  X(attention_backward, 0.85, "fixed: of the forward's efficiency") \
  X(unfused_product, 0.65, "fixed: batched products, of the architecture's") \
  X(unfused_bytes, 0.937, "fit: of 11 bytes a score; vTrain, SC21, Korthikanti") \
  X(cp_torch, 1.6, "fit: attention's time with cp > 2; torchtitan") \
  /* Memory-bound ops */ \
  X(bandwidth, 0.70, "fixed: of the data sheet's HBM bandwidth") \
  X(eager, 3.1, "fit: of the traffic, where PyTorch does not compile; torchtitan") \
  X(routed_fused, 0.439, "fit: of a routed row's traffic (34 B an element); Bridge from 26.06") \
  X(routed, 1.22, "fit: the same, separate kernels; Bridge, SimuMax") \
  X(expert_bias, 31.4, "fit: bytes an output element of an expert's linear with a bias; Bridge, GPT-OSS") \
  X(expert_bias_fused, 0.548, "fit: of it, where fused; Bridge, GPT-OSS from 26.06") \
  /* Links */ \
  X(nvlink, 0.75, "fixed: SimuMax measured 0.67 to 0.74 on a B200") \
  X(all_to_all, 0.60, "fixed: SimuMax measured 0.60 on a B200") \
  X(nic, 0.80, "assumed") \
  X(pcie, 25e9, "assumed: B/s where no NVLink joins the GPUs") \
  X(default_nic, 25e9, "assumed: B/s a GPU where nothing is declared") \
  X(alpha, 2.7e-05, "fit: seconds a collective; did not move from its prior") \
  X(beta, 4.46e-07, "fit: seconds a further peer; did not move from its prior") \
  X(regather, 0.874, "fit: exposed share of sp's second gather; SimuMax") \
  X(tp_overlapped, 0.504, "fit: exposed share of tp's traffic; NeMo launcher, async TP of torchtitan") \
  X(experts_exposed, 0.0893, "fit: of an all-to-all within a domain; Bridge") \
  X(experts_exposed_nic, 0.487, "fit: of an all-to-all across domains; Bridge") \
  X(ring_hidden, 0.5, "fixed: of attention, behind cp's ring") \
  /* Data parallelism */ \
  X(overlap_dp, 0.112, "fit: of a micro-batch's backward or forward") \
  X(overlap_fsdp, 0.799, "fit: of a micro-batch; llm-foundry, torchtitan, torchao") \
  X(bucket, 40e6, "fixed: parameters a bucket (Megatron's default)") \
  /* The host: least time of a layer's forward, and again of its backward */ \
  X(host_blend, 4, "fixed: (gpu^n + host^n)^(1/n); the two hide behind one another but for what is uneven") \
  X(host_layer, 0.000814, "fit: Bridge, Automodel") \
  X(host_experts, 0.00515, "fit: a mixture of experts, added; Bridge, Automodel") \
  X(host_legacy, 0.000951, "fit: Megatron-LM of 2021-22; vTrain") \
  X(host_legacy_tp, 3e-05, "fit: added with tp > 1; vTrain") \
  X(host_legacy_tp8, 0.000631, "fit: times (tp / 8)^2, added; vTrain") \
  /* Pipeline */ \
  X(interleaved_sends, 0.3, "fixed: exposed share of each chunk's sends") \
  X(legacy_send, 0.00275, "fit: seconds a micro-batch and stage, of Megatron-LM of 2021-22; vTrain") \
  /* Optimizer and what a step takes besides */ \
  X(optimizer_bytes, 30, "fixed: B a parameter of the shard") \
  X(gradient_bytes, 8, "fixed: B a parameter where gradients are whole") \
  X(step_megatron, 0.00223, "fit: seconds a step; Bridge, SimuMax, vTrain, SC21") \
  X(step_torch, 0.185, "fit: seconds a step; torchtitan, torchao, Automodel") \
  X(step_2023, 0.0644, "fit: seconds a step; llm-foundry") \
  X(offload_bytes, 6, "fixed: gradient to the host, parameter back") \
  X(host_update, 28, "assumed: B a parameter of host traffic") \
  X(host_bandwidth, 200e9, "assumed: B/s a node")
// clang-format on

struct TimeConstants {
#define X(name, value, source) double name = value;
  PLIMSOLL_TIME_CONSTANTS(X)
#undef X
};

/// What the program uses.
inline constexpr TimeConstants kTimeConstants{};

/// A tile of a matrix product's kernel.
struct Tile {
  double m, n, efficiency;
};
/// fixed: tiles of cuBLAS, the smaller ones slower; SimuMax's timings.
inline constexpr Tile kTiles[] = {
    {128, 256, 1.0}, {256, 128, 1.0}, {128, 128, 0.85}, {64, 128, 0.60}};

/// Of 1F1B's bubble; zero-bubble README (arXiv 2401.10241).
inline constexpr std::pair<std::int64_t, std::int64_t> kZeroBubbleH1{1, 3};

/// (p - 1)(F&B + B - 3W) of half a stage's chunks, where F = W = B / 2 and F&B hides nothing;
/// DualPipe README.
inline constexpr std::pair<std::int64_t, std::int64_t> kDualPipeV{1, 3};

namespace time_constants {
inline constexpr double kTie = 0.05;  ///< predicted differences below it are ties; TIME.md §8
}

}  // namespace plimsoll
