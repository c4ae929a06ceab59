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
    for (Entry& e : f.entries) {
      e.gradient = Room();
      e.share = Room();
    }
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
  const Array whole = gradient_of(f, e);
  in_stretches(
      share(f, e),
      [&](std::int64_t i, std::int64_t n, Array to) {
        machine_.launch(Scale{whole.from(i), to, n, 1, true});
      },
      [&](std::int64_t i, std::int64_t& n) { return gradient_share(f, e, i, n); });
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
      Family& f = families_.family_of(w);
      Entry& e = families_.find(w);
      if (world_.layout.zero >= 2) sum_replicas(f, e);
      circle(Bond::stages).all_reduce(gradient_of(f, e), count);
      if (world_.layout.zero >= 2) add_to_share(f, e);
      continue;
    }
    // Of the same kind of number as on the other stages.
    const Number number =
        world_.layout.zero >= 2 ? Number::fp32 : families_[host::dense].states["gradients"].number;
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
    if (&f == &families_[host::tied]) continue;  // copies are not counted, replicas once
    const double holders = static_cast<double>(circle(f.replicas).size()) /
                           (world_.layout.zero >= 1 ? circle(f.shard).size() : 1);
    for (Entry& e : f.entries) {
      const auto replicas = static_cast<double>(world_.shapes.weights[e.weight].replicas);
      in_stretches(
          share(f, e),
          [&](std::int64_t, std::int64_t n, Array g) {
            machine_.launch(Squares{g, n, 0, square + 1});
            machine_.launch(SumParts{square + 1, square, 1 / holders / replicas});
          },
          [&](std::int64_t i, std::int64_t& n) { return gradient_share(f, e, i, n); });
    }
  }
  circle(Bond::all).all_reduce(square, 1);
}

void CudaStates::update(int step) {
  const RunOptions& o = world_.options;
  Update u;
  u.rate = o.learning_rate;
  u.beta1 = o.beta1;
  u.beta2 = o.beta2;
  u.epsilon = o.epsilon;
  u.decay = o.weight_decay;
  u.correct1 = 1 - std::pow(o.beta1, step);
  u.correct2 = 1 - std::pow(o.beta2, step);
  u.square = square_.as<double>();
  u.most_norm = o.clip_norm;
  for (Family& f : families_) {
    const bool adam = has(f, "m") && has(f, "v"), momentum = has(f, "momentum");
    const bool master = has(f, "master weights");
    for (Entry& e : f.entries) {
      const auto state = [&](bool is_there, const char* name) {
        return [&f, &e, this, is_there, name](std::int64_t i, std::int64_t& n) {
          return is_there ? state_share(f, e, name, i, n) : Array{};
        };
      };
      in_stretches(
          share(f, e),
          [&](std::int64_t, std::int64_t n, Array w, Array g, Array owner, Array m, Array v) {
            u.w = master ? owner : w;
            u.copy = master ? w : Array{};
            u.g = g;
            u.m = m;
            u.v = v;
            u.count = n;
            machine_.launch(u);
          },
          [&](std::int64_t i, std::int64_t& n) { return weights_at(f, e, i, n); },
          [&](std::int64_t i, std::int64_t& n) { return gradient_share(f, e, i, n); },
          state(master, "master weights"), state(adam || momentum, adam ? "m" : "momentum"),
          state(adam, "v"));
    }
  }
}

/// ZeRO 1 and 2: each rank has updated its part of the weights.
void CudaStates::gather_updated() {
  for (Family& f : families_) {
    Circle& ranks = circle(f.shard);
    if (ranks.size() == 1) continue;
    for (int r = 0; r < ranks.size(); ++r)
      for (Entry& e : f.entries)
        in_stretches(
            share(f, e, r),
            [&](std::int64_t, std::int64_t n, Array data) { ranks.broadcast(data, n, r, false); },
            [&](std::int64_t i, std::int64_t& n) { return weights_at(f, e, i, n); });
  }
}

}  // namespace plimsoll::runtime::cuda
