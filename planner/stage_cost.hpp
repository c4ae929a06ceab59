// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "planner/layout.hpp"
#include "planner/schedule.hpp"
#include "planner/stages.hpp"

/// The arithmetic behind peak.hpp: what one stage holds at each of its candidate moments.
namespace plimsoll {

/// The caching allocator's granularity (ACCOUNTING.md D), and bytes rounded up to it.
inline constexpr std::int64_t kBlock = 512;
inline std::int64_t in_blocks(std::int64_t bytes) { return (bytes + kBlock - 1) / kBlock * kBlock; }

/// Bytes as tensors (live) and as blocks of the allocator (512-byte multiples).
struct Bytes {
  std::int64_t live = 0;
  std::int64_t blocks = 0;

  Bytes& operator+=(const Bytes& o) {
    if (__builtin_add_overflow(live, o.live, &live) ||
        __builtin_add_overflow(blocks, o.blocks, &blocks))
      throw ArithmeticError("a stage holds more bytes than 64 bits can count");
    return *this;
  }
  friend Bytes operator+(Bytes a, const Bytes& b) { return a += b; }
  friend Bytes operator-(const Bytes& a, const Bytes& b) {
    return {a.live - b.live, a.blocks - b.blocks};
  }
  friend Bytes operator*(std::int64_t n, const Bytes& b) {
    Bytes result;
    if (__builtin_mul_overflow(n, b.live, &result.live) ||
        __builtin_mul_overflow(n, b.blocks, &result.blocks))
      throw ArithmeticError("a stage holds more bytes than 64 bits can count");
    return result;
  }
};

/// One segment's trace in numbers: what it saves a micro-batch, and the most it holds while it
/// runs, above what the segments before it have saved.
struct SegmentCost {
  Bytes saved, forward, backward;
  std::uint32_t forward_at = 0, backward_at = 0;  ///< event of the trace at which that is
};

/// Equal segments in a row on a chunk of a stage.
struct Run {
  std::uint32_t trace = 0;
  RecomputeMode mode = 0;
  std::int64_t count = 0;
  std::uint32_t first_segment = 0;
};

/// Where a chunk's peak is.
struct ChunkPeak {
  Bytes bytes;
  std::size_t run = 0;
  std::int64_t index = 0;  ///< which segment of the run
};

struct ChunkCost {
  std::vector<Run> runs;
  Bytes saved;
  ChunkPeak forward, backward, first_backward;  ///< first: gradients grow as it passes
};

/// What a static item is worth on a stage (its instances combined).
struct StaticBytes {
  std::uint32_t item = 0;
  Bytes bytes;
};

/// The parts of a step in which an item outside the traces is live, as all of them or (accumulates)
/// from the first backward on.
struct Presence {
  bool forward = true, backward = true, update = true, between = true;
  bool accumulates = false;  ///< gradients: in later micro-batches' passes and the update
  bool from_start = true;    ///< false: made by the first optimizer step

  bool in_forward(bool any_backward) const { return forward || (accumulates && any_backward); }
};
Presence presence(const Lifetime&);

/// What a stack holds before its first step where ZeRO 1 or 2 keep the weights in one buffer: the
/// parameters as they were made, and together with them the buffers of weights and gradients
/// (FSDP.md R23.4). Zero elsewhere.
struct Constructed {
  Int128 parameters = 0, together = 0;
};

/// Rows of the inventory with bytes.
using ItemRows = std::vector<std::pair<std::uint32_t, std::int64_t>>;

/// What a stage holds outside its traces, by when it is live; `outside` bytes are kept apart.
struct StaticSums {
  Bytes forward[2], backward[2], update,
      between;                                ///< [1]: with the gradients that a step accumulates
  Bytes forward_first[2], backward_first[2];  ///< before the first optimizer step
  Bytes shared, shared_gradients;  ///< of values that several segments read, a micro-batch
  std::int64_t outside = 0;
  std::int64_t host = 0;            ///< optimizer states that the rank keeps in its node's memory
  std::vector<std::int64_t> grown;  ///< by trace: gradients that a segment's backward leaves
};

/// By chunk, the segments that a stage holds.
using StageRuns = std::vector<std::vector<Run>>;

struct StageCost : StaticSums {
  std::vector<ChunkCost> chunks;
  // For a bill; a search leaves them empty.
  std::vector<StaticBytes> statics;
  std::vector<ItemRows> growing;  ///< by trace: the rows that `grown` adds up
  std::vector<Holding> holdings;
};

/// A candidate moment with its bytes.
struct Moment {
  enum Kind { forward, backward, update, between } kind = forward;
  std::size_t holding = 0;
  Bytes bytes;
};

/// What the driver must have free: segments of the allocator, and what lies outside it.
struct Footprint {
  std::int64_t allocated = 0, reserved = 0, peak = 0;
};
Footprint footprint(const Inventory&, const Bytes&, std::int64_t outside);
/// The same with segments of \a reserved bytes.
Footprint footprint(const Inventory&, const Bytes&, std::int64_t outside, std::int64_t reserved);

/// A rank's share of its node's memory, for optimizer states that are offloaded.
Int128 host_share(const Problem&, const Layout&, std::int64_t stage);

/// Of the GPU of a stage, less what others occupy.
Int128 usable_memory(const Problem&, const Layout&, std::int64_t stage);

/// Categories whose items count, as bits: all of them but where a search asks what clashes.
using CategoryMask = std::uint32_t;
inline constexpr CategoryMask kEverything = ~CategoryMask{0};

/// Past this much on one GPU (an exbibyte) a number is a mistake, and sums may still be added up.
inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;

constexpr std::uint64_t mask_of(std::initializer_list<Var> variables) {
  std::uint64_t mask = 0;
  for (const Var v : variables) mask |= std::uint64_t{1} << static_cast<unsigned>(v);
  return mask;
}
// Variables that tell stages of a layout apart.
inline constexpr std::uint64_t kEnds = mask_of({Var::first, Var::last, Var::receiving});
inline constexpr std::uint64_t kOwnNumber = mask_of({Var::stage, Var::in_flight});
inline constexpr std::uint64_t kContent = mask_of({Var::layers_on_stage, Var::params_on_gpu});
inline constexpr std::uint64_t kOfStage = kEnds | kOwnNumber | kContent;
/// What reads one of these is not counted to what stands.
inline constexpr std::uint64_t kOfMicroBatch =
    kOwnNumber | kContent |
    mask_of({Var::mbs, Var::seq, Var::target, Var::batch, Var::microbatches, Var::sp,
             Var::recompute, Var::schedule});

/// Evaluates an inventory at layouts. Keeps the segments' costs of equal shapes.
class CostModel {
 public:
  explicit CostModel(const Problem&, CategoryMask counted = kEverything);

  /// Prepares a layout; the stages can be asked for then. Throws ArithmeticError on overflow.
  void set(const Layout&);
  StageCost stage(std::int64_t stage);
  /// What a rank of the stage keeps in host memory: optimizer states, and activations of the
  /// micro-batches in flight.
  std::int64_t host_bytes(std::int64_t stage);
  /// The most that a segment of the stage holds in a forward that keeps nothing for a backward.
  Bytes forward_alone(const StageCost&) const;
  /// The largest moment of a stage alone, and what lies outside the allocator.
  Bytes most(std::int64_t stage, std::int64_t& outside);

  Constructed constructed(std::int64_t stage);
  /// Do two stages of the prepared layout cost the same but for micro-batches in flight?
  bool alike(std::int64_t a, std::int64_t b) const;

  // -- For a search over what stages hold
  /// Prepares a layout without its lists.
  void set_outer(const Layout&);
  /// The segments of a stage with these chunks, nothing recomputed.
  StageRuns runs(const std::vector<Piece>&) const;
  /// The same with \a mode on the layers: where it is full, on the first of each chunk, \a
  /// recomputed in all.
  static StageRuns recompute(const StageRuns&, RecomputeMode mode, std::int64_t recomputed,
                             const Inventory&);
  /// Stages of one role hold equal bytes where they hold equal segments and micro-batches.
  /// -1: no two do.
  std::int64_t role(std::int64_t stage) const;
  /// What a stage that holds \a runs holds outside its traces, in two parts that add up: what no
  /// micro-batch, schedule or recomputation changes …
  StaticSums standing(std::int64_t stage, const StageRuns& runs);
  /// … and the rest.
  void add_passing(StaticSums&, std::int64_t stage, const StageRuns& runs);
  /// Is some of the rest live between micro-batches too?
  bool passing_stays() const { return passing_stays_; }
  /// Layouts with equal ids have the same standing() for equal segments on a stage of one role.
  std::uint32_t standing_id();
  /// Does the stage say what stands?
  bool standing_by_stage() const { return standing_by_stage_; }
  /// Does its number, not only whether it is at an end, say what a stage holds?
  bool numbered_stages() const { return (stage_vars_ & (kOwnNumber | kContent)) != 0; }
  /// Its chunks, where their static part is \a sums and \a recomputed of the layers are so in
  /// \a mode (see recompute()).
  void price_chunks(std::int64_t stage, const StaticSums& sums, const StageRuns& runs,
                    RecomputeMode mode, std::int64_t recomputed, std::vector<ChunkCost>& out);
  /// The largest moment of a stage of these chunks; of equal ones the first.
  Bytes most(std::int64_t stage, const StaticSums& sums, const std::vector<ChunkCost>& chunks);
  /// What fully recomputing layers of such a stage takes off its largest moment at most, in live
  /// bytes: `once`, and for each of them what it saves in the micro-batches that its chunk holds.
  struct Dropped {
    std::int64_t saved = 0, once = 0;
    std::int64_t held = 0, held_by_all = 0;  ///< micro-batches: a chunk's at most, all chunks'
  };
  Dropped most_dropped(std::int64_t stage, const StageRuns& runs);

  /// Candidate moments, largest first.
  std::vector<Moment> moments(const StageCost&, bool first_step) const;
  /// The variables at the stage last asked for.
  const Env& env() const { return env_; }
  /// Bytes of a trace's tensors at the prepared layout and last stage asked for.
  const std::vector<std::int64_t>& tensors(RecomputeMode, std::uint32_t trace) const;
  Expr tensor_bytes(RecomputeMode, std::uint32_t trace, std::uint32_t tensor) const;
  const SegmentCost& cost(const Run& r) const;
  /// What of a segment stays (late) or comes (early) while its neighbour runs.
  ItemRows spilled(std::uint32_t trace, bool backward, bool late) const;

 private:
  struct Shape {  ///< all segments' costs for one setting of the variables they depend on
    std::vector<std::vector<std::vector<std::int64_t>>> tensors;  ///< [mode][trace][tensor]
    std::vector<std::vector<SegmentCost>> costs;
    std::vector<std::int64_t> spills, shared, shared_gradients, weight_elements;
    std::vector<std::array<std::int64_t, 4>> spill_sums;  ///< [trace][2 * backward + late]
  };
  /// Static items that come together as one line: equal names and categories.
  struct Group {
    std::vector<std::uint32_t> statics;  ///< indices into statics_
    bool state = false;       ///< summed exactly, then divided by its shard, rounded up once
    bool adds = true;         ///< every instance of every row counts
    bool stays = false;       ///< live in the update or between steps
    bool offloads = false;    ///< a share of it may lie in host memory
    std::uint64_t reads = 0;  ///< variables
  };
  struct Static {
    std::uint32_t item = 0;
    std::uint32_t trace = kNone;        ///< where it lies; kNone: on the stage itself
    std::uint32_t absent_with = kNone;  ///< trace of a root segment
    std::optional<Expr> unloaded;       ///< its bytes where nothing is offloaded, if they differ
    bool grows = false;                 ///< gradients, made by the backward of their segment
    Presence when;
  };
  struct NumbersHash {
    std::size_t operator()(const std::vector<std::int64_t>& numbers) const {
      std::uint64_t h = 1469598103934665603ull;
      for (const std::int64_t n : numbers)
        h = (h ^ static_cast<std::uint64_t>(n)) * 1099511628211ull;
      return static_cast<std::size_t>(h ^ (h >> 29));
    }
  };
  /// A stage's costs, kept for the stages of the layout that differ only in what they hold.
  struct Kept {
    std::int64_t stage;
    StageCost cost;
  };

  /// Bytes and shards of the statics on one stage. Where a group's are whole numbers they are in
  /// `whole` (bytes) and `ranks` too.
  struct StaticValues {
    std::vector<Rational> bytes, shards, unloaded;
    std::vector<std::int64_t> whole, ranks;
    std::vector<bool> is_whole;               ///< by group
    std::array<std::uint32_t, 2> ready = {};  ///< by part: the layout it was made for
  };

  /// The statics by what they depend on.
  enum PartKind : std::uint8_t { kStanding, kPassing };
  struct Part {
    std::vector<std::uint32_t> groups, statics;
    std::optional<Tape> tape;             ///< bytes and shard of each static
    std::vector<std::uint32_t> offloads;  ///< of the statics
    std::optional<Tape> unloaded;         ///< of those
  };

  const StageCost& kept_stage(std::int64_t stage);
  void prepare_env(std::int64_t stage, const StageRuns&);
  void take_whole(const Part&, StaticValues&) const;
  /// Prices the traces that depend on the stage.
  void trace_stage(std::int64_t stage, const StageRuns&);
  const StaticValues& values_of(std::int64_t stage, const StageRuns&, PartKind);
  void price_shared(StaticSums&, const StageRuns&) const;
  bool counts(Category c) const { return counted_ >> static_cast<unsigned>(c) & 1; }
  const std::vector<Holding>& holdings_of(std::int64_t stage);
  Bytes moment_bytes(const StaticSums&, const std::vector<ChunkCost>&, const Holding&,
                     bool first_step) const;
  void lay_out_chunks();
  void collect_shape_roots();
  void collect_statics();
  const Shape& shape_for(const Env&);
  SegmentCost walk(const SegmentTrace&, const std::vector<std::int64_t>& bytes) const;
  void price_stage_traces(const Env&);
  /// \a alone: the stage has no other chunk, so that gradients may grow as its first backward
  /// passes.
  void price_chunk(const StaticSums&, ChunkCost&, bool alone) const;
  ChunkPeak peak_of(const StaticSums&, const std::vector<Run>&,
                    const std::vector<const SegmentCost*>&, bool backward,
                    bool gradients_grow) const;
  std::int64_t spill(std::uint32_t trace, bool backward, bool late) const {
    return shape_->spill_sums[trace][(backward ? 2 : 0) + (late ? 1 : 0)];
  }
  /// Rows go to \a itemised where it is given.
  void add_statics(const StaticValues&, const std::vector<std::uint32_t>& groups, const StageRuns&,
                   StaticSums&, StageCost* itemised) const;
  /// Of a group of whole numbers: what it comes to, and the static it goes by (kNone where it holds
  /// nothing). False where that is more than is added up this way.
  bool sum_group(std::size_t group, const StaticValues&, const std::vector<std::int64_t>& count,
                 std::int64_t& total, std::uint32_t& first, StaticSums&) const;
  void add_static(StaticSums&, const Static&, std::int64_t bytes) const;
  /// Root \a i of a tape, as \a item's bytes. Throws PriceError at the item where there are none.
  std::int64_t traced_value(const Tape&, std::size_t i, const Item& item) const;
  static Rational static_value(const Tape&, std::size_t i, const Item& item);

  const Problem& problem_;
  const Inventory& inventory_;
  ExprPool& pool_;
  Layout layout_;
  Env env_, outer_env_;      ///< outer: of stage 0, before its lists are known
  std::uint32_t stamp_ = 0;  ///< counts prepared layouts
  std::vector<Var> shape_vars_;
  std::optional<Tape> shape_tape_, stage_tape_;
  /// Traces with a tensor that depends on the stage, priced once a stage, and those tensors.
  std::vector<std::pair<RecomputeMode, std::uint32_t>> stage_traces_;
  std::vector<std::int64_t> shape_key_;  ///< scratch
  std::unordered_map<std::vector<std::int64_t>, Shape, NumbersHash> shapes_;
  const Shape* shape_ = nullptr;
  std::vector<StageRuns> runs_;       ///< by stage; empty after set_outer()
  std::vector<std::uint32_t> begin_;  ///< by layer: its first segment; one past the last at the end
  std::map<std::pair<RecomputeMode, std::uint32_t>,
           std::pair<std::vector<std::int64_t>, SegmentCost>>
      per_stage_;
  std::vector<Static> statics_;   ///< items that are not traced
  std::uint64_t stage_vars_ = 0;  ///< of the variables that tell stages apart, those that are read
  CategoryMask counted_;
  std::array<Part, 2> parts_;  ///< by PartKind
  bool passing_stays_ = false, standing_by_stage_ = false;
  std::vector<Var> standing_vars_;
  std::vector<std::int64_t> standing_key_;  ///< scratch
  std::unordered_map<std::vector<std::int64_t>, std::uint32_t, NumbersHash> standing_ids_;
  std::map<std::int64_t, StaticValues> values_;  ///< by role
  StaticValues own_values_;                      ///< of a stage without a role
  std::int64_t traced_role_ = -2;                ///< of what per_stage_ holds
  std::vector<Kept> kept_;
  std::vector<Group> groups_;
  mutable std::vector<const SegmentCost*> run_costs_;  ///< scratch
  std::map<std::array<std::int64_t, 5>, std::vector<Holding>> holdings_;
  std::vector<const std::vector<Holding>*> holdings_here_;  ///< by stage; nullptr: not asked for
};

}  // namespace plimsoll
