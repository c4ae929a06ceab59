// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lang/program.hpp"

/// A model's tensor program in the words that training stacks have for a decoder: read off its ops,
/// so that a model of one's own is read as well as the prelude's. Layers that hold nothing are none
/// to a tool: what is said "by layer" is said of the others.
namespace plimsoll::exports {

struct Shape {
  std::int64_t layers = 0;  ///< without those that hold nothing
  std::vector<bool> empty;  ///< by layer of the program: holds nothing, fills up a chunk
  std::int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0;
  std::int64_t positions = 0;  ///< of a learned table; 0: none
  bool rope = false, alibi = false, tied = false;
  bool rmsnorm = true, gated = true, bias_qkv = false, bias_o = false, bias_mlp = false;
  bool qk_norm = false;  ///< a norm a head
  OpKind activation = OpKind::silu;
  std::int64_t window = 0;     ///< of the layers that have one
  std::vector<bool> windowed;  ///< by layer
  bool sinks = false, causal = true;
  double dropout = 0, attention_dropout = 0;  ///< negative: the job's share
  // Experts; `routed` by layer, all false without.
  std::int64_t experts = 0, top_k = 0, expert_ffn = 0, shared_ffn = 0;
  std::vector<bool> routed;
  Rational capacity = 0;
  bool sigmoid = false, router_bias = false, expert_bias = false;
  // Latent attention; kv_lora 0: none.
  std::int64_t q_lora = 0, kv_lora = 0, nope = 0, rope_dim = 0, v_dim = 0;
  bool latent_norm = false;  ///< of the narrow queries, keys and values
  std::int64_t mtp = 0;      ///< heads that predict further tokens, beside the layers

  /// What none of the fields above can say ("norms behind attention and feed-forward").
  std::vector<std::string> beyond;
};

Shape shape_of(const Program&);

}  // namespace plimsoll::exports
