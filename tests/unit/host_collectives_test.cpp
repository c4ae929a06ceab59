// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "runtime/host/collectives.hpp"
#include "tests/catch.hpp"

using namespace plimsoll::runtime::host;

namespace {

/// Runs f(group) on each of \a size ranks, and says how many were stopped.
int on_ranks(int size, const std::function<void(Group)>& f, Post& post) {
  Meeting meeting(post, size);
  std::vector<std::thread> threads;
  std::atomic<int> stopped = 0;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        f(Group{&meeting, rank});
      } catch (const Stopped&) {
        ++stopped;
      }
    });
  for (std::thread& t : threads) t.join();
  return stopped;
}

/// Checks on other threads are counted here and looked at on the test's own.
void all_ranks(int size, const std::function<bool(Group)>& f) {
  Post post;
  std::atomic<int> right = 0;
  CHECK(on_ranks(
            size, [&](Group g) { right += f(g); }, post) == 0);
  CHECK(right == size);
  CHECK(post.unread() == 0);
}

/// Element i of what rank r has.
double element(int r, int i) { return 100 * r + i; }
std::vector<double> data_of(int rank, int count) {
  std::vector<double> data;
  for (int i = 0; i < count; ++i) data.push_back(element(rank, i));
  return data;
}

}  // namespace

TEST_CASE("host: collectives move and add what they should", "[host]") {
  for (const int n : {1, 2, 3, 8}) {
    all_ranks(n, [n](Group g) {
      std::vector<double> out(static_cast<std::size_t>(3 * n)), expected;
      for (int r = 0; r < n; ++r)
        for (const double x : data_of(r, 3)) expected.push_back(x);
      g.all_gather(data_of(g.rank, 3).data(), 3, out.data());
      return out == expected;
    });
    all_ranks(n, [n](Group g) {
      std::vector<double> data = data_of(g.rank, 4), expected(4), largest = data_of(n - 1, 4);
      for (int r = 0; r < n; ++r)
        for (int i = 0; i < 4; ++i) expected[static_cast<std::size_t>(i)] += element(r, i);
      std::vector<double> most = data;
      g.all_reduce(data.data(), 4);
      g.all_reduce_max(most.data(), 4);
      return data == expected && most == largest;
    });
    all_ranks(n, [n](Group g) {
      std::vector<double> all = data_of(g.rank, 2 * n), expected(2);
      for (int r = 0; r < n; ++r)
        for (int i = 0; i < 2; ++i)
          expected[static_cast<std::size_t>(i)] += element(r, 2 * g.rank + i);
      g.reduce_scatter(all.data(), 2, all.data());  // in place
      return all[0] == expected[0] && all[1] == expected[1];
    });
    all_ranks(n, [n](Group g) {
      double out = 0;
      const double mine = g.rank;
      g.pass_on(&mine, 1, &out);
      return out == (g.rank + n - 1) % n;
    });
  }
}

TEST_CASE("host: all-to-all with unlike shares", "[host]") {
  for (const int n : {1, 2, 4})
    all_ranks(n, [n](Group g) {  // rank r sends r + s + 1 elements to rank s
      std::vector<std::int64_t> sent, expected;
      std::vector<double> send, right;
      for (int s = 0; s < n; ++s) {
        sent.push_back(g.rank + s + 1);
        expected.push_back(s + g.rank + 1);
        for (int i = 0; i < g.rank + s + 1; ++i) send.push_back(1000 * g.rank + 10 * s + i);
        for (int i = 0; i < s + g.rank + 1; ++i) right.push_back(1000 * s + 10 * g.rank + i);
      }
      std::vector<double> received(right.size());
      g.all_to_all(send.data(), sent, received.data(), expected);
      return received == right;
    });
}

TEST_CASE("host: sums are the same on every rank and every time", "[host]") {
  std::vector<float> first;
  for (int time = 0; time < 5; ++time) {
    std::vector<std::vector<float>> sums(4);
    Post post;
    on_ranks(
        4,
        [&](Group g) {
          auto& sum = sums[static_cast<std::size_t>(g.rank)];
          for (int i = 0; i < 50; ++i) sum.push_back(1.0f / static_cast<float>(7 * g.rank + i + 1));
          g.all_reduce(sum.data(), 50);
        },
        post);
    if (first.empty()) first = sums[0];
    for (const auto& sum : sums) CHECK(sum == first);
  }
}

TEST_CASE("host: letters arrive in order, by sender and kind", "[host]") {
  all_ranks(1, [](Group) { return true; });
  Post post;
  std::vector<int> got;
  on_ranks(
      2,
      [&](Group g) {
        const auto letter = [](int x) { return std::vector<std::byte>(1, std::byte(x)); };
        if (g.rank == 0) {
          post.send(0, 1, 5, letter(1));
          post.send(0, 1, 6, letter(2));
          post.send(0, 1, 5, letter(3));
          return;
        }
        for (const int tag : {6, 5, 5})
          got.push_back(static_cast<int>(post.receive(0, 1, tag).front()));
      },
      post);
  CHECK(got == std::vector<int>{2, 1, 3});
  CHECK(post.unread() == 0);
}

TEST_CASE("host: a rank that fails ends all that wait", "[host]") {
  for (const int n : {2, 5}) {
    Post post;
    const int stopped = on_ranks(
        n,
        [&](Group g) {
          std::vector<double> data(1000, g.rank);
          for (int round = 0;; ++round) {
            if (g.rank == 1 && round == 7) return post.stop();
            g.all_reduce(data.data(), 1000);
          }
        },
        post);
    CHECK(stopped == n - 1);
    CHECK(post.stopped());
    CHECK_THROWS_AS(post.receive(0, 1, 0), Stopped);
  }
}

TEST_CASE("host: a rank that leaves ends those that wait for it, and no others", "[host]") {
  for (int again = 0; again < 20; ++again) {
    Post post;
    Meeting first(post, std::vector<std::int64_t>{0, 1}, 1),
        second(post, std::vector<std::int64_t>{2, 3}, 2);
    std::array<std::atomic<int>, 4> rounds{};
    std::atomic<int> stopped = 0;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 4; ++rank)
      threads.emplace_back([&, rank] {
        const Group group{rank < 2 ? &first : &second, rank % 2};
        std::vector<double> data(100, rank);
        try {
          for (; rounds[static_cast<std::size_t>(rank)] < 20;
               ++rounds[static_cast<std::size_t>(rank)]) {
            if (rank == 1 && rounds[1] == 7) {
              post.send(1, 2, 5, {std::byte{9}});
              return post.leave(1);
            }
            group.all_reduce(data.data(), 100);
          }
        } catch (const Stopped&) {
          ++stopped;
          post.leave(rank);
        }
      });
    for (std::thread& t : threads) t.join();
    CHECK(stopped == 1);
    CHECK(rounds[0] == 7);
    CHECK(rounds[2] == 20);
    CHECK(rounds[3] == 20);
    CHECK(post.receive(1, 2, 5).front() == std::byte{9});  // sent before it left
    CHECK_THROWS_AS(post.receive(1, 2, 5), Stopped);
    CHECK_THROWS_AS(post.receive(0, 3, 1), Stopped);
  }
}
