// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// The end of a step: gradients of all replicas together, and the optimizer.

#include <algorithm>
#include <cmath>

#include "lang/diagnostics.hpp"
#include "runtime/cuda/cuda_states.hpp"

namespace plimsoll::runtime::cuda {

void CudaStates::begin_step() {
  for (Family& f : families_) {
    for (Entry& e : f.entries) e.gradient = Room();
    const auto gradients = f.states.find("gradients");
    if (gradients == f.states.end()) continue;
    State& s = gradients->second;
    for (const Piece& p : s.pieces) machine_.clear(p.at, p.bytes);
    if (s.beyond.at()) machine_.clear(s.beyond.at(), s.beyond_count * bytes_of(s.number));
  }
}

/// Over the replicas, and over the ranks of a tensor group that hold the same part of a weight but
/// each a part of its gradient; see HostStates::sum_replicas().
void CudaStates::sum_replicas(Family& f, Entry& e) {
  const Array g = gradient_of(f, e);
  circle(f.replicas).all_reduce(g, e.count);
  const WeightShape& shape = world_.shapes.weights[e.weight];
  const bool of_experts = world_.problem.program->weights[e.weight].experts != kNone;
  if (of_experts && world_.shapes.tp > 1 && !world_.shapes.sp)
    machine_.launch(Scale{g, g, e.count, 1 / static_cast<float>(world_.shapes.tp), false});
  Circle& group = circle(of_experts ? Bond::etp : Bond::tp);
  if (!shape.partial_gradient || shape.replicas == 1 || group.size() == 1) return;
  if (shape.replicas == group.size()) return group.all_reduce(g, e.count);
  // A part of the group: each takes its own ranks' of all.
  Room room(scratch_, e.count * group.size() * bytes_of(g.number));
  const Array all{room.at(), g.number};
  group.all_gather(g, e.count, all);
  const auto n = static_cast<int>(shape.replicas);
  const int first = group.rank() / n * n;
  machine_.launch(SumGroups{all.from(first * e.count), g, 1, n, e.count, 0, e.count, 0, false});
}

/// ZeRO 2 and 3: this rank's part of a whole gradient.
void CudaStates::add_to_share(Family& f, Entry& e) {
  const Range range = mine(f, f.trained, 1);
  const std::int64_t last = std::min(e.trained + e.count, range.first + range.count);
  const Array whole = gradient_of(f, e);
  for (std::int64_t i = std::max(e.trained, range.first), n = 0; i < last; i += n) {
    n = last - i;
    const Array to = share_at(f, e, i, n);
    machine_.launch(Scale{whole.from(i - e.trained), to, n, 1, true});
  }
}

void CudaStates::reduce_gradients(std::uint32_t segment) {
  for (Family& f : families_)
    for (Entry& e : f.entries) {
      if (e.trained < 0 || (segment != kNone && e.segment != segment)) continue;
      if (segment == kNone) {
        sum_replicas(f, e);
        continue;
      }
      if (e.tied_across) continue;  // whole until clip()
      sum_replicas(f, e);
      add_to_share(f, e);
      e.gradient = Room();
    }
}

/// A tied weight's gradient is the sum of what each stage has of it; a stage without it has zeros.
void CudaStates::sum_ties() {
  for (const auto& [w, here] : world_.ties) {
    if (!world_.problem.inventory.facts.trained[w]) continue;
    const std::int64_t count = world_.shapes.weights[w].count();
    if (here) {
      Family& f = family_of(w);
      Entry& e = *find(w);
      if (world_.layout.zero >= 2) sum_replicas(f, e);
      circle(Bond::stages).all_reduce(gradient_of(f, e), count);
      if (world_.layout.zero >= 2) add_to_share(f, e);
      continue;
    }
    // Of the same kind of number as on the other stages.
    const Number number = world_.layout.zero >= 2 ? Number::fp32
                                                  : families_[dense].states["gradients"].number;
    Room room(scratch_, count * bytes_of(number));
    machine_.clear(room.at(), count * bytes_of(number));
    circle(Bond::stages).all_reduce({room.at(), number}, count);
  }
}

void CudaStates::clip() {
  sum_ties();
  auto* square = square_.as<double>();
  machine_.clear(square, 8);
  for (Family& f : families_) {
    if (&f == &families_[tied]) continue;  // copies are not counted, replicas once
    const double holders = static_cast<double>(circle(f.replicas).size()) /
                           (world_.layout.zero >= 1 ? circle(f.shard).size() : 1);
    for_each_share(f, [&](Entry& e, std::int64_t first, std::int64_t count) {
      const auto replicas = static_cast<double>(world_.shapes.weights[e.weight].replicas);
      for (std::int64_t i = first, n = 0; i < first + count; i += n) {
        n = first + count - i;
        machine_.launch(Squares{share_at(f, e, i, n), n, 0, square + 1});
        machine_.launch(SumParts{square + 1, square, 1 / holders / replicas});
      }
    });
  }
  circle(Bond::all).all_reduce(square, 1);
}

void CudaStates::update(int step) {
  const RunOptions& o = world_.options;
  for (Family& f : families_) {
    if (f.trained == 0) continue;
    const Range share = mine(f, f.trained, 1);
    const bool adam = has(f, "m") && has(f, "v"), momentum = has(f, "momentum");
    const bool master = has(f, "master weights"), divided = world_.layout.zero >= 3;
    for_each_share(f, [&](Entry& e, std::int64_t first, std::int64_t count) {
      for (std::int64_t i = first, n = 0; i < first + count; i += n) {
        n = first + count - i;
        const std::int64_t k = i - share.first;
        Update u;
        u.g = share_at(f, e, i, n);
        if (adam || momentum) u.m = at(f.states[adam ? "m" : "momentum"], share.count, k, n);
        if (adam) u.v = at(f.states["v"], share.count, k, n);
        u.w = weights_at(f, divided ? k : e.offset + (i - e.trained), n);
        if (master) {
          u.copy = u.w;
          u.w = at(f.states["master weights"], share.count, k, n);
        }
        u.count = n;
        u.rate = o.learning_rate;
        u.beta1 = o.beta1;
        u.beta2 = o.beta2;
        u.epsilon = o.epsilon;
        u.decay = o.weight_decay;
        u.correct1 = 1 - std::pow(o.beta1, step);
        u.correct2 = 1 - std::pow(o.beta2, step);
        u.square = square_.as<double>();
        u.most_norm = o.clip_norm;
        machine_.launch(u);
      }
    });
  }
}

/// ZeRO 1 and 2: each rank has updated its part of the weights.
void CudaStates::gather_updated() {
  for (Family& f : families_) {
    Circle& ranks = circle(f.shard);
    if (f.trained == 0 || ranks.size() == 1) continue;
    for (int r = 0; r < ranks.size(); ++r) {
      const Range range = part(f, f.trained, r, 1);
      std::int64_t first = -1, length = 0;  // a stretch of weights, frozen ones left out
      const auto send = [&] {
        for (std::int64_t i = first, n = 0; i < first + length; i += n) {
          n = first + length - i;
          const Array data = weights_at(f, i, n);
          ranks.broadcast(data, n, r, false);
        }
      };
      for (const Entry& e : f.entries) {
        if (e.trained < 0) continue;
        const std::int64_t from = std::max(e.trained, range.first);
        const std::int64_t to = std::min(e.trained + e.count, range.first + range.count);
        if (from >= to) continue;
        const std::int64_t at_weight = e.offset + (from - e.trained);
        if (first >= 0 && at_weight == first + length) {
          length += to - from;
          continue;
        }
        if (first >= 0) send();
        first = at_weight;
        length = to - from;
      }
      if (first >= 0) send();
    }
  }
}

}  // namespace plimsoll::runtime::cuda
