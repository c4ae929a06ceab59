// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>
#include <vector>

#include "lang/expr.hpp"
#include "lang/program.hpp"

/// What an op is, said once: the values its backward may be given, temporaries, arithmetic,
/// traffic. Inventory, time model and runtime all read this and nothing else.
namespace plimsoll::ops {

/// Shapes on one rank. Symbols: b micro-batch, s tokens a sequence, c cp, t tp, h width.
/// tokens(v) = T = b*s/c, and Ts = T/t where v is sequence-sharded and sp holds; inside experts the
/// routed rows R (MEGATRON.md §4: balanced tokens entering * top_k * etp, times the job's imbalance
/// and rounded up; padded to a capacity count * ceil(capacity * tokens * top_k / count) * etp).
/// width(v) = h, or its share of the split: h / units * ceil(units / t); of logits the padded
/// vocabulary's.
class Shapes {
 public:
  Shapes(const Program& program, ExprPool& pool, Rational imbalance, Expr vocab_multiple)
      : program_(program), pool_(pool), imbalance_(imbalance), vocab_multiple_(vocab_multiple) {}

  Expr tokens(const Value&) const;  ///< tokens on the rank
  Expr width(const Value&) const;   ///< elements a token on the rank
  Expr elements(ValueId) const;
  /// Tokens in the rank's part of a sequence-sharded region (Ts) and outside it (T).
  Expr sharded_tokens(Expr tokens_a_sequence) const;
  Expr full_tokens(Expr tokens_a_sequence) const;
  /// Rows that the rank's experts receive (R) and that it sends: tokens entering * top_k, or R/etp.
  Expr routed(const Op& experts) const;
  Expr permuted(const Op& experts) const;

  Expr weight_elements(WeightId) const;  ///< on the rank, vocabulary padded to a multiple
  Expr weight_rows(WeightId) const;
  Expr weight_cols(WeightId) const;    ///< rows * cols * copies = elements
  Expr weight_copies(WeightId) const;  ///< experts on the rank
  /// t inside column..row regions; etp inside experts.
  Expr tensor_ranks(OpId experts) const;
  /// share(n, units, ranks): n / units * ceil(units / ranks), or n / ranks where units is 0.
  Expr share(std::int64_t n, std::int64_t units, Expr ranks) const;
  Expr padded_vocabulary(std::int64_t vocab) const;

  const Program& program() const { return program_; }
  ExprPool& pool() const { return pool_; }

 private:
  const Program& program_;
  ExprPool& pool_;
  Rational imbalance_;
  Expr vocab_multiple_;
};

/// A value of an op that `save`, `bytes` and `keep` may name, in elements on the rank.
struct NamedValue {
  std::string name;          ///< "input", "q", "lse", "stats", "logits" …
  std::vector<ValueId> ids;  ///< the program's values that it is (saved by several ops: counted
                             ///< once); empty: the op's own
  Expr elements;
  std::string
      dtype;  ///< by default: "act" stands for the job's activation dtype; "fp32", "int8", "int64"
};

/// Memory that exists only while the op runs.
struct Temporary {
  std::string name;
  Expr bytes;
};

enum class CollectiveKind : std::uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  ring
};
enum class Group : std::uint8_t { tp, cp, ep, etp };
struct Collective {
  CollectiveKind kind;
  Group group;
  /// Of the whole (gathered, reduced) tensor; all_to_all: what a rank sends; ring: what passes all
  /// ranks of the group together. 0 on layouts where it does not happen; moot with one rank.
  Expr bytes;
};

/// One matrix product, for the time model: M x N x K, `count` copies.
struct Product {
  Expr m, n, k, count;
};

struct Rule {
  std::vector<NamedValue> values;
  /// Each set of names is enough for backward (with weights); `save` must cover one of them.
  std::vector<std::vector<std::string>> sufficient;
  /// What a stack that saves exactly what is needed keeps (framework plain).
  std::vector<std::string> minimal;
  /// Kept whatever the framework's `save` lists for this op: the input of the router, which is a
  /// linear inside experts.
  std::vector<std::string> always;
  std::vector<Temporary> forward_temporaries, backward_temporaries;
  std::vector<Product> products;  ///< forward; backward is the two transposed ones each
  Expr attention_flops;           ///< forward, both matrix products, causal and window counted
  /// All arithmetic of matrix products and attention, nothing recomputed; of frozen weights no
  /// gradients.
  Expr flops_forward, flops_backward;
  Expr bytes_forward, bytes_backward;  ///< HBM traffic of what is not a matrix product; TIME.md §1
  std::vector<Collective> forward_collectives, backward_collectives;
  /// State a sequence keeps while serving, elements on the rank: a token, and whatever its length
  /// (Mamba). Only the last `cache_window` tokens are kept, or those of the chunk of `cache_chunk`
  /// tokens (0: all).
  Expr cache_per_token, cache_fixed;
  std::int64_t cache_window = 0, cache_chunk = 0;
};

/// How the job runs the ops.
struct Variant {
  Rational activation_bytes = 2;    ///< an element of an activation: temporaries, traffic
  std::string attention = "flash";  ///< flash, cudnn, unfused
  bool dropout = false, attention_dropout = false;
  bool trained_weights = true;    ///< false: frozen (LoRA base): weight gradients are not made
  std::int64_t adapter_rank = 0;  ///< of the low-rank factors beside a frozen weight; 0: none
  bool adapter_input = true;      ///< false: an op whose weight is fused with this one's holds it
};

/// \a op is one of the shapes' program.
Rule rule(const Shapes&, const Op& op, const Variant&);

}  // namespace plimsoll::ops
