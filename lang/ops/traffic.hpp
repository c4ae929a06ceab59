// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>

#include "lang/rational.hpp"

/// HBM traffic of what is no matrix product, in passes over a tensor's elements (2 B each in bf16).
/// Chosen so that a layer adds up to TIME.md §1: forward 20hM + 2.8(a+2g)dM + (6 gated, 4 else)fM
/// bytes, backward 1.75 times that; these two and the routed figure are fits, see TIME.md §2.
namespace plimsoll::ops {

inline constexpr int kNormPasses = 2;      ///< read, write; two a layer: 8 of the 20 hM
inline constexpr int kAddPasses = 3;       ///< two residuals a layer: 12 of the 20 hM
inline constexpr int kUnaryPasses = 2;     ///< 4 fM of a plain activation
inline constexpr int kGatedPasses = 3;     ///< 6 fM of a gated one
inline constexpr int kLossPasses = 5;      ///< 10 B a logit, and again in backward
inline constexpr int kUnfusedPasses = 11;  ///< half passes: 11 B a score
inline const Rational kAttentionPasses = Rational::fraction(7, 5);  ///< 2.8 B an element of q, k, v
inline const Rational kRoutedPasses = Rational::fraction(17, 2);    ///< of 34 B: half at each end
inline const Rational kBackward = Rational::fraction(7, 4);
inline const Rational kUnfusedBackward = Rational::fraction(13, 10);

}  // namespace plimsoll::ops
