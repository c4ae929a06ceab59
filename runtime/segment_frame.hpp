// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "runtime/executor.hpp"

/// Private to runtime/executor*.cpp.
namespace plimsoll::runtime {

class Executor::SegmentFrame final : public Frame {
 public:
  SegmentFrame(const Executor& executor, const PlannedSegment& planned)
      : executor_(&executor),
        planned_(&planned),
        tensors(planned.trace->tensors.size(), kNoTensor) {}

  TensorId value(ValueId) const override;
  TensorId gradient(ValueId) const override;
  TensorId partial(ValueId) const override;
  bool succeeds(ValueId) const override;
  TensorId saved(OpId, std::string_view part) const override;
  TensorId saved_copy(ValueId) const override;
  TensorId temporary(OpId, std::string_view part) const override;
  TensorId item(OpId, std::uint32_t row) const override;

  const PlannedSegment& planned() const { return *planned_; }
  /// Gradients: one tensor may be that of several values.
  void bind(ValueId v, TensorId);
  void unbind(TensorId);
  void unbind_value(ValueId);
  bool is_bound(ValueId) const;
  /// The values besides \a own that are bound to a tensor.
  std::vector<ValueId> others_bound(TensorId, ValueId own) const;

 private:
  template <class Matches>
  TensorId find(TensorRole role, Matches) const;
  TensorId shared(ValueId, bool gradient) const;

  const Executor* executor_;
  const PlannedSegment* planned_;
  std::vector<std::pair<ValueId, TensorId>> gradients_;

 public:
  std::vector<TensorId> tensors;                   ///< by tensor of the trace
  std::map<std::uint32_t, std::uint64_t> on_host;  ///< tensors of the trace, by Device::store's key
};

}  // namespace plimsoll::runtime
