// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/dry/dry_device.hpp"
#include "runtime/host/half.hpp"
#include "runtime/host/host_backing.hpp"
#include "runtime/host/host_states.hpp"

/// One rank's device with memory that exists and real arithmetic, in fp32; bf16 or fp16 where the
/// job stores it. Memory that is not yet written or already freed is full of NaN, so that whoever
/// reads it spoils the result.
namespace plimsoll::runtime::host {

class HostDevice final : public Device {
 public:
  HostDevice(HostWorld& world, std::int64_t rank);

  TensorId allocate(const TensorInfo&) override;
  void free(TensorId) override;
  void shrink(TensorId, std::int64_t bytes) override;
  void hand_on(TensorId, const TensorInfo&) override;
  void run(const OpRun&) override;
  void about_to_free(const OpRun& next, ValueId input, TensorId) override;
  void moment(const StepPoint& at) override { counted_.moment(at); }
  void begin_step(int step) override;
  void transfer(const Transfer&) override;
  void exchange(const Exchange&) override;
  void update(int step) override;
  void copy(TensorId from, TensorId to) override;
  void store(TensorId, std::uint64_t key) override;
  void fetch(std::uint64_t key, TensorId) override;

  /// After Executor::start(): gives the weights their values.
  void start() { states_.start(); }
  /// After a step.
  void end_step(int step) { states_.publish_parameters(step); }
  /// A tensor's memory, for tests.
  float* data(TensorId id) { return floats(id); }
  double loss() const { return loss_; }  ///< this rank's part of the step's
  DryDevice& counted() { return counted_; }
  const Allocator& allocator() const { return allocator_; }
  std::int64_t live_tensors() const { return counted_.tensors(); }

 private:
  struct Tensor {
    BlockId block = kNoBlock;
    std::byte* at = nullptr;
    std::int64_t bytes = 0;
    bool written = false;  ///< gradients: the first to write clears
    bool is_state = false;
    Storage storage = Storage::raw;
  };
  /// Values that have no tensor because an op accounts for them: by micro-batch, value and whether
  /// it is the gradient.
  using Loose = std::map<std::tuple<std::int64_t, ValueId, bool>, std::vector<float>>;
  std::map<std::uint64_t, std::vector<std::byte>> away_;  ///< activations in host memory

  /// A tensor's numbers: its memory, or of a half a copy in fp32 that close_views() writes back.
  float* floats(TensorId);
  void close_views();
  Storage activation() const;
  Storage storage_of(const TensorInfo&) const;
  std::vector<std::byte> letter(const Transfer&, ValueId, bool gradient);
  float* loose(std::int64_t micro_batch, ValueId, bool gradient);
  float* value(const OpRun&, ValueId, bool make);
  OpCall<float> call(const OpRun&);
  void forward(const OpRun&);
  void backward(const OpRun&);
  void keep_copies(const OpRun&, const OpCall<float>&);
  float* open_gradient(const Frame&, ValueId, std::int64_t micro_batch);
  ValueId storage(ValueId v) const { return plan_.problem.inventory.flow.storage[v]; }

  HostWorld& world_;
  std::int64_t rank_;
  const StagePlan& plan_;
  Groups groups_;
  DryDevice counted_;  ///< the same calls, in numbers
  HostBacking backing_;
  Allocator allocator_;
  HostStates states_;
  std::vector<Tensor> tensors_;
  Loose loose_;
  std::map<TensorId, std::vector<float>> views_;                     ///< of the running op
  std::map<std::pair<std::int64_t, OpId>, Routing<float>> routing_;  ///< by micro-batch
  double loss_ = 0;
  int step_ = 0;
};

}  // namespace plimsoll::runtime::host
