// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "planner/layout.hpp"

/// The closed form of peak memory (rung 1 of the ladder): the maximum over a few dozen moments of
/// each stage, by exact integers. This is THE definition of what fits.
namespace plimsoll {

/// One line of a stage's bill at a moment.
struct BillLine {
  std::uint32_t item = kNone;  ///< row of the inventory; kNone: rounding, fragmentation
  std::string name;
  Category category = Category::activations;
  Int128 bytes = 0;     ///< on one rank, at the moment
  std::string formula;  ///< over layout variables
  std::string lifetime;
  std::string divided_by;
  std::string source;
};

/// What a stage holds at a moment beside the steady step.
struct OtherMoment {
  std::string name;                                 ///< "loading a checkpoint"
  Int128 bytes = 0;                                 ///< all of it, as peak_bytes counts
  Int128 allocated = 0;                             ///< of it, what the allocator reports
  std::array<Int128, kCategoryCount> live{};        ///< tensors by category
  std::vector<std::pair<std::string, Int128>> own;  ///< items that live at this moment alone
};

struct StageBill {
  std::int64_t stage = 0;
  std::int64_t layers = 0;
  std::int64_t in_flight = 1;  ///< micro-batches (or chunk-forwards, interleaved) held at the peak
  std::vector<BillLine>
      lines;  ///< live at the peak; with rounding and fragmentation they add up to peak_bytes
  std::array<Int128, kCategoryCount> categories{};
  Int128 live_bytes = 0;              ///< tensors, before any rounding
  Int128 allocated_bytes = 0;         ///< what the framework's allocator reports
  Int128 reserved_bytes = 0;          ///< its segments
  Int128 peak_bytes = 0;              ///< all of it, with context and communicators
  Int128 hbm_bytes = 0;               ///< of the stage's GPU, less what others occupy
  std::string peak_moment;            ///< "backward of layer 19, linear down"
  Int128 first_step_bytes = 0;        ///< peak of the first step (optimizer states not yet made)
  Int128 steady_bytes = 0;            ///< between steps
  Int128 steady_allocated_bytes = 0;  ///< between steps, as the framework's allocator reports it
  Int128 update_bytes = 0;            ///< during the optimizer step
  std::vector<std::pair<std::string, Int128>>
      moments;                            ///< each candidate moment's peak, largest first
  std::vector<Int128> moments_allocated;  ///< of each, what the allocator reports
  /// The model is built, a checkpoint loaded, first step, optimizer step, one saved, evaluation.
  std::vector<OtherMoment> others;
};

/// Where measured runs put what a bill counts: the middle 90 % of them, see range.hpp.
struct Range {
  std::string of;  ///< "peak"; "kv_cache", of a server; "" where no range is known
  Int128 low = 0, high = 0;
  std::int64_t runs = 0;  ///< recipes that were measured
  double share = 1;       ///< of them in the range
  std::string runs_of;    ///< "megatron, dense, reserved"
  std::string why_none;   ///< where no range is known
};

struct Bill {
  Layout layout;
  std::vector<StageBill> stages;
  std::int64_t peak_stage = 0;
  Int128 peak_bytes = 0;
  Int128 hbm_bytes = 0;  ///< of the peak stage's GPU, less what others occupy
  Int128 params = 0;
  bool fits = false;
  std::string verdict;  ///< "fits", "edge", "does not fit"
  Range range;          ///< of peak_bytes, or of the cache's pool of a server
  // serve
  std::int64_t sequences = 0, kv_blocks = 0;
  std::optional<std::int64_t> kv_tokens;
};

/// The full bill of a resolved layout, itemised.
Bill bill(const Problem&, const Layout&);
/// The same of its peak_stage alone: no other stage is itemised (nor replayed unless it must be, to
/// tell which one is the tightest).
Bill peak_bill(const Problem&, const Layout&);

/// Peak only, for searching. Keeps what it computed for equal (tp, cp, ep, etp, mbs, sp, …), so
/// that neighbouring layouts cost a few additions.
class Pricer {
 public:
  explicit Pricer(const Problem&);
  ~Pricer();
  struct Peak {
    Int128 bytes = 0;
    std::int64_t stage = 0;
    bool fits = false;
    Int128 headroom_bytes = 0;  ///< hbm - bytes at the tightest stage
    /// Of offloaded states: what a rank keeps in host memory, and its share of its node's; of the
    /// stage where least is left.
    Int128 host_bytes = 0, host_share = 0;
  };
  Peak peak(const Layout&);
  /// With the segments that a replay finds, where the problem is replayed: what its bill says.
  Peak exact(const Layout&);
  /// The stages that take more than \a cap or than their GPU has, by exact()'s measure. Stages far
  /// below it are not replayed.
  std::vector<std::int64_t> stages_over(const Layout&, std::int64_t cap);
  /// Is there one?
  bool any_stage_over(const Layout&, std::int64_t cap);
  /// The lines and categories of peak()'s stage at its peak, or of exact()'s, without formulas
  /// (train jobs).
  StageBill lines(const Layout&, bool exactly = false);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plimsoll
