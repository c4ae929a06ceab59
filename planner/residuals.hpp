// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

// Written by bench/residuals.py --write from tests/data/residuals.csv; do not edit.
// clang-format off

/// Measured over counted bytes of published runs, in 1/100,000: of a framework, a feature of the
/// job and a counter of the allocator the number of recipes, and the limits of their middle 90 %
/// (of fewer than 20 recipes: the lowest and the highest).
#define PLIMSOLL_RESIDUALS(X) \
  X("megatron", "dense", allocated, 79, 99885, 100582)        \
  X("megatron", "dense", reserved, 9, 97585, 102644)          \
  X("megatron", "experts", allocated, 25, 97756, 104056)      \
  X("torchtitan", "dense fsdp", reserved, 27, 84736, 110685)  \
  X("torchtune", "dense", allocated, 9, 94743, 107460)        \
  X("vllm", "serving", room, 8, -9000, 189000)

/// Routed tokens over balanced ones, in 1/100,000, that runs of dropless experts must have had for
/// their bills to be right; in order.
#define PLIMSOLL_IMBALANCES(X) \
  X(83489) X(88434) X(91337) X(95273) X(97506) X(98541) X(101856) X(102422)        \
  X(102422) X(102517) X(103141) X(103378) X(103714) X(105700) X(106232) X(107685)
// clang-format on
