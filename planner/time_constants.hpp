// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

/// Every constant of the time model, in this one place. "fit" constants were fitted to published
/// step times, the number of rows behind each is given; "fixed" ones come from kernel timings or
/// are chosen; "assumed" ones have no measurement behind them. Fit and rows: ../shared/TIME.md §2
/// (356 rows of cases/throughput.csv), unless said. Second digits mean nothing: between sites the
/// model is off by 8-25 % before a step of one's own is measured.
namespace plimsoll::time_constants {

// -- Matrix products
inline constexpr double kInnerHalf = 128;      ///< fixed: K / (K + 128); SimuMax GEMM tables
inline constexpr double kWaveExponent = 0.5;   ///< fixed, same tables
inline constexpr double kLaunch = 5e-6;        ///< fixed: seconds a product
inline constexpr double kGrouped = 0.85;       ///< fixed: 120 grouped-GEMM timings of SimuMax
inline constexpr double kWeightGradBytes = 8;  ///< fixed: read and write of an fp32 accumulator
inline constexpr double kQuantizeBytes = 4.4;  ///< fit, 138 rows (Bridge): B an element cast to fp8

struct Tile {
  double m, n, efficiency;
};
/// fixed: tiles of cuBLAS, the smaller ones slower; same tables.
inline constexpr Tile kTiles[] = {
    {128, 256, 1.0}, {256, 128, 1.0}, {128, 128, 0.85}, {64, 128, 0.60}};

/// What a GPU reaches of its datasheet's dense rate.
struct Architecture {
  double gemm;       ///< 16-bit products
  double gemm_fp8;   ///< of the fp8 rate
  double attention;  ///< flash attention forward
  double units;      ///< SMs or CUs, for wave quantisation
};
/// fit: gemm 128 rows (foundry, vTrain, SC21); attention 1 row, prior 0.55.
inline constexpr Architecture kAmpere{.756, .756, .55, 108};
/// fit: gemm 52 rows (foundry, Automodel, Bridge), fp8 24 (NeMo, Bridge), attention 32.
inline constexpr Architecture kHopper{.610, .612, .514, 132};
/// fit: gemm 104 rows, fp8 85 (Bridge), attention 129.
inline constexpr Architecture kBlackwell{.612, .520, .461, 148};
/// fit: 4 and 3 rows (torchao), attention 4.
inline constexpr Architecture kMi300{.368, .346, .217, 304};
/// assumed: Ada and consumer Blackwell; no published step time was found.
inline constexpr Architecture kConsumer{.60, .50, .45, 142};
/// fit: 51 rows (Bridge): B300 and GB300 against the same datasheet figures.
inline constexpr double kBlackwellUltra = 1.343;

inline constexpr double kAttentionBackwardFlops = 2.5;  ///< fixed: flash recomputes the scores
inline constexpr double kAttentionBackward = 0.85;      ///< fixed: of the forward's efficiency
inline constexpr double kUnfusedProduct = 0.65;         ///< fixed: batched products, of `gemm`

// -- Memory-bound ops
inline constexpr double kBandwidth = 0.70;  ///< fixed: of the datasheet's HBM bandwidth

// -- Links
inline constexpr double kNvlink = 0.75;      ///< fixed: SimuMax B200 measured 0.67-0.74
inline constexpr double kAllToAll = 0.60;    ///< fixed: SimuMax B200 measured 0.60
inline constexpr double kNic = 0.80;         ///< assumed
inline constexpr double kPcie = 25e9;        ///< assumed: B/s where no NVLink joins the GPUs
inline constexpr double kDefaultNic = 25e9;  ///< assumed: B/s a GPU where nothing is declared
inline constexpr double kAlpha = 20e-6;      ///< fit, did not move from its prior (342 rows)
inline constexpr double kBeta = 4e-6;        ///< same, seconds a further peer

inline constexpr double kRegather = 0.51;         ///< fit, 22 rows (SimuMax): sp's gather again
inline constexpr double kExpertExposed = 0.44;    ///< fit, 111 rows (Bridge): inside a domain
inline constexpr double kExpertExposedIb = 0.69;  ///< fit, 14 rows: across nodes
inline constexpr double kRingHidden = 0.5;        ///< fixed: of attention, behind cp's ring

// -- Data parallelism
inline constexpr double kOverlapDp = 0.57;    ///< fit, 127 rows
inline constexpr double kOverlapFsdp = 0.56;  ///< fit, 120 rows
inline constexpr double kBucket = 40e6;       ///< fixed: parameters a bucket (Megatron's default)

// -- Host
inline constexpr double kHostLayer = 0.52e-3;  ///< fit, 10 rows (Bridge, AutoModel): no CUDA graphs
inline constexpr double kHostExperts = 3.9e-3;  ///< fit, the same 10 rows: a MoE layer, added

// -- Pipeline
inline constexpr double kInterleavedP2p = 0.3;  ///< fixed: exposed share of each chunk's sends
inline constexpr std::pair<std::int64_t, std::int64_t> kZeroBubbleH1{
    1, 3};  ///< of 1F1B's bubble; zero-bubble README

// -- Optimizer
inline constexpr double kOptimizerBytes = 30;    ///< fixed: B a parameter of the shard
inline constexpr double kGradientBytes = 8;      ///< fixed: B a parameter where gradients are whole
inline constexpr double kStepMegatron = 10e-3;   ///< fit, 236 rows
inline constexpr double kStepTorch = 209e-3;     ///< fit, 61 rows: torchtitan, torchao, AutoModel
inline constexpr double kOffloadBytes = 6;       ///< fixed: gradient to the host, parameter back
inline constexpr double kHostUpdate = 28;        ///< assumed: B a parameter of host traffic
inline constexpr double kHostBandwidth = 200e9;  ///< assumed: B/s a node

// -- What is said about it
inline constexpr double kTie = 0.05;  ///< predicted differences below it are ties; TIME.md §8

}  // namespace plimsoll::time_constants
