// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/tcp_wire.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

namespace plimsoll::runtime {

namespace {

using Clock = std::chrono::steady_clock;

struct Header {
  std::int32_t from = 0, to = 0, channel = 0, unused = 0;
  std::int64_t tag = 0;
  std::uint64_t bytes = 0;
};

bool write_all(int socket, const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::send(socket, at, bytes, MSG_NOSIGNAL);
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}
bool read_all(int socket, void* data, std::size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::recv(socket, at, bytes, 0);
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

class TcpWire final : public Wire {
 public:
  /// \a sockets: on rank 0 one to each other rank, by rank; elsewhere one, to rank 0.
  TcpWire(int rank, int size, std::vector<int> sockets)
      : rank_(rank), size_(size), sockets_(std::move(sockets)), locks_(sockets_.size()) {
    for (std::size_t i = 0; i < sockets_.size(); ++i)
      if (sockets_[i] >= 0)
        readers_.emplace_back(
            [this, i] { read(sockets_[i], rank_ == 0 ? static_cast<int>(i) : 0); });
  }
  /// Nobody goes before all are done: rank 0 passes on what others still say to each other. In a
  /// run that was stopped nobody waits for longer than kPatience.
  ~TcpWire() override {
    std::vector<std::byte> word;
    if (rank_ == 0) {
      for (int r = 1; r < size_; ++r) receive(r, Channel::results, kBye, word);
      for (int r = 1; r < size_; ++r) send(r, Channel::results, kBye, nullptr, 0);
    } else {
      send(0, Channel::results, kBye, nullptr, 0);
      receive(0, Channel::results, kBye, word);
    }
    for (const int s : sockets_)
      if (s >= 0) ::shutdown(s, SHUT_RDWR);
    for (std::thread& t : readers_) t.join();
    for (const int s : sockets_)
      if (s >= 0) ::close(s);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void send(int to, Channel channel, std::int64_t tag, const void* data,
            std::size_t bytes) override {
    pass_on({rank_, to, static_cast<std::int32_t>(channel), 0, tag, bytes}, data);
  }
  bool receive(int from, Channel channel, std::int64_t tag,
               std::vector<std::byte>& message) override {
    std::unique_lock lock(mutex_);
    auto& box = boxes_[{from, static_cast<std::int32_t>(channel), tag}];
    const bool patient = channel == Channel::results;
    // Without rank 0 nobody is heard.
    const auto over = [&] {
      return !box.empty() || ended_.contains(from) || ended_.contains(0) || (stopped_ && !patient);
    };
    changed_.wait(lock, [&] { return over() || stopped_; });
    if (!over()) changed_.wait_until(lock, until_, over);
    if (box.empty()) return false;
    message = std::move(box.front());
    box.pop_front();
    return true;
  }
  void stop() override {
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) return;
      be_stopped();
    }
    tell_all(kFailed);
  }
  bool stopped() override {
    const std::lock_guard lock(mutex_);
    return stopped_;
  }
  int gone() const override {
    const std::lock_guard lock(mutex_);
    return gone_;
  }

 private:
  static constexpr std::int64_t kBye = -1;
  static constexpr std::int64_t kFailed = -1;  ///< why a run is stopped; else the rank that is gone

  void be_stopped() {  // locked
    if (!stopped_) until_ = Clock::now() + std::chrono::seconds(kPatience);
    stopped_ = true;
    changed_.notify_all();
  }
  void tell_all(std::int64_t why) {
    for (int r = 0; r < size_; ++r)
      if (r != rank_) send(r, Channel::stop, why, nullptr, 0);
  }

  void pass_on(const Header& h, const void* data) {
    const auto way = rank_ == 0 ? static_cast<std::size_t>(h.to) : 0;
    const std::lock_guard lock(locks_[way]);
    if (write_all(sockets_[way], &h, sizeof h)) write_all(sockets_[way], data, h.bytes);
  }
  /// What \a other says, until it has nothing more to say.
  void read(int socket, int other) {
    Header h;
    bool bye = false;
    while (read_all(socket, &h, sizeof h)) {
      std::vector<std::byte> bytes(h.bytes);
      if (h.bytes > 0 && !read_all(socket, bytes.data(), bytes.size())) break;
      if (h.to != rank_) {
        pass_on(h, bytes.data());
        continue;
      }
      const std::lock_guard lock(mutex_);
      if (h.channel == static_cast<std::int32_t>(Channel::stop)) {
        if (h.tag != kFailed && gone_ < 0) gone_ = static_cast<int>(h.tag);
        be_stopped();
        continue;
      }
      bye = bye || (h.channel == static_cast<std::int32_t>(Channel::results) && h.tag == kBye);
      boxes_[{h.from, h.channel, h.tag}].push_back(std::move(bytes));
      changed_.notify_all();
    }
    // A process that went away without a word stops the others, who hear of it from rank 0.
    {
      const std::lock_guard lock(mutex_);
      ended_.insert(other);
      changed_.notify_all();
      if (bye) return;
      if (gone_ < 0) gone_ = other;
      be_stopped();
    }
    if (rank_ == 0) tell_all(other);
  }

  int rank_, size_;
  std::vector<int> sockets_;
  std::vector<std::mutex> locks_;  ///< of writing, by socket
  std::vector<std::thread> readers_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  Clock::time_point until_;  ///< of patience, in a run that was stopped
  int gone_ = -1;
  std::set<int> ended_;  ///< who says nothing more, of those that this rank reads
  std::map<std::tuple<int, std::int32_t, std::int64_t>, std::deque<std::vector<std::byte>>> boxes_;
};

/// Rank 0: one socket from each other rank, which says first who it is.
std::variant<std::vector<int>, std::string> accept_all(const TcpPlace& p, Clock::time_point until) {
  const int door = ::socket(AF_INET6, SOCK_STREAM, 0);
  const int yes = 1, no = 0;
  ::setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  ::setsockopt(door, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  sockaddr_in6 at{};
  at.sin6_family = AF_INET6;
  at.sin6_port = htons(static_cast<std::uint16_t>(p.port));
  if (::bind(door, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 ||  // NOLINT
      ::listen(door, p.size) != 0) {
    ::close(door);
    return fmt::format("rank 0 cannot listen on port {}: {}", p.port, std::strerror(errno));
  }
  std::vector<int> sockets(static_cast<std::size_t>(p.size), -1);
  for (int here = 1; here < p.size;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::seconds>(until - Clock::now()).count();
    timeval wait{std::max<long>(left, 1), 0};
    ::setsockopt(door, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    const int socket = ::accept(door, nullptr, nullptr);
    std::int32_t rank = 0;
    if (socket < 0) {
      ::close(door);
      return fmt::format("{} of {} ranks came to rank 0's port {} in time", here, p.size, p.port);
    }
    if (!read_all(socket, &rank, sizeof rank) || rank < 1 || rank >= p.size ||
        sockets[static_cast<std::size_t>(rank)] >= 0) {
      ::close(socket);  // nobody of ours
      continue;
    }
    sockets[static_cast<std::size_t>(rank)] = socket;
    ++here;
  }
  ::close(door);
  return sockets;
}

std::variant<std::vector<int>, std::string> call_first(const TcpPlace& p, Clock::time_point until) {
  addrinfo wish{}, *found = nullptr;
  wish.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(p.host.c_str(), std::to_string(p.port).c_str(), &wish, &found) != 0)
    return fmt::format("rank 0's machine '{}' is not known here", p.host);
  int socket = -1;
  while (socket < 0 && Clock::now() < until) {
    for (const addrinfo* a = found; a && socket < 0; a = a->ai_next) {
      socket = ::socket(a->ai_family, a->ai_socktype, a->ai_protocol);
      if (socket >= 0 && ::connect(socket, a->ai_addr, a->ai_addrlen) != 0) {
        ::close(socket);
        socket = -1;
      }
    }
    if (socket < 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  ::freeaddrinfo(found);
  const std::int32_t rank = p.rank;
  if (socket < 0 || !write_all(socket, &rank, sizeof rank))
    return fmt::format("rank 0 does not answer at {} port {}", p.host, p.port);
  return std::vector<int>{socket};
}

}  // namespace

std::variant<std::unique_ptr<Wire>, std::string> open_tcp(const TcpPlace& p, int seconds) {
  const auto until = Clock::now() + std::chrono::seconds(seconds);
  auto met = p.rank == 0 ? accept_all(p, until) : call_first(p, until);
  if (auto* why = std::get_if<std::string>(&met)) return std::move(*why);
  auto& sockets = std::get<std::vector<int>>(met);
  // A machine that is no more there is noticed within some ten seconds.
  const int yes = 1, idle = 4, pause = 2, tries = 3;
  const unsigned most = 10000;  // milliseconds
  for (const int s : sockets) {
    if (s < 0) continue;
    ::setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    ::setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    ::setsockopt(s, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    ::setsockopt(s, IPPROTO_TCP, TCP_KEEPINTVL, &pause, sizeof pause);
    ::setsockopt(s, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
    ::setsockopt(s, IPPROTO_TCP, TCP_USER_TIMEOUT, &most, sizeof most);
  }
  return std::make_unique<TcpWire>(p.rank, p.size, std::move(sockets));
}

}  // namespace plimsoll::runtime
