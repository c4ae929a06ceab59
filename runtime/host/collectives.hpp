// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/wire.hpp"

/// Collectives in memory between ranks that are threads, or over a wire between ranks that are
/// processes. Every rank of a group calls the same
/// collectives in the same order. Sums are made in the order of ranks, so a run is the same each
/// time. When a rank leaves, whoever waits for it throws Stopped: which ranks go on, and how far,
/// follows from the program and not from how threads are scheduled.
namespace plimsoll::runtime::host {

/// Another rank failed: this one ends too.
class Stopped : public std::exception {
 public:
  const char* what() const noexcept override { return "another rank stopped the run"; }
};

/// What all ranks of a run share: how they wait for each other, and letters on their way.
class Post {
 public:
  /// \a wire: to ranks that are processes, one each; nullptr: all are threads of this one.
  explicit Post(Wire* wire = nullptr) : wire_(wire) {}
  Wire* wire() const { return wire_; }
  /// Ends the run: whoever waits, now or later, throws Stopped.
  void stop();
  bool stopped() const;
  /// The rank does nothing any more. What it has sent can still be received. Over a wire: stop().
  void leave(int rank);

  /// A letter never waits for its reader.
  void send(int from, int to, std::int64_t tag, std::vector<std::byte> letter);
  /// The oldest letter of that kind; waits for it.
  std::vector<std::byte> receive(int from, int to, std::int64_t tag);
  /// Letters that nobody has read.
  std::size_t unread() const;

 private:
  friend class Meeting;
  Wire* wire_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::set<int> left_;
  std::map<std::tuple<int, int, std::int64_t>, std::deque<std::vector<std::byte>>> letters_;
};

/// Where the ranks of one group meet.
class Meeting {
 public:
  Meeting(Post& post, int size)
      : post_(post), size_(size), shown_(static_cast<std::size_t>(size)) {}
  /// Of ranks by their number among all; \a name tells it from other meetings.
  Meeting(Post& post, const std::vector<std::int64_t>& ranks, std::int64_t name)
      : Meeting(post, static_cast<int>(ranks.size())) {
    ranks_ = ranks;
    name_ = name;
  }

  int size() const { return size_; }
  /// Waits until all ranks are here.
  void barrier();

  /// What all ranks have shown each other, by rank. It may be read while this lives; it ends when
  /// all ranks are done with reading, even in a run that was stopped.
  class Table {
   public:
    /// Waits until all have shown theirs: \a bytes of it; nullptr: nothing.
    Table(Meeting&, int rank, const void* mine, std::int64_t bytes);
    ~Table();
    Table(const Table&) = delete;
    Table& operator=(const Table&) = delete;
    template <class T>
    const T* of(int rank) const {
      if (!over_wire())
        return static_cast<const T*>(meeting_.shown_[static_cast<std::size_t>(rank)]);
      if (rank == rank_) return static_cast<const T*>(mine_);
      const std::vector<std::byte>& letter = letters_[static_cast<std::size_t>(rank)];
      return letter.empty() ? nullptr : reinterpret_cast<const T*>(letter.data());  // NOLINT
    }

   private:
    bool over_wire() const { return meeting_.post_.wire_ != nullptr; }
    Meeting& meeting_;
    int rank_;
    const void* mine_;
    std::vector<std::vector<std::byte>> letters_;  ///< over a wire: what came, by rank
  };

 private:
  friend struct Group;
  void wait_for_all(std::unique_lock<std::mutex>&, int readers);
  void send(int rank, const void* data, std::int64_t bytes);
  std::vector<std::byte> receive(int rank);
  bool is_over() const;

  Post& post_;
  int size_;
  int arrived_ = 0, readers_ = 0;
  std::uint64_t round_ = 0;
  std::vector<const void*> shown_;
  std::vector<std::int64_t> ranks_;  ///< by number among all; empty: nobody leaves
  std::int64_t name_ = 0;
};

/// A rank's place in a group; without a meeting it is alone.
struct Group {
  Meeting* meeting = nullptr;
  int rank = 0;

  int size() const { return meeting ? meeting->size() : 1; }
  void barrier() const {
    if (size() > 1) meeting->barrier();
  }

  /// out (size * count) = what each rank gave, in the order of ranks.
  template <class T>
  void all_gather(const T* mine, std::int64_t count, T* out) const;
  /// out (count) = the sum over ranks of their \a all's part for this rank; all is size * count.
  template <class T>
  void reduce_scatter(const T* all, std::int64_t count, T* out) const;
  /// data (count) = the sum over ranks.
  template <class T>
  void all_reduce(T* data, std::int64_t count) const;
  /// data (count) = the largest over ranks.
  template <class T>
  void all_reduce_max(T* data, std::int64_t count) const;
  /// out (count) = what the rank before gave; the first one's is the last one's: a ring's step.
  template <class T>
  void pass_on(const T* mine, std::int64_t count, T* out) const;
  /// `send` holds sent[r] elements for rank r, one after the other, so does `received` for what
  /// comes from rank r.
  template <class T>
  void all_to_all(const T* send, const std::vector<std::int64_t>& sent, T* received,
                  const std::vector<std::int64_t>& expected) const;
};

}  // namespace plimsoll::runtime::host
