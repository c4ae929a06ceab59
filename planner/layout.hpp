// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lang/expr.hpp"
#include "lang/inventory.hpp"
#include "lang/module.hpp"

namespace plimsoll {

enum class Schedule : std::uint8_t { one_f_one_b, interleaved, gpipe, zb_h1, zb_v, dualpipe_v };
std::string_view name(Schedule);  ///< "1f1b", "interleaved" …

/// Recomputation of whole layers: the mode that recompute_layers counts.
inline constexpr RecomputeMode kFullRecompute = 1;

/// A parallel layout: how a job lies on its GPUs.
struct Layout {
  std::int64_t tp = 1, pp = 1, vpp = 1, cp = 1, ep = 1, etp = 1, dp = 1;
  int zero = 0;
  std::int64_t shard = 0;  ///< ranks that share the states; 0: all of dp*cp
  std::int64_t mbs = 1;
  std::int64_t microbatches = 1;  ///< a replica's, a step
  bool sp = false;
  RecomputeMode recompute = 0;                 ///< 0 none, 1 full, 2… the framework's
  std::vector<std::int64_t> recompute_layers;  ///< a stage; empty: all where recompute is full
  std::vector<std::int64_t>
      stage_layers;  ///< a stage, over all its chunks; never empty once resolved
  std::vector<std::uint32_t>
      stage_pool;  ///< a stage: index into Cluster::pools; empty: the only one
  Schedule schedule = Schedule::one_f_one_b;
  Rational offload = 0;        ///< share of the optimizer states in host memory
  std::int64_t seq = 0;        ///< tokens a sequence (the job's, or its choice)
  std::int64_t batch = 0;      ///< sequences a step
  std::int64_t nodes = 0;      ///< of the cluster (its choice)
  std::int64_t sequences = 0;  ///< serve

  friend bool operator==(const Layout&, const Layout&) = default;
};

/// A number of the model that a degree must divide; `may_replicate`: or be divided by it (key/value
/// heads are replicated where tp exceeds them).
struct Divisible {
  std::int64_t number = 1;
  Var by = Var::tp;
  bool may_replicate = false;
  std::string what;  ///< "heads", "columns of 'gate'", "experts"
};

/// What a layout holds cannot be computed: division by zero, overflow, negative bytes. The user's
/// expression is at \a span; commands report it there.
class PriceError : public ArithmeticError {
 public:
  PriceError(Span where, const std::string& what) : ArithmeticError(what), span(where) {}
  Span span;
};

class Segments;

/// What a layout is priced against; made once a job.
struct Problem {
  const Module* module = nullptr;
  const Job* job = nullptr;
  const Cluster* cluster = nullptr;
  const Program* program = nullptr;
  const Behaviour* framework = nullptr;
  Inventory inventory;
  std::vector<Divisible> divisible;
  std::shared_ptr<Segments> segments;  ///< segments.hpp; none: the framework's factor counts
};

/// Compiles a job for pricing: program, lowering. nullopt after errors in \a diags.
std::optional<Problem> make_problem(const Module&, const Job&, Diagnostics& diags);

/// Layers of each stage where none are given: stages differ by at most one layer, the first and
/// last get the shorter ones.
std::vector<std::int64_t> default_stage_layers(std::int64_t layers, std::int64_t pp);

/// Why a layout cannot be, in words ("64 heads do not divide over tp = 6"), or "" where it can.
/// Degrees must divide the GPUs, heads, widths, sequence and batch; ep the experts; vpp the layers.
std::string why_impossible(const Problem&, const Layout&);
/// The same but for its lists, which may still be open.
std::string why_impossible_outside(const Problem&, const Layout&);

/// Why the pools cannot hold the stages that stage_pool gives them; "" where they can.
std::string why_pools(const Problem&, const Layout&);

/// Reports offload where the cluster has no host_memory or no pcie: of \a layout, or (nullptr) of
/// the values that the job gives it.
void check_offload(const Problem&, const LayoutDecl* layout, Diagnostics&);

/// Does a rank keep something in its node's memory: optimizer states, activations?
bool uses_host(const Problem&, const Layout&);

/// Fills what a layout leaves to defaults: dp, microbatches, shard, stage_layers, schedule, sp, ….
void resolve(const Problem&, Layout&);

/// A `layout` declaration (with the job's pins beneath it) as a resolved layout; nullopt after
/// errors.
std::optional<Layout> layout_from(const Problem&, const LayoutDecl*, Diagnostics&);

/// The variables of one stage of a layout, for evaluating expressions.
Env environment(const Problem&, const Layout&, std::int64_t stage);

/// "tp 8 · pp 4 · dp 2 · zero 1 · mbs 1 · recompute selective": what differs from the defaults.
std::string describe(const Problem&, const Layout&);

}  // namespace plimsoll
