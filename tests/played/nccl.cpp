// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// NCCL played on the CPU, as a libnccl.so.2 that tests put before the real one: the functions that
// runtime/cuda/nccl_peers.cpp calls, over mailboxes in memory that processes of one machine share.
// As with a communicator that does not block, calls return at once and their work goes on whenever
// a state is asked for; as for an emulated machine, "enqueued" means done, but for sends, which are
// taken up as they are called and go on beside whatever comes next. A rank that never comes is
// waited for until ncclCommAbort().

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr int kMostRanks = 8;
constexpr std::size_t kRoom = 16384;
enum Result : int { kSuccess = 0, kSystemError = 2, kInvalid = 4, kInProgress = 7 };

/// What one rank has for another: at most one piece at a time.
struct Mailbox {
  std::atomic<std::uint64_t> put, taken;
  std::uint64_t bytes;
  char data[kRoom];
};
struct Board {
  std::atomic<int> here;
  Mailbox boxes[kMostRanks][kMostRanks];  ///< from, to
};

struct Move {
  bool sends = false;
  int peer = 0;
  char* at = nullptr;
  std::size_t bytes = 0, done = 0;
  bool is_done() const { return done == bytes; }
};
struct Work {
  std::vector<Move> moves;
  std::vector<std::vector<char>> rooms;
  std::function<void()> finish;
};

}  // namespace

struct ncclComm {
  std::string name;
  Board* board = nullptr;
  int size = 0, rank = 0;
  bool joined = false;
  std::deque<Work> sends, others;  ///< each in order
};

namespace {

std::list<ncclComm*> all;
bool grouping = false;
std::vector<std::pair<ncclComm*, Work>> group;

/// A step of a message, where its mailbox lets it; what comes first in a mailbox goes first.
void go_on(ncclComm& c, Work& work) {
  bool busy[2][kMostRanks] = {};
  for (Move& m : work.moves) {
    bool& taken = busy[m.sends][m.peer];
    if (m.is_done() || taken) continue;
    taken = true;
    Mailbox& box = m.sends ? c.board->boxes[c.rank][m.peer] : c.board->boxes[m.peer][c.rank];
    if (m.sends && box.put == box.taken) {
      box.bytes = std::min(kRoom, m.bytes - m.done);
      std::memcpy(box.data, m.at + m.done, box.bytes);
      m.done += box.bytes;
      ++box.put;
    } else if (!m.sends && box.put != box.taken) {
      if (box.bytes > m.bytes - m.done) std::abort();  // more was sent than is expected
      std::memcpy(m.at + m.done, box.data, box.bytes);
      m.done += box.bytes;
      ++box.taken;
    }
  }
}

void go_on(ncclComm& c, std::deque<Work>& queue) {
  while (!queue.empty()) {
    Work& first = queue.front();
    go_on(c, first);
    for (const Move& m : first.moves)
      if (!m.is_done()) return;
    if (first.finish) first.finish();
    queue.pop_front();
  }
}

void go_on() {
  for (ncclComm* c : all) {
    if (!c->joined) {
      c->joined = c->board->here == c->size;
      // Nobody else needs its name: nothing is left behind by a process that is killed.
      if (c->joined && c->rank == 0) ::shm_unlink(c->name.c_str());
    }
    if (!c->joined) continue;
    go_on(*c, c->sends);
    go_on(*c, c->others);
  }
}

Result give(ncclComm* c, Work work) {
  c->others.push_back(std::move(work));
  go_on();
  return c->others.empty() ? kSuccess : kInProgress;
}

std::size_t bytes_of(int type) { return type == 8 ? 8 : type == 9 ? 2 : 4; }

/// To all others, and from all, in `rooms` by rank.
Work exchange(ncclComm* c, const char* mine, std::size_t bytes) {
  Work w;
  w.rooms.resize(static_cast<std::size_t>(c->size));
  for (int r = 0; r < c->size; ++r) {
    std::vector<char>& room = w.rooms[static_cast<std::size_t>(r)];
    room.assign(mine, mine + bytes);
    if (r == c->rank) continue;
    w.moves.push_back({true, r, w.rooms[static_cast<std::size_t>(r)].data(), bytes, 0});
  }
  return w;
}

float widen(std::uint16_t x) {
  const std::uint32_t bits = std::uint32_t{x} << 16;
  float f = 0;
  std::memcpy(&f, &bits, 4);
  return f;
}
std::uint16_t narrow(float f) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &f, 4);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
double number(const char* at, int type, std::size_t i) {
  if (type == 9) {
    std::uint16_t x = 0;
    std::memcpy(&x, at + 2 * i, 2);
    return static_cast<double>(widen(x));
  }
  if (type == 8) {
    double x = 0;
    std::memcpy(&x, at + 8 * i, 8);
    return x;
  }
  float x = 0;
  std::memcpy(&x, at + 4 * i, 4);
  return static_cast<double>(x);
}
void set_number(char* at, int type, std::size_t i, double x) {
  const auto single = static_cast<float>(x);
  const std::uint16_t half = narrow(single);
  if (type == 9)
    std::memcpy(at + 2 * i, &half, 2);
  else if (type == 8)
    std::memcpy(at + 8 * i, &x, 8);
  else
    std::memcpy(at + 4 * i, &single, 4);
}

/// out (count) = the ranks' from element \a first on, together.
Result reduce(ncclComm* c, const void* mine, void* out, std::size_t whole, std::size_t first,
              std::size_t count, int type, int op) {
  const std::size_t bytes = whole * bytes_of(type);
  // Sent from one copy, received into others.
  Work w = exchange(c, static_cast<const char*>(mine), bytes);
  auto theirs = std::make_shared<std::vector<std::vector<char>>>(w.rooms);
  for (int r = 0; r < c->size; ++r)
    if (r != c->rank)
      w.moves.push_back({false, r, (*theirs)[static_cast<std::size_t>(r)].data(), bytes, 0});
  w.finish = [=] {
    for (std::size_t i = 0; i < count; ++i) {
      double sum = number((*theirs)[0].data(), type, first + i);
      for (std::size_t r = 1; r < theirs->size(); ++r) {
        const double x = number((*theirs)[r].data(), type, first + i);
        sum = op == 2 ? std::max(sum, x) : sum + x;
        if (type != 8) sum = static_cast<double>(static_cast<float>(sum));
      }
      set_number(static_cast<char*>(out), type, i, sum);
    }
  };
  return give(c, std::move(w));
}

void leave(ncclComm* c) {
  all.remove(c);
  ::munmap(c->board, sizeof(Board));
  if (c->rank == 0 && !c->joined) ::shm_unlink(c->name.c_str());
  delete c;  // NOLINT: made in ncclCommInitRankConfig
}

}  // namespace

extern "C" {

struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig {
  std::size_t size;
  unsigned magic, version;
  int blocking;
};

Result ncclGetUniqueId(ncclUniqueId* id) {
  static int made = 0;
  std::snprintf(id->internal, sizeof id->internal, "/plimsoll_played_%d_%d", ::getpid(), made++);
  return kSuccess;
}

Result ncclCommInitRankConfig(ncclComm** comm, int size, ncclUniqueId id, int rank,
                              ncclConfig* config) {
  if (size > kMostRanks || config->magic != 0xcafebeef || config->blocking != 0) return kInvalid;
  const int file = ::shm_open(id.internal, O_CREAT | O_RDWR, 0600);
  if (file < 0 || ::ftruncate(file, sizeof(Board)) != 0) return kSystemError;
  void* at = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (at == MAP_FAILED) return kSystemError;
  *comm = new ncclComm;  // NOLINT: NCCL's interface
  (*comm)->name = id.internal;
  (*comm)->board = static_cast<Board*>(at);
  (*comm)->size = size;
  (*comm)->rank = rank;
  ++(*comm)->board->here;
  all.push_back(*comm);
  return kInProgress;
}

Result ncclCommGetAsyncError(ncclComm* c, int* state) {
  go_on();
  *state = c->joined && c->others.empty() ? kSuccess : kInProgress;
  return kSuccess;
}

Result ncclCommDestroy(ncclComm* c) {
  while (!c->sends.empty()) go_on();
  leave(c);
  return kSuccess;
}

Result ncclCommAbort(ncclComm* c) {
  leave(c);
  return kSuccess;
}

Result ncclGroupStart() {
  grouping = true;
  return kSuccess;
}

Result ncclGroupEnd() {
  grouping = false;
  Result answer = kSuccess;
  for (auto& [comm, work] : std::exchange(group, {}))
    if (give(comm, std::move(work)) != kSuccess) answer = kInProgress;
  return answer;
}

namespace {

Result post(ncclComm* c, Move move) {
  Work own;
  Work& w =
      grouping ? (group.empty() ? group.emplace_back(c, Work{}).second : group.back().second) : own;
  if (move.sends) {
    std::vector<char>& room = w.rooms.emplace_back(move.at, move.at + move.bytes);
    move.at = room.data();
  }
  w.moves.push_back(move);
  if (grouping) return kSuccess;
  if (!move.sends) return give(c, std::move(w));
  c->sends.push_back(std::move(w));
  go_on();
  return kSuccess;
}

}  // namespace

Result ncclSend(const void* at, std::size_t count, int type, int peer, ncclComm* c, void*) {
  auto* from = const_cast<char*>(static_cast<const char*>(at));  // NOLINT: it is copied
  return post(c, {true, peer, from, count * bytes_of(type), 0});
}

Result ncclRecv(void* at, std::size_t count, int type, int peer, ncclComm* c, void*) {
  return post(c, {false, peer, static_cast<char*>(at), count * bytes_of(type), 0});
}

Result ncclAllGather(const void* mine, void* out, std::size_t count, int type, ncclComm* c, void*) {
  const std::size_t bytes = count * bytes_of(type);
  Work w = exchange(c, static_cast<const char*>(mine), bytes);
  for (int r = 0; r < c->size; ++r) {
    char* place = static_cast<char*>(out) + static_cast<std::size_t>(r) * bytes;
    if (r == c->rank)
      std::memcpy(place, w.rooms[static_cast<std::size_t>(r)].data(), bytes);
    else
      w.moves.push_back({false, r, place, bytes, 0});
  }
  return give(c, std::move(w));
}

Result ncclReduceScatter(const void* mine, void* out, std::size_t count, int type, int op,
                         ncclComm* c, void*) {
  return reduce(c, mine, out, count * static_cast<std::size_t>(c->size),
                count * static_cast<std::size_t>(c->rank), count, type, op);
}

Result ncclAllReduce(const void* mine, void* out, std::size_t count, int type, int op, ncclComm* c,
                     void*) {
  return reduce(c, mine, out, count, 0, count, type, op);
}

Result ncclBroadcast(const void* mine, void* out, std::size_t count, int type, int root,
                     ncclComm* c, void*) {
  const std::size_t bytes = count * bytes_of(type);
  Work w;
  if (c->rank == root) {
    w.rooms.emplace_back(static_cast<const char*>(mine), static_cast<const char*>(mine) + bytes);
    for (int r = 0; r < c->size; ++r)
      if (r != root) w.moves.push_back({true, r, w.rooms[0].data(), bytes, 0});
  } else {
    w.moves.push_back({false, root, static_cast<char*>(out), bytes, 0});
  }
  return give(c, std::move(w));
}

const char* ncclGetErrorString(int) { return "played"; }

}  // extern "C"
