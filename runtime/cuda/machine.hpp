// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/backing.hpp"
#include "runtime/cuda/kernel.hpp"
#include "runtime/cuda/library_attention.hpp"

/// What the device `cuda` asks of a GPU: memory, one stream of work in order, products of matrices,
/// time. The GPU's is gpu_machine.cu; the unit tests run the same device over emulated_machine.hpp,
/// where each kernel's arithmetic runs on the CPU.
namespace plimsoll::runtime::cuda {

/// c (m x n) = scale a b, added to c where `add`; row-major, `batch` of them `..._step` elements
/// apart. A turned operand lies the other way around in memory; a stride of 0 is the row's own
/// length. a and b are of one kind of number.
struct Product {
  Array a, b, c;
  std::int64_t m = 0, n = 0, k = 0;
  bool a_turned = false, b_turned = false, add = false;
  float scale = 1;
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  std::int64_t batch = 1, a_step = 0, b_step = 0, c_step = 0;
};

struct MemoryFacts {
  std::int64_t free = 0, total = 0;  ///< as the driver has it
};

class Machine {
 public:
  virtual ~Machine() = default;

  virtual GpuFacts facts() const = 0;
  virtual std::string name() const = 0;    ///< "NVIDIA H200"
  virtual std::string driver() const = 0;  ///< "580.159.03"
  virtual MemoryFacts memory() const = 0;

  /// Segments for the allocator, at most \a capacity bytes at once. The machine outlives it.
  virtual std::unique_ptr<Backing> backing(std::int64_t capacity) = 0;

  // Work is done in order.
  virtual void launch(const Kernel&) = 0;
  virtual void multiply(const Product&) = 0;
  /// cuBLASLt's workspace, where the run counts one; until it is given products have none.
  virtual void use_workspace(void* at, std::int64_t bytes) = 0;
  virtual void copy(void* to, const void* from, std::int64_t bytes) = 0;
  virtual void clear(void* at, std::int64_t bytes) = 0;
  virtual void upload(void* to, const void* from, std::int64_t bytes) = 0;
  virtual void download(void* to, const void* from, std::int64_t bytes) = 0;  ///< waits
  virtual void wait() = 0;
  /// Called again and again while the CPU waits for the GPU; it may throw, to wait no longer. So
  /// that work which waits for a peer that is no more does not keep this rank.
  virtual void while_waiting(std::function<void()>) {}

  /// A moment in the order of work; marks are numbered from 0 and forgotten by forget_marks().
  virtual int mark() = 0;
  virtual double seconds(int from, int to) = 0;
  virtual void forget_marks() = 0;

  /// A library's attention, where one was asked for; nullptr: kernels do it.
  virtual LibraryAttention* attention() { return nullptr; }

  /// The stream of work, as CUDA has it, for other libraries; nullptr: there is none.
  virtual void* stream() { return nullptr; }
  /// Streams of work beside it, from 0. One begins when all that the stream of work was given until
  /// side_follows() is done; nothing waits for it but whoever asks a side_mark().
  virtual void* side_stream(int) { return nullptr; }
  virtual void side_follows(int) {}
  /// Tells from now on whether what the side stream has been given until now is done.
  virtual std::function<bool()> side_mark(int) {
    return [] { return true; };
  }
};

}  // namespace plimsoll::runtime::cuda
