// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/dry/dry_device.hpp"

/// What a rank holds over its steps, moment by moment: the executor on the dry device, watched.
namespace plimsoll::runtime {

/// What is live at a moment under one name and category.
struct LiveLine {
  std::string name;
  Category category = Category::activations;
  std::int64_t bytes = 0;
};

/// One moment, looked at closely.
struct MomentView {
  StepPoint at;
  std::int64_t number = 0;  ///< of its step's moments, from 0
  std::string name;         ///< "backward of layer 19, linear down"
  std::int64_t bytes = 0;
  CategoryBytes categories{};
  std::vector<LiveLine> lines;  ///< by category, largest first in each
};

/// Some moments in a row, drawn as one: the fullest of them.
struct TimelineColumn {
  StepPoint at;
  bool many = false;  ///< passes from the middle of the step, which repeat each other
  std::int64_t moments = 0;
  std::int64_t bytes = 0;
  CategoryBytes categories{};
  std::int64_t number = 0;      ///< of that moment
  std::vector<LiveLine> lines;  ///< of it, where timeline() was asked for them
};

struct StepTimeline {
  int step = 0;
  std::int64_t moments = 0;
  std::vector<TimelineColumn> columns;
  MomentView peak;
  /// The fullest moment of each part; parts without one (a stage without a forward) are left out.
  std::vector<MomentView> parts;
};

struct Timeline {
  RankPlace place;
  std::int64_t micro_batches = 0, chunks = 1;
  StepTimeline first, steady;  ///< the first step, and the second: every later one is like it
  /// Of the steady step, finer: the pass that the peak is in and the one that stands beside it,
  /// before it where that is a backward, else after it. Empty where the peak is in no pass.
  std::vector<TimelineColumn> around;
  std::int64_t around_moments = 0;
};

/// Plays two steps of a rank. \a columns: at most so many in each picture. Of a step with many
/// micro-batches the first and the last passes are drawn, and one column stands for those between.
/// \a lines: say what is live in each column of the steady step and around its peak.
Timeline timeline(const StagePlan&, std::size_t columns, bool lines = false);

/// What \a at is called: "backward of layer 3, attention", "optimizer step".
std::string point_name(const Problem&, const StepPoint& at);

}  // namespace plimsoll::runtime
