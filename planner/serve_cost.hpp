// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <vector>

#include "lang/inventory.hpp"
#include "lang/ops/rule.hpp"

/// The arithmetic behind serve.hpp: what weights, cache and a step's activations take on a rank of
/// one stage. Sources: ACCOUNTING.md G, FSDP.md R26-R29.
namespace plimsoll {

/// The segments of a stage: layers first..first+count-1 and the root segments that lie with them.
std::vector<std::uint32_t> stage_segments(const Program&,
                                          const std::vector<std::int64_t>& stage_layers,
                                          std::int64_t stage);

/// Bytes over layout variables, exact; rounded up where they are evaluated.
struct ServedWeights {
  Expr quantized;  ///< in the job's `weights`
  Expr plain;      ///< bf16
};
/// A weight that is tied to one of the same stage is held once.
ServedWeights served_weights(const ops::Shapes&, const Serving&,
                             const std::vector<std::uint32_t>& segments);

/// The cache of a stage. Layers keep pages of `block` tokens; with a window w a sequence never has
/// more than ceil(min(w - 1 + batch_tokens, context) / block) + 1 of them, with chunks of c tokens
/// ceil(min(c + batch_tokens, context) / block) (vLLM v1/kv_cache_interface.py). A Mamba layer's
/// state is kept in bf16.
struct StageCache {
  Expr page;            ///< bytes of a page in each layer that has pages
  Expr sequence;        ///< bytes of a sequence of `context` tokens
  bool uniform = true;  ///< every layer keeps every token: tokens are one figure
  bool has_pages = false;
};
StageCache stage_cache(const ops::Shapes&, const Serving&, std::int64_t block, std::int64_t context,
                       const std::vector<std::uint32_t>& segments);

/// The most that a layer's forward holds while nothing is kept for a backward, over the layer
/// classes of the stage, at \a env: its seq is the tokens of the step.
Int128 forward_peak(const Inventory&, const ExprPool&, const std::vector<std::uint32_t>& segments,
                    const Env& env);

}  // namespace plimsoll
