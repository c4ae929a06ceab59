// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/dry/tensor_blocks.hpp"

/// The device that only counts: live bytes, by category and by row, at every moment of the steps.
namespace plimsoll::runtime {

using CategoryBytes = std::array<std::int64_t, kCategoryCount>;

/// The most that was live at a moment, and what that was.
struct LivePeak {
  std::int64_t bytes = -1;
  StepPoint at;
  CategoryBytes categories{};
  std::vector<std::int64_t> rows;  ///< by row of the inventory; last: what several segments read
};

class DryDevice final : public Device {
 public:
  /// \a allocator: where the tensors' blocks come from; nullptr: from nowhere, nothing runs out.
  explicit DryDevice(const StagePlan&, Allocator* allocator = nullptr);

  TensorId allocate(const TensorInfo&) override;
  void free(TensorId) override;
  void shrink(TensorId, std::int64_t bytes) override;
  void hand_on(TensorId, const TensorInfo&) override;
  void run(const OpRun& r) override { count(r.at); }
  void moment(const StepPoint& at) override { count(at); }
  bool computes() const override { return false; }

  /// Called at every moment, with what is live then.
  using Observer = std::function<void(const StepPoint&, const CategoryBytes&)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

  /// The tensor's block of the allocator, where there is one.
  BlockId block_of(TensorId id) const { return table_.at(id).block; }
  std::int64_t live() const { return live_; }
  const CategoryBytes& categories() const { return categories_; }
  /// By row of the inventory; last: values that several segments read.
  const std::vector<std::int64_t>& rows() const { return rows_; }
  std::int64_t tensors() const { return tensors_; }
  std::int64_t most_tensors() const { return most_tensors_; }  ///< live at once
  /// The most that was live between two calls, moments or not.
  std::int64_t most_live() const { return most_live_; }
  /// Of the moments of step \a step (1, 2, …); of all steps.
  const LivePeak& peak(int step);
  const LivePeak& peak();

 private:
  struct Tensor {
    std::int64_t bytes = 0;
    std::uint32_t row = kNone;
    Category category = Category::activations;
    BlockId block = kNoBlock;
    StreamId stream = 0;
  };
  void count(const StepPoint&);
  void add(const Tensor&, std::int64_t bytes);
  void settle();

  std::optional<TensorBlocks> blocks_;
  std::vector<Tensor> table_;
  std::vector<TensorId> vacant_;
  std::int64_t live_ = 0, most_live_ = 0, tensors_ = 0, most_tensors_ = 0;
  CategoryBytes categories_{};
  std::vector<std::int64_t> rows_;
  std::vector<LivePeak> peaks_;  ///< by step - 1
  bool unsettled_ = false;       ///< the last step's peak is now; what it is made of is not noted
  Observer observer_;
};

}  // namespace plimsoll::runtime
