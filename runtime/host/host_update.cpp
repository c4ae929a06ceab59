// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// The end of a step: gradients of all replicas together, and the optimizer.

#include <algorithm>
#include <cmath>

#include "lang/diagnostics.hpp"
#include "runtime/host/host_states.hpp"

namespace plimsoll::runtime::host {

/// Over the replicas, and over the ranks of a tensor group that hold the same part of a weight but
/// each a part of its gradient.
void HostStates::sum_replicas(Family& f, Entry& e) {
  float* g = gradient_of(f, e);
  f.replicas.all_reduce(g, e.count);
  const WeightShape& shape = shapes_.weights[e.weight];
  const bool of_experts = world_.problem.program->weights[e.weight].experts != kNone;
  // Without sequence parallelism the ranks of a tensor group send the same tokens to the experts.
  if (of_experts && shapes_.tp > 1 && !shapes_.sp)
    for (std::int64_t i = 0; i < e.count; ++i) g[i] /= static_cast<float>(shapes_.tp);
  const Group& group = of_experts ? groups_.etp : groups_.tp;
  if (!shape.partial_gradient || shape.replicas == 1 || group.size() == 1) return;
  std::vector<float> sum(static_cast<std::size_t>(e.count));
  {
    const Meeting::Table table(*group.meeting, group.rank, g, e.count * 4);
    const auto n = static_cast<int>(shape.replicas);
    for (int r = group.rank / n * n; r < group.rank / n * n + n; ++r)
      for (std::int64_t i = 0; i < e.count; ++i)
        sum[static_cast<std::size_t>(i)] += table.of<float>(r)[i];
  }
  std::copy(sum.begin(), sum.end(), g);
}

/// This rank's part of a whole gradient.
void HostStates::add_to_share(Family& f, Entry& e) {
  const Range range = mine(f, f.trained, 1);
  f.share.resize(static_cast<std::size_t>(range.count));
  const float* g = gradient_of(f, e);
  for (std::int64_t i = std::max(e.trained, range.first);
       i < std::min(e.trained + e.count, range.first + range.count); ++i)
    f.share[static_cast<std::size_t>(i - range.first)] += g[i - e.trained];
}

void HostStates::reduce_gradients(std::uint32_t segment) {
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
      e.gradient.clear();
    }
}

/// A tied weight's gradient is the sum of what each stage has of it.
void HostStates::sum_ties() {
  const Group stages = world_.stages(rank_);
  for (const auto& [w, here] : ties_) {
    if (!world_.problem.inventory.facts.trained[w]) continue;
    float* g = nullptr;
    if (here) {
      if (world_.layout.zero >= 2) sum_replicas(families_.family_of(w), families_.find(w));
      g = gradient(w);
    }
    const std::int64_t count = here ? families_.find(w).count : 0;
    std::vector<float> sum(static_cast<std::size_t>(count));
    {
      const Meeting::Table table(*stages.meeting, stages.rank, g, count * 4);
      for (int r = 0; here && r < stages.size(); ++r)
        for (std::int64_t i = 0; table.of<float>(r) && i < count; ++i)
          sum[static_cast<std::size_t>(i)] += table.of<float>(r)[i];
    }
    if (here) std::copy(sum.begin(), sum.end(), g);
  }
}

void HostStates::clip(int step) {
  sum_ties();
  double square = 0;
  for (Family& f : families_) {
    const Range range = mine(f, f.trained, 1);
    f.share.resize(static_cast<std::size_t>(range.count));
    for (Entry& e : f.entries)
      if (e.trained >= 0 && (world_.layout.zero < 2 || e.tied_across)) add_to_share(f, e);
    store_gradients(f);
    const double holders =
        static_cast<double>(f.replicas.size()) / (world_.layout.zero >= 1 ? f.shard.size() : 1);
    for_each(f, range, true, [&](const Entry& e, std::int64_t element, std::size_t at) {
      const float g = f.share[at];
      // Copies of a tied weight are not counted, replicas once.
      if (&f != &families_[tied])
        square += static_cast<double>(g) * g / holders /
                  static_cast<double>(shapes_.weights[e.weight].replicas);
      if (!world_.options.keep_tensors) return;
      const std::lock_guard lock(world_.mutex);
      publish(world_.gradients, step, e, element, g);
    });
  }
  world_.group(RankGroup::all, rank_).all_reduce(&square, 1);
  const double limit = world_.options.clip_norm, norm = std::sqrt(square);
  if (limit <= 0 || norm <= limit) return;
  for (Family& f : families_)
    for (float& g : f.share) g *= static_cast<float>(limit / norm);
}

/// Gradients that were made in scratch go where the run counts them.
void HostStates::store_gradients(Family& f) {
  if (f.trained == 0 || !has(f, "gradients")) return;
  if (world_.layout.zero >= 2) return write(f, "gradients", f.share);
  if (whole(f, "gradients", f.trained)) return;
  std::vector<float> all(static_cast<std::size_t>(f.trained));
  for (Entry& e : f.entries)
    if (e.trained >= 0) std::copy_n(gradient_of(f, e), e.count, all.begin() + e.trained);
  write(f, "gradients", all);
}

/// Adam with decoupled decay (Loshchilov and Hutter 2019) where there are m and v, else descent
/// with momentum where there is one. Where there are masters, they are what is updated, and the
/// weights follow them.
void HostStates::step(Family& f, int step) {
  const HostOptions& o = world_.options;
  const Range range = mine(f, f.trained, 1);
  const bool adam = has(f, "m") && has(f, "v"), momentum = has(f, "momentum");
  const bool master = has(f, "master weights"), divided = world_.layout.zero >= 3;
  std::vector<float> m, v, own;
  if (adam || momentum) m = read(f, adam ? "m" : "momentum", range.count);
  if (adam) v = read(f, "v", range.count);
  // Where ZeRO 3 divides the weights, its pieces are those of the gradients: nothing is frozen.
  if (master || divided) own = read(f, master ? "master weights" : "weights", range.count);
  float* all = divided ? nullptr : weights_of(f);
  const double correct1 = 1 - std::pow(o.beta1, step), correct2 = 1 - std::pow(o.beta2, step);
  for_each(f, range, true, [&](const Entry& e, std::int64_t element, std::size_t k) {
    float* used = all ? &all[e.offset + element] : nullptr;
    float& w = own.empty() ? *used : own[k];
    const double g = f.share[k];
    double change = g;
    if (adam) {
      m[k] = static_cast<float>(o.beta1 * m[k] + (1 - o.beta1) * g);
      v[k] = static_cast<float>(o.beta2 * v[k] + (1 - o.beta2) * g * g);
      change = m[k] / correct1 / (std::sqrt(v[k] / correct2) + o.epsilon) + o.weight_decay * w;
    } else if (momentum) {
      m[k] = static_cast<float>(o.beta1 * m[k] + g);
      change = m[k];
    }
    w = static_cast<float>(w - o.learning_rate * change);
    if (used) *used = w;
  });
  if (adam || momentum) write(f, adam ? "m" : "momentum", m);
  if (adam) write(f, "v", v);
  if (master) write(f, "master weights", own);
  if (divided) write(f, "weights", own);
}

void HostStates::update(int step_number) {
  for (Family& f : families_)
    if (f.trained > 0) step(f, step_number);
  if (world_.layout.zero == 0) store_weights();
}

/// Weights that ops read in another form go where the run counts them, and are what is stored
/// there.
void HostStates::store_weights() {
  for (Family& f : families_) {
    if (f.compute.empty()) continue;
    write(f, "weights", f.compute);
    f.compute = read(f, "weights", f.count);
  }
}

/// ZeRO 1 and 2: each rank has updated its part of the weights.
void HostStates::gather_updated() {
  for (Family& f : families_) {
    if (f.trained == 0 || f.shard.size() == 1) continue;
    float* all = weights_of(f);
    const Meeting::Table table(*f.shard.meeting, f.shard.rank, all, f.count * 4);
    for (int r = 0; r < f.shard.size(); ++r) {
      if (r == f.shard.rank) continue;
      const Range range = part(f, f.trained, r, 1);
      for (const Entry& e : f.entries) {
        if (e.trained < 0) continue;
        const std::int64_t first = std::max(e.trained, range.first);
        const std::int64_t last = std::min(e.trained + e.count, range.first + range.count);
        const std::int64_t shift = e.offset - e.trained;
        if (first < last)
          std::copy(table.of<float>(r) + first + shift, table.of<float>(r) + last + shift,
                    all + first + shift);
      }
    }
  }
  store_weights();
}

}  // namespace plimsoll::runtime::host
