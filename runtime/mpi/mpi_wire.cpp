// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// The only file that knows MPI: a library that runtime/wire.cpp loads.

#include <mpi.h>

#include <chrono>
#include <climits>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <stdexcept>
#include <thread>
#include <tuple>

#include "runtime/wire.hpp"

namespace plimsoll::runtime {

namespace {

struct Header {
  std::int32_t channel;
  std::int32_t unused;
  std::int64_t tag;
};

class MpiWire final : public Wire {
 public:
  MpiWire() {
    int running = 0;
    MPI_Initialized(&running);
    if (!running) MPI_Init(nullptr, nullptr);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  /// What others still have on its way here, in a run that was stopped, is read and forgotten.
  ~MpiWire() override {
    MPI_Request all = MPI_REQUEST_NULL;
    MPI_Ibarrier(MPI_COMM_WORLD, &all);
    for (int done = 0; !done || !outgoing_.empty();) {
      if (!read_one(false)) rest();
      sweep();
      if (!done) MPI_Test(&all, &done, MPI_STATUS_IGNORE);
      // A rank that hangs would keep all: without a finalize mpirun ends whoever is left.
      if (!done && out_of_patience()) return;
    }
    while (read_one(false)) {
    }
    MPI_Finalize();
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void send(int to, Channel channel, std::int64_t tag, const void* data,
            std::size_t bytes) override {
    if (bytes > static_cast<std::size_t>(INT_MAX) - sizeof(Header))
      throw std::runtime_error("a message between processes is larger than 2 GiB");
    sweep();
    Outgoing& out = outgoing_.emplace_back();
    const Header header{static_cast<std::int32_t>(channel), 0, tag};
    out.bytes.resize(sizeof header + bytes);
    std::memcpy(out.bytes.data(), &header, sizeof header);
    if (bytes > 0) std::memcpy(out.bytes.data() + sizeof header, data, bytes);
    MPI_Isend(out.bytes.data(), static_cast<int>(out.bytes.size()), MPI_BYTE, to, 0, MPI_COMM_WORLD,
              &out.request);
  }

  bool receive(int from, Channel channel, std::int64_t tag,
               std::vector<std::byte>& message) override {
    auto& box = boxes_[{from, static_cast<std::int32_t>(channel), tag}];
    while (box.empty()) {
      if (stopped_ && channel != Channel::results) return false;
      if (!read_one(!stopped_)) rest();
      if (box.empty() && out_of_patience()) return false;
    }
    message = std::move(box.front());
    box.pop_front();
    return true;
  }

  void stop() override {
    if (stopped_) return;
    be_stopped();
    for (int r = 0; r < size_; ++r)
      if (r != rank_) send(r, Channel::stop, 0, nullptr, 0);
  }
  bool stopped() override {
    while (!stopped_ && read_one(false)) {
    }
    return stopped_;
  }

 private:
  struct Outgoing {
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  using Clock = std::chrono::steady_clock;
  void be_stopped() {
    if (!stopped_) until_ = Clock::now() + std::chrono::seconds(kPatience);
    stopped_ = true;
  }
  bool out_of_patience() const { return stopped_ && Clock::now() > until_; }
  static void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

  /// Files whatever comes next under who sent it and what it is.
  bool read_one(bool wait) {
    MPI_Status status;
    int there = 1;
    if (wait)
      MPI_Probe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &status);
    else
      MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &there, &status);
    if (!there) return false;
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    std::vector<std::byte> bytes(static_cast<std::size_t>(count));
    MPI_Recv(bytes.data(), count, MPI_BYTE, status.MPI_SOURCE, 0, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    Header header{};
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.channel == static_cast<std::int32_t>(Channel::stop)) {
      be_stopped();
      return true;
    }
    bytes.erase(bytes.begin(), bytes.begin() + sizeof header);
    boxes_[{status.MPI_SOURCE, header.channel, header.tag}].push_back(std::move(bytes));
    return true;
  }
  void sweep() {
    std::erase_if(outgoing_, [](Outgoing& out) {
      int done = 0;
      MPI_Test(&out.request, &done, MPI_STATUS_IGNORE);
      return done != 0;
    });
  }

  int rank_ = 0, size_ = 1;
  bool stopped_ = false;
  Clock::time_point until_;  ///< of patience, in a run that was stopped
  std::list<Outgoing> outgoing_;
  std::map<std::tuple<int, std::int32_t, std::int64_t>, std::deque<std::vector<std::byte>>> boxes_;
};

}  // namespace

}  // namespace plimsoll::runtime

extern "C" plimsoll::runtime::Wire* plimsoll_open_mpi() {
  return new plimsoll::runtime::MpiWire();  // NOLINT: the caller owns it
}
