// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <utility>

#include "planner/time_defaults.hpp"

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
  X(quantize_bytes, 4, "fixed: an element cast to fp8 is read in 2 B and written in 1 B twice, by rows and by columns") \
  X(rowwise, 0.604, "fit: of fp8 products with a scale a row; torchtitan, torchao") \
  /* What a GPU reaches of its data sheet's dense rate: 16-bit products, fp8 ones, attention */ \
  X(gemm_ampere, 0.783, "fit: llm-foundry, vTrain, SC21") \
  X(attention_ampere, 0.503, "fit: prior; one row") \
  X(gemm_hopper, 0.65, "fit: llm-foundry, Automodel, Bridge") \
  X(fp8_hopper, 0.719, "fit: NeMo launcher, Bridge") \
  X(attention_hopper, 0.51, "held at TIME.md's fit (32 rows): two rows with cp would draw it to 0.24, long sequences alone do not") \
  X(attention_torch, 0.57, "fit: of these, flash attention 2 of torch on Hopper and Blackwell; torchtitan, torchao") \
  X(gemm_blackwell, 0.61, "held at TIME.md's fit (104 rows): GPT-OSS alone would draw it to 0.52 in place of expert_bias") \
  X(fp8_blackwell, 0.61, "fit: Bridge") \
  X(attention_blackwell, 0.449, "fit: Bridge, SimuMax, torchao") \
  X(gemm_mi300, 0.387, "fit: torchao") \
  X(fp8_mi300, 0.356, "fit: torchao") \
  X(attention_mi300, 0.248, "fit: torchao") \
  X(gemm_consumer, 0.60, "assumed: Ada and consumer Blackwell") \
  X(fp8_consumer, 0.50, "assumed") \
  X(attention_consumer, 0.45, "assumed") \
  X(blackwell_ultra, 1.31, "fit: B300 and GB300 against the same data sheet; Bridge") \
  X(attention_2023_ampere, 0.341, "fit: kernels of early 2023; llm-foundry") \
  X(attention_2023_hopper, 0.182, "fit: kernels of early 2023; llm-foundry") \
  /* Machines that published rows name and the prelude has not; used by bench/ alone */ \
  X(gemm_h100_500w, 0.56, "fit: torchtitan") \
  X(fp8_h100_500w, 0.545, "fit: torchtitan") \
  X(gemm_b200_limited, 0.454, "fit: SimuMax, torchao") \
  X(fp8_b200_limited, 0.306, "fit: torchao") \
  /* Attention */ \
  X(attention_backward_flops, 2.5, "fixed: flash attention computes the scores again") \
  X(attention_backward, 0.85, "fixed: of the forward's efficiency") \
  X(attention_fp8, 1.29, "fit: of the 16-bit rate; Bridge from 26.06") \
  X(unfused_product, 0.65, "fixed: batched products, of the architecture's") \
  X(cp_torch, 1.45, "fit: attention's time with cp > 2; torchtitan") \
  /* Memory-bound ops */ \
  X(bandwidth, 0.70, "fixed: of the data sheet's HBM bandwidth") \
  X(eager, 3.15, "fit: of the traffic, where PyTorch does not compile; torchtitan") \
  X(routed_fused, 0.477, "fit: of a routed row's traffic (34 B an element with separate kernels); Bridge from 26.06") \
  X(routed_sorted, 0.5, "fixed: of it with DeepEP and HybridEP, which leave one of two permutations each way (Megatron-LM docs, deepseek-v3-gb200-optimization)") \
  X(expert_bias, 30.3, "fit: bytes an output element of an expert's linear with a bias; Bridge, GPT-OSS") \
  X(expert_bias_fused, 0.541, "fit: of it, where fused; Bridge, GPT-OSS from 26.06") \
  /* Links */ \
  X(nvlink, 0.75, "fixed: SimuMax measured 0.67 to 0.74 on a B200") \
  X(all_to_all, 0.60, "fixed: SimuMax measured 0.60 on a B200") \
  X(nic, 0.80, "assumed") \
  X(pcie, 25e9, "assumed: B/s where no NVLink joins the GPUs") \
  X(default_nic, 25e9, "assumed: B/s a GPU where nothing is declared") \
  X(alpha, 2.5e-5, "assumed: seconds a collective; a fit leaves it where it starts or trades it for other fixed times") \
  X(beta, 1e-6, "assumed: seconds a further peer; the same") \
  X(regather, 0.5, "assumed: exposed share of sp's second gather, beside one of two products") \
  X(tp_overlapped, 0.488, "fit: exposed share of tp's traffic; NeMo launcher, async TP of torchtitan") \
  X(experts_exposed, 1, "fixed: of an all-to-all within a domain: nothing runs beside it") \
  X(experts_exposed_nic, 0.595, "fit: of an all-to-all across domains; Bridge") \
  X(ep_overlapped, 0.15, "fixed: of either, beside another micro-batch: the share of SMs that it takes from products (DeepEP 20 of 132, HybridEP 16 to 32 of 148)") \
  X(ring_hidden, 0.5, "fixed: of attention, behind cp's ring") \
  /* Data parallelism */ \
  X(overlap_dp, 0.322, "fit: of a micro-batch's backward or forward") \
  X(overlap_fsdp, 0.786, "fit: of a micro-batch; llm-foundry, torchtitan, torchao") \
  X(bucket, 40e6, "fixed: parameters a bucket (Megatron's default)") \
  /* The host: least time of a layer's forward, and again of its backward */ \
  X(host_blend, 4, "fixed: (gpu^n + host^n)^(1/n); the two hide behind one another but for what is uneven") \
  X(host_op, 0.000108, "fit: an op of the model, and each expert that a rank holds; fp8 casts outside experts count as ops; Bridge, Automodel") \
  X(host_counts, 0.00292, "fit: added where the host waits for the rows of each expert (no capacity, not HybridEP); Bridge") \
  X(host_legacy, 0.000974, "fit: Megatron-LM of 2021-22; vTrain") \
  X(host_legacy_tp8, 0.000625, "fit: times (tp / 8)^2, added; vTrain") \
  /* Pipeline */ \
  X(interleaved_sends, 0.3, "fixed: exposed share of each chunk's sends") \
  X(legacy_send, 0.0022, "fit: seconds a micro-batch and stage, of Megatron-LM of 2021-22; vTrain") \
  /* Optimizer and what a step takes besides */ \
  X(optimizer_bytes, 30, "fixed: B a parameter of the shard") \
  X(gradient_bytes, 8, "fixed: B a parameter where gradients are whole") \
  X(step_megatron, 5e-3, "assumed: seconds a step, a few waits of the host; a fit takes 2 or 23 ms, by which sources it sees") \
  X(step_torch, 0.295, "fit: seconds a step; torchtitan, torchao, Automodel") \
  X(step_2023, 0.0597, "fit: seconds a step; llm-foundry") \
  X(offload_bytes, 6, "fixed: gradient to the host, parameter back") \
  X(host_update, 28, "assumed: B a parameter of host traffic") \
  X(host_bandwidth, 200e9, "assumed: B/s a node")
// clang-format on

struct TimeConstants {
#define X(name, value, source) double name = value;
  PLIMSOLL_TIME_CONSTANTS(X)
#undef X
};

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

}  // namespace plimsoll
