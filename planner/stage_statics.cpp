// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// What a stage holds outside its segments' traces: weights, gradients, states, buffers.

#include <algorithm>

#include "planner/stage_cost.hpp"

namespace plimsoll {

void CostModel::collect_statics() {
  std::map<std::pair<std::string, Category>, std::size_t> index;
  for (std::uint32_t i = 0; i < inventory_.items.size(); ++i) {
    const Item& item = inventory_.items[i];
    if (item.traced || !counts(item.category)) continue;
    const bool state = !(pool_.is_constant(item.shard) && pool_.value(item.shard) == Rational(1));
    const auto [at, is_new] = index.try_emplace({item.name, item.category}, groups_.size());
    if (is_new) groups_.push_back({});
    groups_[at->second].statics.push_back(static_cast<std::uint32_t>(statics_.size()));
    groups_[at->second].state = groups_[at->second].state || state;
    Static st;
    st.item = i;
    if (item.place.kind == Place::layer_class) st.trace = item.place.index;
    if (item.place.kind == Place::root_segment) st.trace = inventory_.trace_of(item.place.index);
    if (item.absent_with != kNone) st.absent_with = inventory_.trace_of(item.absent_with);
    const Lifetime& life = item.lifetime;
    st.grows = st.trace != kNone && life.kind == LifetimeKind::span &&
               life.from == Phase::backward && life.to == Phase::update;
    Group& group = groups_[at->second];
    group.adds = group.adds && item.combine == Combine::add && !item.outside &&
                 life.kind != LifetimeKind::microbatch;
    const std::uint64_t reads = pool_.depends_on(item.bytes) | pool_.depends_on(item.shard);
    group.reads |= reads;
    st.when = presence(life);
    group.stays = group.stays || item.outside ||
                  (life.kind != LifetimeKind::microbatch && (st.when.update || st.when.between));
    if ((reads & mask_of({Var::offload})) != 0 &&
        (item.category == Category::master || item.category == Category::moments)) {
      st.unloaded = pool_.substitute(item.bytes, Env{}, mask_of({Var::offload}));
      group.offloads = true;
    }
    statics_.push_back(st);
    stage_vars_ |= reads & kOfStage;
  }
  std::uint64_t reads = 0;
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    const bool passes = (groups_[g].reads & kOfMicroBatch) != 0;
    if (!passes) reads |= groups_[g].reads;
    passing_stays_ = passing_stays_ || (passes && groups_[g].stays);
    parts_[passes ? kPassing : kStanding].groups.push_back(g);
  }
  standing_by_stage_ = (reads & kOfStage) != 0;
  for (std::size_t v = 0; v < kVarCount; ++v)
    if ((reads & ~kOfStage) >> v & 1) standing_vars_.push_back(static_cast<Var>(v));
  for (Part& part : parts_) {
    std::vector<Expr> roots, unloaded;
    for (const std::uint32_t g : part.groups)
      for (const std::uint32_t i : groups_[g].statics) {
        part.statics.push_back(i);
        roots.push_back(inventory_.items[statics_[i].item].bytes);
        roots.push_back(inventory_.items[statics_[i].item].shard);
        if (!statics_[i].unloaded) continue;
        part.offloads.push_back(i);
        unloaded.push_back(*statics_[i].unloaded);
      }
    part.tape.emplace(pool_, roots);
    part.unloaded.emplace(pool_, unloaded);
  }
}

std::uint32_t CostModel::standing_id() {
  standing_key_.clear();
  for (const Var v : standing_vars_) {
    const Rational& value = outer_env_[v];
    standing_key_.push_back(static_cast<std::int64_t>(value.num()));
    standing_key_.push_back(static_cast<std::int64_t>(value.den()));
  }
  // What tells the ends of a pipeline apart.
  for (const std::int64_t n :
       {layout_.pp, layout_.vpp, std::int64_t{folded(layout_.schedule) ? 1 : 0}})
    standing_key_.push_back(n);
  if (const auto at = standing_ids_.find(standing_key_); at != standing_ids_.end())
    return at->second;
  const auto id = static_cast<std::uint32_t>(standing_ids_.size());
  standing_ids_.emplace(standing_key_, id);
  return id;
}

Presence presence(const Lifetime& life) {
  Presence p;
  p.between = life.kind == LifetimeKind::always || life.kind == LifetimeKind::from_first_step;
  p.from_start = life.kind != LifetimeKind::from_first_step;
  if (life.kind == LifetimeKind::op || life.kind == LifetimeKind::microbatch) p.update = false;
  if (life.kind == LifetimeKind::span) {
    const int from = static_cast<int>(life.from), to = static_cast<int>(life.to);
    const auto within = [&](int phase) {
      return from <= to ? from <= phase && phase <= to
                        : phase >= from;  // what wraps ends where forward begins
    };
    p.forward = within(0);
    p.backward = within(1);
    p.update = within(2);
    p.between = from > to;
    p.accumulates = life.from == Phase::backward && life.to == Phase::update;
  }
  return p;
}

void CostModel::add_static(StaticSums& s, const Static& st, std::int64_t total) const {
  const Item& item = inventory_.items[st.item];
  if (item.outside) {
    s.outside += total;
    return;
  }
  const Bytes bytes{total, in_blocks(total)};
  if (item.lifetime.kind == LifetimeKind::microbatch) {
    s.shared += bytes;
    return;
  }
  const Presence& p = st.when;
  for (int g = 0; g < 2; ++g) {
    const bool forward = p.in_forward(g == 1);
    const bool backward =
        p.backward && (!p.accumulates || g == 1 || item.place.kind == Place::stage);
    if (forward) s.forward[g] += bytes;
    if (backward) s.backward[g] += bytes;
    if (forward && p.from_start) s.forward_first[g] += bytes;
    if (backward && p.from_start) s.backward_first[g] += bytes;
  }
  if (p.update) s.update += bytes;
  if (p.between) s.between += bytes;
}

bool CostModel::sum_group(std::size_t g, const StaticValues& values,
                          const std::vector<std::int64_t>& count, std::int64_t& total,
                          std::uint32_t& first, StaticSums& s) const {
  const Group& group = groups_[g];
  Int128 sum = 0;
  std::int64_t ranks = 1, largest = 0;
  std::vector<const std::string*> keys;
  first = kNone;
  for (const std::uint32_t i : group.statics) {
    const Static& st = statics_[i];
    std::int64_t instances = st.trace == kNone ? 1 : count[st.trace];
    const std::int64_t bytes = values.whole[i];
    if (instances == 0 || bytes == 0 || (st.absent_with != kNone && count[st.absent_with] > 0))
      continue;
    if (group.state) {
      ranks = values.ranks[i];
      if (st.grows) s.grown[st.trace] += (bytes + ranks - 1) / ranks;
    }
    if (!group.adds) {
      const Item& item = inventory_.items[st.item];
      if (item.combine == Combine::once) {
        if (std::any_of(keys.begin(), keys.end(), [&](const auto* k) { return *k == item.key; }))
          continue;
        keys.push_back(&item.key);
        instances = 1;
      }
      if (item.combine == Combine::max) {
        largest = std::max(largest, bytes);
        instances = 0;
      }
    }
    if (first == kNone) first = i;
    sum += Int128{bytes} * instances;
  }
  const Int128 each = (ranks == 1 ? sum : (sum + ranks - 1) / ranks) + largest;
  if (each > kMostBytes) {
    const Item& item = inventory_.items[statics_[first].item];
    if (!group.adds) return false;
    throw PriceError(item.origin,
                     fmt::format("'{}' comes to more than an exbibyte on one GPU", item.name));
  }
  total = static_cast<std::int64_t>(each);
  return true;
}

void CostModel::add_statics(const StaticValues& values, const std::vector<std::uint32_t>& groups,
                            const StageRuns& runs, StaticSums& s, StageCost* itemised) const {
  std::vector<std::int64_t> count(inventory_.traces.front().size(), 0);
  for (const std::vector<Run>& chunk : runs)
    for (const Run& r : chunk) count[r.trace] += r.count;
  s.grown.resize(count.size(), 0);
  if (itemised != nullptr) itemised->growing.resize(count.size());
  for (const std::uint32_t g : groups) {
    const Group& group = groups_[g];
    const bool offloads = group.offloads && layout_.offload.sign() != 0;
    std::uint32_t first = kNone;
    std::int64_t total = 0;
    if (itemised == nullptr && values.is_whole[g] && !offloads &&
        sum_group(g, values, count, total, first, s)) {
      if (first != kNone) add_static(s, statics_[first], total);
      continue;
    }
    first = kNone;
    Rational sum = 0, shard = 1, unloaded = 0;
    std::int64_t largest = 0;
    std::vector<const std::string*> keys;
    for (std::uint32_t i : group.statics) {
      const Static& st = statics_[i];
      std::int64_t instances = st.trace == kNone ? 1 : count[st.trace];
      if (instances == 0 || (st.absent_with != kNone && count[st.absent_with] > 0)) continue;
      Rational bytes = values.bytes[i];
      if (offloads && st.unloaded) {
        shard = values.shards[i];
        unloaded += values.unloaded[i] * Rational(instances);
      }
      if (bytes.is_zero()) continue;
      const Item& item = inventory_.items[st.item];
      if (group.state) {
        shard = values.shards[i];
        if (st.grows) {
          const std::int64_t each = (bytes / shard).ceil().to_int64();
          if (itemised != nullptr) itemised->growing[st.trace].push_back({st.item, each});
          s.grown[st.trace] += each;
        }
      } else {
        bytes = bytes.ceil();
      }
      if (item.combine == Combine::once) {
        if (std::any_of(keys.begin(), keys.end(), [&](const auto* k) { return *k == item.key; }))
          continue;
        keys.push_back(&item.key);
        instances = 1;
      }
      if (first == kNone) first = i;
      if (item.combine == Combine::max)
        largest = std::max(largest, bytes.to_int64());
      else
        sum = sum + bytes * Rational(instances);
    }
    if (offloads) s.host += ((unloaded - sum) / shard).ceil().to_int64();
    if (first == kNone) continue;
    total = (sum / shard).ceil().to_int64() + largest;
    const Static& st = statics_[first];
    if (itemised != nullptr)
      itemised->statics.push_back(
          {st.item, {total, inventory_.items[st.item].outside ? total : in_blocks(total)}});
    add_static(s, st, total);
  }
}

void CostModel::trace_stage(std::int64_t stage, const StageRuns& runs) {
  const std::int64_t role = this->role(stage);
  if (stage_traces_.empty() || (role >= 0 && traced_role_ == role)) return;
  prepare_env(stage, runs);
  price_stage_traces(env_);
  traced_role_ = role;
}

const CostModel::StaticValues& CostModel::values_of(std::int64_t stage, const StageRuns& runs,
                                                    PartKind kind) {
  trace_stage(stage, runs);
  const std::int64_t role = this->role(stage);
  StaticValues& values = role >= 0 ? values_[role] : own_values_;
  if (role >= 0 && values.ready[kind] == stamp_) return values;
  prepare_env(stage, runs);
  Part& part = parts_[kind];
  part.tape->run(env_);
  values.bytes.resize(statics_.size());
  values.shards.resize(statics_.size());
  for (std::size_t k = 0; k < part.statics.size(); ++k) {
    const std::uint32_t i = part.statics[k];
    const Item& item = inventory_.items[statics_[i].item];
    values.bytes[i] = static_value(*part.tape, 2 * k, item);
    values.shards[i] = static_value(*part.tape, 2 * k + 1, item);
  }
  if (layout_.offload.sign() != 0) {
    part.unloaded->run(env_);
    values.unloaded.resize(statics_.size());
    for (std::size_t k = 0; k < part.offloads.size(); ++k) {
      const std::uint32_t i = part.offloads[k];
      values.unloaded[i] = static_value(*part.unloaded, k, inventory_.items[statics_[i].item]);
    }
  }
  take_whole(part, values);
  values.ready[kind] = stamp_;
  return values;
}

void CostModel::take_whole(const Part& part, StaticValues& values) const {
  values.whole.resize(statics_.size(), 0);
  values.ranks.resize(statics_.size(), 1);
  values.is_whole.resize(groups_.size(), false);
  for (const std::uint32_t g : part.groups) {
    bool whole = groups_[g].adds || !groups_[g].state;
    for (const std::uint32_t i : groups_[g].statics) {
      const Rational bytes = groups_[g].state ? values.bytes[i] : values.bytes[i].ceil();
      const Rational& ranks = values.shards[i];
      whole = whole && bytes.is_integer() &&
              (!groups_[g].state || (ranks.is_integer() && ranks.sign() > 0));
      if (!whole) break;
      values.whole[i] = bytes.to_int64();
      if (groups_[g].state) values.ranks[i] = ranks.to_int64();
    }
    values.is_whole[g] = whole;
  }
}

StaticSums CostModel::standing(std::int64_t stage, const StageRuns& runs) {
  StaticSums s;
  add_statics(values_of(stage, runs, kStanding), parts_[kStanding].groups, runs, s, nullptr);
  return s;
}

void CostModel::add_passing(StaticSums& s, std::int64_t stage, const StageRuns& runs) {
  if (!parts_[kPassing].groups.empty())
    add_statics(values_of(stage, runs, kPassing), parts_[kPassing].groups, runs, s, nullptr);
  price_shared(s, runs);
}

void CostModel::price_shared(StaticSums& s, const StageRuns& runs) const {
  if (inventory_.shared.empty()) return;
  std::int64_t first = INT64_MAX, last = -1;
  for (const std::vector<Run>& chunk : runs)
    for (const Run& r : chunk) {
      first = std::min<std::int64_t>(first, r.first_segment);
      last = std::max<std::int64_t>(last, r.first_segment + r.count - 1);
    }
  for (std::size_t i = 0; i < inventory_.shared.size(); ++i) {
    const SharedValue& v = inventory_.shared[i];
    if (v.last_segment < first || v.first_segment > last) continue;
    s.shared += {shape_->shared[i], in_blocks(shape_->shared[i])};
    s.shared_gradients += {shape_->shared_gradients[i], in_blocks(shape_->shared_gradients[i])};
  }
}

}  // namespace plimsoll
