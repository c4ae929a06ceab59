// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "planner/schedule.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace plimsoll {

namespace {

/// The chunk of the k-th chunk-forward: groups of pp micro-batches go through chunk 0, then 1, ….
std::int32_t chunk_of(std::int64_t k, std::int64_t pp, std::int64_t vpp) {
  return static_cast<std::int32_t>(k % (pp * vpp) / pp);
}

bool contains(const Holding& a, const Holding& b) {
  if (a.chunk != b.chunk || a.backward != b.backward || a.gradients < b.gradients) return false;
  // A first backward sees gradients grow while it runs; it does not stand for a later one or the
  // reverse.
  if (a.gradients != b.gradients && b.gradients == 1) return false;
  for (std::size_t i = 0; i < a.alive.size(); ++i)
    if (a.alive[i] < b.alive[i]) return false;
  return true;
}

/// Chunk-passes in a stage's order, the micro-batches of each kind in turn. Those past the last
/// micro-batch are left out.
struct Order {
  std::int64_t microbatches;
  std::vector<Slot> slots = {};
  std::int64_t done[2][2] = {{0, 0}, {0, 0}};  ///< [backward][chunk]

  void run(bool backward, std::int32_t chunk) {
    if (done[backward ? 1 : 0][chunk]++ < microbatches) slots.push_back({backward, chunk});
  }
  void forward(std::int32_t chunk) { run(false, chunk); }
  void backward(std::int32_t chunk) { run(true, chunk); }
};

std::vector<Slot> zb_v(std::int64_t pp, std::int64_t m, std::int64_t r) {
  Order o{m};
  const std::int64_t n = std::max(2 * pp - 1, m);
  for (std::int64_t i = 0; i < 2 * (pp - r) - 1; ++i) o.forward(0);
  for (std::int64_t i = 0; i < r; ++i) o.forward(1), o.forward(0);
  for (std::int64_t i = 0; i < pp - r; ++i) o.forward(1), o.backward(1);
  while (o.done[0][1] < n) {
    if (o.done[0][0] < n) o.forward(0);
    o.backward(0);
    o.forward(1);
    o.backward(1);
  }
  for (std::int64_t i = 0; i < r; ++i) o.backward(0), o.backward(1);
  for (std::int64_t i = 0; i < pp - r; ++i) o.backward(0);
  return std::move(o.slots);
}

std::vector<Slot> dualpipe_v(std::int64_t pp, std::int64_t m, std::int64_t r) {
  Order o{m};
  const std::int64_t below = pp - r - 1;
  for (std::int64_t i = 0; i < 2 * below; ++i) o.forward(0);
  for (std::int64_t i = 0; i <= r; ++i) o.forward(0), o.forward(1);
  for (std::int64_t i = 0; i < below; ++i) o.backward(1), o.forward(1);
  // Pairs that run at one time: the forward's values are there before the backward's are gone.
  for (std::int64_t i = 0; i < m - 2 * pp + r + 1; ++i)
    o.forward(0), o.backward(1), o.forward(1), o.backward(0);
  for (std::int64_t i = 0; i < below; ++i) o.backward(1), o.forward(1), o.backward(0);
  for (std::int64_t i = 0; i <= r; ++i) o.backward(1), o.backward(0);
  for (std::int64_t i = 0; i < below; ++i) o.backward(0);
  return std::move(o.slots);
}

}  // namespace

std::vector<Slot> slots(Schedule schedule, std::int64_t pp, std::int64_t vpp, std::int64_t m,
                        std::int64_t stage) {
  if (schedule == Schedule::zb_v) return zb_v(pp, m, stage);
  if (schedule == Schedule::dualpipe_v) return dualpipe_v(pp, m, stage);
  const std::int64_t total = m * vpp;
  std::int64_t warmup = std::min(total, pp - stage - 1);
  if (schedule == Schedule::gpipe) warmup = total;
  if (vpp > 1) warmup = std::min(total, 2 * (pp - stage - 1) + (vpp - 1) * pp);
  std::vector<Slot> order;
  order.reserve(static_cast<std::size_t>(2 * total));
  const auto forward = [&](std::int64_t k) { order.push_back({false, chunk_of(k, pp, vpp)}); };
  const auto backward = [&](std::int64_t k) {
    order.push_back({true, static_cast<std::int32_t>(vpp - 1) - chunk_of(k, pp, vpp)});
  };
  for (std::int64_t k = 0; k < warmup; ++k) forward(k);
  for (std::int64_t k = warmup; k < total; ++k) {
    forward(k);
    backward(k - warmup);
  }
  for (std::int64_t k = total - warmup; k < total; ++k) backward(k);
  return order;
}

std::int64_t enough_microbatches(Schedule schedule, std::int64_t pp, std::int64_t vpp,
                                 std::int64_t stage) {
  if (schedule == Schedule::gpipe && vpp == 1) return std::numeric_limits<std::int64_t>::max();
  return vpp > 1 ? 4 * pp : pp - stage + 2;
}

std::vector<Holding> holdings(Schedule schedule, std::int64_t pp, std::int64_t vpp, std::int64_t m,
                              std::int64_t stage) {
  std::vector<Holding> found;
  const auto add = [&](Holding h) {
    if (std::any_of(found.begin(), found.end(), [&](const Holding& f) { return contains(f, h); }))
      return;
    std::erase_if(found, [&](const Holding& f) { return contains(h, f); });
    found.push_back(std::move(h));
  };
  if (schedule == Schedule::gpipe && vpp == 1) {
    const auto all = static_cast<std::int32_t>(m);
    add({{all}, 0, false, 0});
    add({{all}, 0, true, 1});
    if (m > 1) add({{all - 1}, 0, true, 2});
    return found;
  }
  const std::int64_t few = std::min(m, enough_microbatches(schedule, pp, vpp, stage));
  std::vector<std::int32_t> alive(static_cast<std::size_t>(vpp), 0);
  std::vector<bool> passed(static_cast<std::size_t>(vpp), false);
  bool any = false;
  for (const Slot& slot : slots(schedule, pp, vpp, few, stage)) {
    const auto c = static_cast<std::size_t>(slot.chunk);
    if (!slot.backward) {
      ++alive[c];
      add({alive, slot.chunk, false, static_cast<std::int8_t>(any ? 2 : 0)});
    } else {
      const bool first = !passed[c];
      passed[c] = any = true;
      add({alive, slot.chunk, true, static_cast<std::int8_t>(first && vpp == 1 ? 1 : 2)});
      --alive[c];
    }
  }
  return found;
}

}  // namespace plimsoll
