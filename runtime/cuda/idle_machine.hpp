// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include "runtime/cuda/machine.hpp"

/// A GPU that does nothing, with memory that is only counted: what a run takes is known before it
/// is made. Launches are checked all the same.
namespace plimsoll::runtime::cuda {

class IdleMachine : public Machine {
 public:
  static constexpr std::int64_t kMemory = 150'000'000'000;

  explicit IdleMachine(const GpuFacts& facts = {132, 227 * 1024, 90}) : facts_(facts) {}
  GpuFacts facts() const override { return facts_; }
  std::string name() const override { return "idle"; }
  std::string driver() const override { return "none"; }
  MemoryFacts memory() const override { return {kMemory, kMemory}; }
  std::unique_ptr<Backing> backing(std::int64_t capacity) override;
  void launch(const Kernel& kernel) override { launch_shape(kernel, facts_); }
  void multiply(const Product&) override {}
  void use_workspace(void*, std::int64_t) override {}
  void copy(void*, const void*, std::int64_t) override {}
  void clear(void*, std::int64_t) override {}
  void upload(void*, const void*, std::int64_t) override {}
  void download(void* to, const void*, std::int64_t bytes) override;  ///< zeros
  void wait() override {}
  int mark() override { return marks_++; }
  double seconds(int, int) override { return 1e-6; }
  void forget_marks() override { marks_ = 0; }

 private:
  GpuFacts facts_;
  int marks_ = 0;
};

}  // namespace plimsoll::runtime::cuda
