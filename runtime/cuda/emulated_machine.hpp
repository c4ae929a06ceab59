// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include "runtime/cuda/machine.hpp"
#include "runtime/host/host_backing.hpp"

/// A GPU played on the CPU: the same kernels, item by item, each team a single thread. So that
/// everything but the machine itself can be tested where there is no GPU.
namespace plimsoll::runtime::cuda {

class EmulatedMachine : public Machine {
 public:
  /// \a memory: bytes that it has.
  explicit EmulatedMachine(std::int64_t memory = std::int64_t{1} << 30,
                           const GpuFacts& facts = {4, 227 * 1024, 90});

  GpuFacts facts() const override { return facts_; }
  std::string name() const override { return "emulated"; }
  std::string driver() const override { return "none"; }
  MemoryFacts memory() const override;
  std::unique_ptr<Backing> backing(std::int64_t capacity) override;
  void launch(const Kernel&) override;
  void multiply(const Product&) override;
  void use_workspace(void*, std::int64_t bytes) override { workspace_ = bytes; }
  void copy(void* to, const void* from, std::int64_t bytes) override;
  void clear(void* at, std::int64_t bytes) override;
  void upload(void* to, const void* from, std::int64_t bytes) override { copy(to, from, bytes); }
  void download(void* to, const void* from, std::int64_t bytes) override { copy(to, from, bytes); }
  void wait() override {
    if (look_) look_();
  }
  void while_waiting(std::function<void()> look) override { look_ = std::move(look); }
  int mark() override { return marks_++; }
  double seconds(int from, int to) override { return 1e-6 * (to - from); }
  void forget_marks() override { marks_ = 0; }
  LibraryAttention* attention() override { return library; }

  LibraryAttention* library = nullptr;  ///< a test's own
  std::int64_t launches() const { return launches_; }
  std::int64_t workspace() const { return workspace_; }

 private:
  GpuFacts facts_;
  host::HostBudget budget_;
  std::int64_t launches_ = 0, workspace_ = 0;
  int marks_ = 0;
  std::function<void()> look_;
};

}  // namespace plimsoll::runtime::cuda
