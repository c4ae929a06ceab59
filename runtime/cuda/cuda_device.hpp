// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "runtime/cuda/cuda_states.hpp"
#include "runtime/cuda/op_call.hpp"
#include "runtime/dry/dry_device.hpp"

/// One rank's device on a GPU: the executor's tensors are blocks of the caching allocator over the
/// GPU's memory, ops are kernels and products.
namespace plimsoll::runtime::cuda {

/// How long a kind of op took, forward or backward, over all runs since begin_step().
struct OpTime {
  std::int64_t runs = 0;
  double seconds = 0;
};
using OpTimes = std::map<std::pair<std::string, bool>, OpTime>;  ///< by name and "is backward"

class CudaDevice final : public Device {
 public:
  /// All outlive it. \a capacity: bytes that the allocator may take.
  CudaDevice(const RankWorld&, Machine&, Peers&, std::int64_t capacity,
             const AllocatorOptions& options);
  ~CudaDevice() override;

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

  /// After Executor::start(): gives the weights their values.
  void start() { states_.start(); }
  double loss();  ///< this rank's part of the step's; waits
  CudaStates& states() { return states_; }
  DryDevice& counted() { return counted_; }
  const Allocator& allocator() const { return allocator_; }
  const Scratch& scratch() const { return scratch_; }
  /// How long things took in this step; waits. Empty where RunOptions::times is not set.
  const OpTimes& times();
  /// Called when a step's gradients are whole, before the optimizer.
  std::function<void()> with_gradients;

 private:
  struct Tensor {
    void* at = nullptr;
    std::int64_t bytes = 0;
    bool written = false;  ///< gradients: the first to write puts, the others add
    bool is_state = false, is_workspace = false;
    bool raw = false;  ///< no numbers that kernels read
    Number number = Number::fp32;
  };
  /// Values that have no tensor because an op accounts for them: by micro-batch, value and whether
  /// it is the gradient.
  struct LooseValue {
    Room room;
    bool written = false;
  };
  using Loose = std::map<std::tuple<std::int64_t, ValueId, bool>, LooseValue>;

  void* address(TensorId) const;
  Tensor describe(const TensorInfo&) const;
  Array array(TensorId) const;
  LooseValue& loose(std::int64_t micro_batch, ValueId, bool gradient);
  Array value(const OpRun&, ValueId, bool make);
  Target open_gradient(const Frame&, ValueId, std::int64_t micro_batch, bool to_write);
  OpCall call(const OpRun&, std::vector<Room>& rooms);
  void forward(const OpRun&);
  void backward(const OpRun&);
  void keep_copies(const OpRun&, const OpCall&);
  ValueId storage(ValueId v) const { return world_.plan.problem.inventory.flow.storage[v]; }
  template <class F>
  void timed(std::string name, bool backward, F f);

  const RankWorld& world_;
  Machine& machine_;
  Peers& peers_;
  std::unique_ptr<Backing> backing_;
  Allocator allocator_;
  DryDevice counted_;  ///< the same calls, in numbers: its blocks are the tensors
  Scratch scratch_;
  CudaStates states_;
  std::vector<Tensor> tensors_;
  Loose loose_;
  std::map<std::pair<std::int64_t, OpId>, Routes> routes_;  ///< by micro-batch
  Room loss_;
  Number number_;
  int step_ = 0;
  OpTimes times_;
  std::vector<std::tuple<std::string, bool, int>> marks_;
};

}  // namespace plimsoll::runtime::cuda
