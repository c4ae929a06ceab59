// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/cuda/blas.cuh"
#include "runtime/cuda/check.cuh"
#include "runtime/cuda/driver_backing.hpp"
#include "runtime/cuda/gpu_launch.cuh"
#include "runtime/cuda/gpus.hpp"

namespace plimsoll::runtime::cuda {

namespace {

/// Shared memory of a block that is not the kernel's to ask for: block.cuh's own, rounded up.
constexpr std::int64_t kOwnShared = 1024;

class Stream {
 public:
  Stream() { PLIMSOLL_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() {
    if (stream_) cudaStreamDestroy(stream_);
  }
  Stream(Stream&& other) noexcept { std::swap(stream_, other.stream_); }
  Stream& operator=(Stream&&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() { PLIMSOLL_CUDA_CHECK(cudaEventCreate(&event_)); }
  ~Event() {
    if (event_) cudaEventDestroy(event_);
  }
  Event(Event&& other) noexcept { std::swap(event_, other.event_); }
  Event& operator=(Event&&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// The GPU's own driver. Its virtual-memory functions are looked up in libcuda when they are
/// needed.
class GpuDriver final : public Driver {
 public:
  explicit GpuDriver(int gpu) : gpu_(gpu) {}

  MemoryFacts memory() const override {
    std::size_t free = 0, total = 0;
    PLIMSOLL_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return {static_cast<std::int64_t>(free), static_cast<std::int64_t>(total)};
  }
  void* allocate(std::int64_t bytes) override {
    void* at = nullptr;
    const cudaError_t answer = cudaMalloc(&at, static_cast<std::size_t>(bytes));
    if (answer == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // it is told as a value
      return nullptr;
    }
    PLIMSOLL_CUDA_CHECK(answer);
    return at;
  }
  /// It waits for all work; what waits for a peer that is no more has to end first.
  void free(void* at) override {
    try {
      if (before_free) before_free();
    } catch (...) {  // told again by whoever waits next
    }
    cudaFree(at);
  }
  std::function<void()> before_free;
  Address reserve(std::int64_t bytes) override {
    CUdeviceptr at = 0;
    PLIMSOLL_CUDA_CHECK(
        api().reserve(&at, static_cast<std::size_t>(bytes), static_cast<std::size_t>(kPage), 0, 0));
    return static_cast<Address>(at);
  }
  void release(Address at, std::int64_t bytes) override {
    api().release(static_cast<CUdeviceptr>(at), static_cast<std::size_t>(bytes));
  }
  bool map(Address at) override {
    CUmemAllocationProp what{};
    what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    what.location.id = gpu_;
    CUmemGenericAllocationHandle page{};
    const CUresult answer = api().create(&page, static_cast<std::size_t>(kPage), &what, 0);
    if (answer == CUDA_ERROR_OUT_OF_MEMORY) return false;
    PLIMSOLL_CUDA_CHECK(answer);
    PLIMSOLL_CUDA_CHECK(
        api().map(static_cast<CUdeviceptr>(at), static_cast<std::size_t>(kPage), 0, page, 0));
    // The page lives as long as it is mapped.
    PLIMSOLL_CUDA_CHECK(api().drop(page));
    return true;
  }
  void unmap(Address at) override {
    api().unmap(static_cast<CUdeviceptr>(at), static_cast<std::size_t>(kPage));
  }
  void open(Address at, std::int64_t bytes) override {
    CUmemAccessDesc who{};
    who.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    who.location.id = gpu_;
    who.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    PLIMSOLL_CUDA_CHECK(
        api().open(static_cast<CUdeviceptr>(at), static_cast<std::size_t>(bytes), &who, 1));
  }

 private:
  struct Api {
    Api() : library({"libcuda.so.1"}) {
      library.get(reserve, "cuMemAddressReserve");
      library.get(release, "cuMemAddressFree");
      library.get(create, "cuMemCreate");
      library.get(drop, "cuMemRelease");
      library.get(map, "cuMemMap");
      library.get(unmap, "cuMemUnmap");
      library.get(open, "cuMemSetAccess");
    }
    Library library;
    decltype(cuMemAddressReserve)* reserve = nullptr;
    decltype(cuMemAddressFree)* release = nullptr;
    decltype(cuMemCreate)* create = nullptr;
    decltype(cuMemRelease)* drop = nullptr;
    decltype(cuMemMap)* map = nullptr;
    decltype(cuMemUnmap)* unmap = nullptr;
    decltype(cuMemSetAccess)* open = nullptr;
  };
  Api& api() {
    if (!api_) api_.emplace();
    return *api_;
  }
  int gpu_;
  std::optional<Api> api_;
};

/// Of the kernel module: "NVRM version: NVIDIA UNIX … Kernel Module  580.159.03  …".
std::string driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string word;
  while (file >> word)
    if (word.find('.') != std::string::npos &&
        word.find_first_not_of("0123456789.") == std::string::npos)
      return word;
  int version = 0;
  PLIMSOLL_CUDA_CHECK(cudaDriverGetVersion(&version));
  return "for CUDA " + std::to_string(version / 1000) + '.' + std::to_string(version % 1000 / 10);
}

class GpuMachine final : public Machine {
 public:
  explicit GpuMachine(int gpu) : driver_(gpu) {
    PLIMSOLL_CUDA_CHECK(cudaGetDeviceProperties(&gpu_, gpu));
    const char* attention = std::getenv("PLIMSOLL_ATTENTION");
    if (attention && std::string(attention) == "cudnn") attention_ = cudnn_attention(stream());
  }
  GpuFacts facts() const override {
    // Less what a team's sums take of it.
    return {gpu_.multiProcessorCount,
            static_cast<std::int64_t>(gpu_.sharedMemPerBlockOptin) - kOwnShared,
            gpu_.major * 10 + gpu_.minor};
  }
  std::string name() const override { return gpu_.name; }
  std::string driver() const override { return driver_version(); }
  MemoryFacts memory() const override { return driver_.memory(); }
  std::unique_ptr<Backing> backing(std::int64_t capacity) override {
    return std::make_unique<DriverBacking>(driver_, capacity);
  }

  void launch(const Kernel& kernel) override {
    launch_on(stream_, kernel, launch_shape(kernel, facts()));
  }
  void multiply(const Product& p) override { blas().multiply(stream_, p); }
  void use_workspace(void* at, std::int64_t bytes) override {
    if (blas_ || bytes > 0) blas().use_workspace(at, bytes);
  }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    transfer(to, from, bytes, cudaMemcpyDeviceToDevice);
  }
  void clear(void* at, std::int64_t bytes) override {
    if (bytes > 0)
      PLIMSOLL_CUDA_CHECK(cudaMemsetAsync(at, 0, static_cast<std::size_t>(bytes), stream_));
  }
  void upload(void* to, const void* from, std::int64_t bytes) override {
    if (look_) wait();  // the driver would wait, and not look
    transfer(to, from, bytes, cudaMemcpyHostToDevice);
    wait();  // the caller's memory may go
  }
  void download(void* to, const void* from, std::int64_t bytes) override {
    if (look_) wait();
    transfer(to, from, bytes, cudaMemcpyDeviceToHost);
    wait();
  }
  void wait() override {
    while (look_) {
      const cudaError_t answer = cudaStreamQuery(stream_);
      if (answer == cudaSuccess) return;
      if (answer != cudaErrorNotReady) PLIMSOLL_CUDA_CHECK(answer);
      look_();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    PLIMSOLL_CUDA_CHECK(cudaStreamSynchronize(stream_));
  }
  void while_waiting(std::function<void()> look) override {
    look_ = std::move(look);
    driver_.before_free = look_ ? std::function<void()>([this] { wait(); }) : nullptr;
  }

  int mark() override {
    if (marks_ == events_.size()) events_.emplace_back();
    PLIMSOLL_CUDA_CHECK(cudaEventRecord(events_[marks_], stream_));
    return static_cast<int>(marks_++);
  }
  double seconds(int from, int to) override {
    float milliseconds = 0;
    PLIMSOLL_CUDA_CHECK(cudaEventElapsedTime(&milliseconds,
                                             events_.at(static_cast<std::size_t>(from)),
                                             events_.at(static_cast<std::size_t>(to))));
    return milliseconds / 1000.0;
  }
  void forget_marks() override { marks_ = 0; }
  LibraryAttention* attention() override { return attention_.get(); }
  void* stream() override { return static_cast<cudaStream_t>(stream_); }
  void* side_stream(int n) override {
    while (sides_.size() <= static_cast<std::size_t>(n)) sides_.emplace_back();
    return static_cast<cudaStream_t>(sides_[static_cast<std::size_t>(n)]);
  }
  void side_follows(int n) override {
    auto* side = static_cast<cudaStream_t>(side_stream(n));
    PLIMSOLL_CUDA_CHECK(cudaEventRecord(given_, stream_));
    PLIMSOLL_CUDA_CHECK(cudaStreamWaitEvent(side, given_, 0));
  }
  std::function<bool()> side_mark(int n) override {
    const auto event = std::make_shared<Event>();
    PLIMSOLL_CUDA_CHECK(cudaEventRecord(*event, static_cast<cudaStream_t>(side_stream(n))));
    return [event] {
      const cudaError_t answer = cudaEventQuery(*event);
      if (answer == cudaErrorNotReady) return false;
      PLIMSOLL_CUDA_CHECK(answer);
      return true;
    };
  }

 private:
  void transfer(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind kind) {
    if (bytes > 0)
      PLIMSOLL_CUDA_CHECK(
          cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, stream_));
  }
  Blas& blas() {
    if (!blas_) blas_.emplace();
    return *blas_;
  }
  GpuDriver driver_;
  cudaDeviceProp gpu_{};
  Stream stream_;
  std::unique_ptr<LibraryAttention> attention_;
  std::vector<Stream> sides_;
  Event given_;  ///< what side_follows() waits for
  std::function<void()> look_;
  std::optional<Blas> blas_;
  std::vector<Event> events_;
  std::size_t marks_ = 0;
};

}  // namespace

int gpu_count() {
  int count = 0;
  PLIMSOLL_CUDA_CHECK(cudaGetDeviceCount(&count));
  return count;
}

double peer_bandwidth(int from, int to) {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  constexpr int kTurns = 10;
  void *source = nullptr, *target = nullptr;
  PLIMSOLL_CUDA_CHECK(cudaSetDevice(to));
  PLIMSOLL_CUDA_CHECK(cudaMalloc(&target, kBytes));
  PLIMSOLL_CUDA_CHECK(cudaSetDevice(from));
  PLIMSOLL_CUDA_CHECK(cudaMalloc(&source, kBytes));
  int direct = 0;
  PLIMSOLL_CUDA_CHECK(cudaDeviceCanAccessPeer(&direct, from, to));
  if (direct) cudaDeviceEnablePeerAccess(to, 0);
  cudaGetLastError();  // it may have been enabled before
  const Stream stream;
  const Event begin, end;
  const auto copy = [&] {
    PLIMSOLL_CUDA_CHECK(cudaMemcpyPeerAsync(target, to, source, from, kBytes, stream));
  };
  copy();
  PLIMSOLL_CUDA_CHECK(cudaEventRecord(begin, stream));
  for (int i = 0; i < kTurns; ++i) copy();
  PLIMSOLL_CUDA_CHECK(cudaEventRecord(end, stream));
  PLIMSOLL_CUDA_CHECK(cudaEventSynchronize(end));
  float milliseconds = 0;
  PLIMSOLL_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
  cudaFree(source);
  cudaFree(target);
  return kTurns * static_cast<double>(kBytes) / (milliseconds / 1000.0);
}

std::unique_ptr<Machine> open_gpu(int number) {
  PLIMSOLL_CUDA_CHECK(cudaSetDevice(number));
  return std::make_unique<GpuMachine>(number);
}

}  // namespace plimsoll::runtime::cuda
