// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <memory>

/// Rung 3 of the ladder, as the planner sees it: what the segments of a stage's allocator come to.
/// Replaying a step is the runtime's business (runtime/segments.hpp); whoever has that gives it to
/// the Problem, and what is printed then goes by it (docs/decisions/0031).
namespace plimsoll {

struct Problem;
struct Layout;

class Segments {
 public:
  virtual ~Segments() = default;

  /// Bytes of segments at most over the steps of a training job's stage: of those of its ranks that
  /// were looked at, the most. Layouts are resolved, and of the problem that this was given to (or
  /// of a copy of it with the same inventory): answers are kept. May be called from several
  /// threads.
  virtual std::int64_t reserved(const Problem&, const Layout&, std::int64_t stage) = 0;

  /// Is that more than \a bytes? What a search asks: a replay may end as soon as it knows.
  virtual bool more_than(std::int64_t bytes, const Problem& p, const Layout& l,
                         std::int64_t stage) {
    return reserved(p, l, stage) > bytes;
  }

  /// The same for another problem.
  virtual std::shared_ptr<Segments> fresh() const = 0;
};

/// Where such a figure comes from, for a bill's lines.
inline constexpr const char* kReplaySource =
    "ACCOUNTING.md D: two steps replayed through the caching allocator";

/// Does what this problem's stages reserve come from a replay? Else from the framework's factor.
bool replays(const Problem&);

}  // namespace plimsoll
