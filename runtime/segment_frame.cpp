// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/segment_frame.hpp"

#include <algorithm>

namespace plimsoll::runtime {

template <class Matches>
TensorId Executor::SegmentFrame::find(TensorRole role, Matches matches) const {
  for (std::size_t t = 0; t < tensors.size(); ++t)
    if (tensors[t] != kNoTensor && planned_->trace->tensors[t].role == role && matches(t))
      return tensors[t];
  return kNoTensor;
}

TensorId Executor::SegmentFrame::shared(ValueId v, bool gradient) const {
  const std::vector<PlannedShared>& list = executor_->plan_.shared;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].value != v) continue;
    if (gradient)
      return i < executor_->shared_gradients_.size() ? executor_->shared_gradients_[i] : kNoTensor;
    for (const SharedTensors& s : executor_->shared_)
      if (s.micro_batch == executor_->at_.micro_batch) return s.tensors[i];
  }
  return kNoTensor;
}

TensorId Executor::SegmentFrame::value(ValueId v) const {
  const TensorId own =
      find(TensorRole::value, [&](std::size_t t) { return planned_->tensors[t].value == v; });
  return own != kNoTensor ? own : shared(v, false);
}

TensorId Executor::SegmentFrame::gradient(ValueId v) const {
  for (const auto& [bound, tensor] : gradients_)
    if (bound == v) return tensor;
  return shared(v, true);
}

TensorId Executor::SegmentFrame::partial(ValueId v) const {
  const TensorId added =
      find(TensorRole::partial, [&](std::size_t t) { return planned_->tensors[t].value == v; });
  if (added != kNoTensor) return added;
  // One that has taken its place is the gradient itself.
  return find(TensorRole::successor, [&](std::size_t t) {
    return planned_->tensors[t].value == v && tensors[t] != gradient(v);
  });
}

bool Executor::SegmentFrame::succeeds(ValueId v) const {
  const TensorId added = partial(v);
  return added != kNoTensor &&
         added == find(TensorRole::successor, [&](std::size_t t) { return tensors[t] == added; });
}

TensorId Executor::SegmentFrame::saved(OpId op, std::string_view part) const {
  return find(TensorRole::saved, [&](std::size_t t) {
    const TraceTensor& tensor = planned_->trace->tensors[t];
    return planned_->op(tensor.op) == op && tensor.part == part;
  });
}

TensorId Executor::SegmentFrame::saved_copy(ValueId v) const {
  return find(TensorRole::saved, [&](std::size_t t) { return planned_->tensors[t].value == v; });
}

TensorId Executor::SegmentFrame::temporary(OpId op, std::string_view part) const {
  return find(TensorRole::temporary, [&](std::size_t t) {
    const TraceTensor& tensor = planned_->trace->tensors[t];
    return planned_->op(tensor.op) == op && tensor.part == part;
  });
}

TensorId Executor::SegmentFrame::item(OpId op, std::uint32_t row) const {
  return find(TensorRole::item, [&](std::size_t t) {
    const TraceTensor& tensor = planned_->trace->tensors[t];
    return tensor.item == row && (tensor.op == kNone ? kNone : planned_->op(tensor.op)) == op;
  });
}

void Executor::SegmentFrame::bind(ValueId v, TensorId tensor) {
  if (tensor != kNoTensor && !is_bound(v)) gradients_.emplace_back(v, tensor);
}

void Executor::SegmentFrame::unbind(TensorId tensor) {
  std::erase_if(gradients_, [&](const auto& bound) { return bound.second == tensor; });
}

void Executor::SegmentFrame::unbind_value(ValueId v) {
  std::erase_if(gradients_, [&](const auto& bound) { return bound.first == v; });
}

bool Executor::SegmentFrame::is_bound(ValueId v) const {
  return std::any_of(gradients_.begin(), gradients_.end(),
                     [&](const auto& bound) { return bound.first == v; });
}

std::vector<ValueId> Executor::SegmentFrame::others_bound(TensorId tensor, ValueId own) const {
  std::vector<ValueId> values;
  for (const auto& [v, bound] : gradients_)
    if (bound == tensor && v != own) values.push_back(v);
  return values;
}

}  // namespace plimsoll::runtime
