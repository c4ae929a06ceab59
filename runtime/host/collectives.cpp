// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/host/collectives.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "lang/diagnostics.hpp"

namespace plimsoll::runtime::host {

void Post::stop() {
  if (wire_) wire_->stop();
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

bool Post::stopped() const {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

void Post::leave(int rank) {
  if (wire_) return stop();
  const std::lock_guard lock(mutex_);
  left_.insert(rank);
  changed_.notify_all();
}

void Post::send(int from, int to, std::int64_t tag, std::vector<std::byte> letter) {
  if (wire_ && to != from)
    return wire_->send(to, Channel::letters, tag, letter.data(), letter.size());
  const std::lock_guard lock(mutex_);
  letters_[{from, to, tag}].push_back(std::move(letter));
  changed_.notify_all();
}

std::vector<std::byte> Post::receive(int from, int to, std::int64_t tag) {
  if (wire_ && to != from) {
    std::vector<std::byte> letter;
    if (!wire_->receive(from, Channel::letters, tag, letter)) throw Stopped();
    return letter;
  }
  std::unique_lock lock(mutex_);
  std::deque<std::vector<std::byte>>& box = letters_[{from, to, tag}];
  changed_.wait(lock, [&] { return stopped_ || !box.empty() || left_.contains(from); });
  if (stopped_ || box.empty()) throw Stopped();
  std::vector<std::byte> letter = std::move(box.front());
  box.pop_front();
  return letter;
}

std::size_t Post::unread() const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& [key, box] : letters_) count += box.size();
  return count;
}

/// Will the ranks never be complete again? One that has left may have come to this round before:
/// then some other one that it waited for has left.
bool Meeting::is_over() const {
  return post_.stopped_ || std::any_of(ranks_.begin(), ranks_.end(), [&](std::int64_t rank) {
           return post_.left_.contains(static_cast<int>(rank));
         });
}

/// Either all ranks come through or, where one has left, none does.
void Meeting::wait_for_all(std::unique_lock<std::mutex>& lock, int readers) {
  if (is_over()) throw Stopped();
  const std::uint64_t round = round_;
  if (++arrived_ == size_) {
    arrived_ = 0;
    readers_ = readers;
    ++round_;
    post_.changed_.notify_all();
    return;
  }
  post_.changed_.wait(lock, [&] { return round_ != round || is_over(); });
  if (round_ == round) throw Stopped();
}

void Meeting::barrier() {
  if (post_.wire_) {
    const auto me = std::find(ranks_.begin(), ranks_.end(), post_.wire_->rank());
    const Table table(*this, static_cast<int>(me - ranks_.begin()), nullptr, 0);
    return;
  }
  std::unique_lock lock(post_.mutex_);
  wait_for_all(lock, 0);
}

void Meeting::send(int rank, const void* data, std::int64_t bytes) {
  post_.wire_->send(static_cast<int>(ranks_[static_cast<std::size_t>(rank)]), Channel::meetings,
                    name_, data, static_cast<std::size_t>(bytes));
}

std::vector<std::byte> Meeting::receive(int rank) {
  std::vector<std::byte> letter;
  if (!post_.wire_->receive(static_cast<int>(ranks_[static_cast<std::size_t>(rank)]),
                            Channel::meetings, name_, letter))
    throw Stopped();
  return letter;
}

Meeting::Table::Table(Meeting& meeting, int rank, const void* mine, std::int64_t bytes)
    : meeting_(meeting), rank_(rank), mine_(mine) {
  if (over_wire()) {
    for (int r = 0; r < meeting.size(); ++r)
      if (r != rank) meeting.send(r, mine, mine ? bytes : 0);
    letters_.resize(static_cast<std::size_t>(meeting.size()));
    for (int r = 0; r < meeting.size(); ++r)
      if (r != rank) letters_[static_cast<std::size_t>(r)] = meeting.receive(r);
    return;
  }
  std::unique_lock lock(meeting.post_.mutex_);
  meeting.shown_[static_cast<std::size_t>(rank)] = mine;
  meeting.wait_for_all(lock, meeting.size_);
}

Meeting::Table::~Table() {
  if (over_wire()) return;
  std::unique_lock lock(meeting_.post_.mutex_);
  if (--meeting_.readers_ == 0) meeting_.post_.changed_.notify_all();
  meeting_.post_.changed_.wait(lock, [&] { return meeting_.readers_ == 0; });
}

namespace {

using Table = Meeting::Table;

template <class T>
constexpr std::int64_t bytes_of() {
  return static_cast<std::int64_t>(sizeof(T));
}

/// result (count) = the ranks' data from \a offset on, combined in their order.
template <class T, class F>
std::vector<T> combine(const Group& group, const T* data, std::int64_t whole, std::int64_t offset,
                       std::int64_t count, F f) {
  std::vector<T> result(static_cast<std::size_t>(count));
  const Table table(*group.meeting, group.rank, data, whole * bytes_of<T>());
  std::copy_n(table.of<T>(0) + offset, count, result.begin());
  for (int r = 1; r < group.size(); ++r) {
    const T* other = table.of<T>(r) + offset;
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = f(result[i], other[i]);
  }
  return result;
}

}  // namespace

template <class T>
void Group::all_gather(const T* mine, std::int64_t count, T* out) const {
  if (size() == 1) {
    std::copy_n(mine, count, out);
    return;
  }
  const Table table(*meeting, rank, mine, count * bytes_of<T>());
  for (int r = 0; r < size(); ++r) out = std::copy_n(table.of<T>(r), count, out);
}

template <class T>
void Group::reduce_scatter(const T* all, std::int64_t count, T* out) const {
  if (size() == 1) {
    std::copy_n(all, count, out);
    return;
  }
  // The result may lie in what others still read, so it is copied when all are done.
  const std::vector<T> part =
      combine(*this, all, size() * count, rank * count, count, std::plus<T>());
  std::copy(part.begin(), part.end(), out);
}

template <class T>
void Group::all_reduce(T* data, std::int64_t count) const {
  if (size() == 1) return;
  const std::vector<T> all = combine(*this, data, count, 0, count, std::plus<T>());
  std::copy(all.begin(), all.end(), data);
}

template <class T>
void Group::all_reduce_max(T* data, std::int64_t count) const {
  if (size() == 1) return;
  const auto larger = [](T a, T b) { return std::max(a, b); };
  const std::vector<T> all = combine(*this, data, count, 0, count, larger);
  std::copy(all.begin(), all.end(), data);
}

template <class T>
void Group::pass_on(const T* mine, std::int64_t count, T* out) const {
  if (size() == 1) {
    std::copy_n(mine, count, out);
    return;
  }
  const Table table(*meeting, rank, mine, count * bytes_of<T>());
  std::copy_n(table.of<T>((rank + size() - 1) % size()), count, out);
}

template <class T>
void Group::all_to_all(const T* send, const std::vector<std::int64_t>& sent, T* received,
                       const std::vector<std::int64_t>& expected) const {
  if (size() == 1) {
    std::copy_n(send, sent.front(), received);
    return;
  }
  if (meeting->post_.wire()) {
    const T* at = send;
    for (int r = 0; r < size(); at += sent[static_cast<std::size_t>(r++)])
      if (r != rank) meeting->send(r, at, sent[static_cast<std::size_t>(r)] * bytes_of<T>());
    for (int r = 0; r < size(); ++r) {
      const std::int64_t count = expected[static_cast<std::size_t>(r)];
      if (r == rank) {
        const T* mine = std::accumulate(sent.begin(), sent.begin() + r, send);
        received = std::copy_n(mine, count, received);
        continue;
      }
      const std::vector<std::byte> letter = meeting->receive(r);
      PLIMSOLL_ASSERT(static_cast<std::int64_t>(letter.size()) == count * bytes_of<T>());
      if (count > 0) std::memcpy(received, letter.data(), letter.size());
      received += count;
    }
    return;
  }
  struct Parcel {
    const T* data;
    const std::vector<std::int64_t>* counts;
  } mine{send, &sent};
  const Table table(*meeting, rank, &mine, sizeof mine);
  for (int r = 0; r < size(); ++r) {
    const Parcel& parcel = *table.of<Parcel>(r);
    const auto mine_at = parcel.counts->begin() + rank;
    PLIMSOLL_ASSERT(*mine_at == expected[static_cast<std::size_t>(r)]);
    const std::int64_t offset = std::accumulate(parcel.counts->begin(), mine_at, std::int64_t{0});
    received = std::copy_n(parcel.data + offset, *mine_at, received);
  }
}

#define PLIMSOLL_OF(T)                                                            \
  template void Group::all_gather(const T*, std::int64_t, T*) const;              \
  template void Group::pass_on(const T*, std::int64_t, T*) const;                 \
  template void Group::all_to_all(const T*, const std::vector<std::int64_t>&, T*, \
                                  const std::vector<std::int64_t>&) const;
#define PLIMSOLL_SUMS_OF(T)                                              \
  PLIMSOLL_OF(T)                                                         \
  template void Group::reduce_scatter(const T*, std::int64_t, T*) const; \
  template void Group::all_reduce(T*, std::int64_t) const;               \
  template void Group::all_reduce_max(T*, std::int64_t) const;
PLIMSOLL_SUMS_OF(float)
PLIMSOLL_SUMS_OF(double)
PLIMSOLL_OF(std::int64_t)
#undef PLIMSOLL_SUMS_OF
#undef PLIMSOLL_OF

}  // namespace plimsoll::runtime::host
