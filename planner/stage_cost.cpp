// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "planner/stage_cost.hpp"

#include <algorithm>

namespace plimsoll {

namespace {

constexpr std::uint64_t bit(Var v) { return std::uint64_t{1} << static_cast<unsigned>(v); }
constexpr std::uint64_t kEnds = bit(Var::first) | bit(Var::last) | bit(Var::receiving);
constexpr std::uint64_t kOwnNumber = bit(Var::stage) | bit(Var::in_flight);
constexpr std::uint64_t kContent = bit(Var::layers_on_stage) | bit(Var::params_on_gpu);
constexpr std::uint64_t kStageMask = kEnds | kOwnNumber | kContent;

}  // namespace

CostModel::CostModel(const Problem& p, CategoryMask counted)
    : problem_(p), inventory_(p.inventory), pool_(p.module->pool()), counted_(counted) {
  const std::vector<Segment>& segments = p.program->segments;
  for (std::uint32_t i = 0; i < segments.size(); ++i)
    if (segments[i].is_layer) begin_.push_back(begin_.empty() ? 0 : i);
  begin_.push_back(static_cast<std::uint32_t>(segments.size()));
  collect_shape_roots();
  collect_statics();
}

void CostModel::collect_shape_roots() {
  std::vector<Expr> roots, stage_roots;
  std::uint64_t mask = 0;
  const auto add = [&](Expr e) {
    roots.push_back(e);
    mask |= pool_.depends_on(e);
  };
  for (RecomputeMode mode = 0; mode < inventory_.traces.size(); ++mode)
    for (std::uint32_t t = 0; t < inventory_.traces[mode].size(); ++t) {
      bool by_stage = false;
      for (const TraceTensor& tensor : inventory_.traces[mode][t].tensors)
        by_stage = by_stage || (pool_.depends_on(tensor.bytes) & kStageMask);
      if (by_stage) stage_traces_.push_back({mode, t});
      for (const TraceTensor& tensor : inventory_.traces[mode][t].tensors) {
        add(by_stage ? pool_.constant(0) : tensor.bytes);
        if (by_stage) stage_roots.push_back(tensor.bytes);
        stage_vars_ |= pool_.depends_on(tensor.bytes) & kStageMask;
      }
    }
  for (const Spill& s : inventory_.spills) add(s.bytes);
  for (const SharedValue& s : inventory_.shared) {
    add(s.bytes);
    add(s.gradient_bytes);
  }
  for (Expr e : inventory_.weight_elements) add(e);
  shape_tape_.emplace(pool_, roots);
  stage_tape_.emplace(pool_, stage_roots);
  for (std::size_t v = 0; v < kVarCount; ++v)
    if (mask >> v & 1) shape_vars_.push_back(static_cast<Var>(v));
}

void CostModel::collect_statics() {
  std::vector<Expr> roots;
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
    statics_.push_back(st);
    roots.push_back(item.bytes);
    roots.push_back(item.shard);
    stage_vars_ |= (pool_.depends_on(item.bytes) | pool_.depends_on(item.shard)) & kStageMask;
  }
  static_tape_.emplace(pool_, roots);
}

void CostModel::set(const Layout& layout) {
  const bool same_pieces = !runs_.empty() && layout.pp == layout_.pp && layout.vpp == layout_.vpp &&
                           layout.schedule == layout_.schedule &&
                           layout.recompute == layout_.recompute &&
                           layout.stage_layers == layout_.stage_layers &&
                           layout.recompute_layers == layout_.recompute_layers;
  std::vector<StageRuns> runs = std::move(runs_);
  set_outer(layout);
  runs_ = std::move(runs);
  if (!same_pieces) lay_out_chunks();
}

void CostModel::set_outer(const Layout& layout) {
  layout_ = layout;
  runs_.clear();
  per_stage_.clear();
  kept_.clear();
  values_.clear();
  traced_role_ = -2;
  shape_ = &shape_for(environment(problem_, layout, 0));
}

const CostModel::Shape& CostModel::shape_for(const Env& env) {
  std::vector<std::int64_t> key;
  key.reserve(shape_vars_.size());
  for (Var v : shape_vars_) key.push_back(env[v].floor().to_int64());
  const auto [at, is_new] = shapes_.try_emplace(std::move(key));
  Shape& shape = at->second;
  if (!is_new) return shape;
  shape_tape_->run(env);
  std::size_t root = 0;
  for (const auto& traces : inventory_.traces) {
    shape.tensors.emplace_back();
    shape.costs.emplace_back();
    for (const SegmentTrace& trace : traces) {
      std::vector<std::int64_t> bytes(trace.tensors.size());
      for (std::size_t t = 0; t < bytes.size(); ++t)
        bytes[t] = traced_value(*shape_tape_, root++, inventory_.items[trace.tensors[t].item]);
      shape.costs.back().push_back(walk(trace, bytes));
      shape.tensors.back().push_back(std::move(bytes));
    }
  }
  const auto next = [&](Category category) {
    const std::int64_t bytes = shape_tape_->integer(root++);
    return counts(category) ? bytes : 0;
  };
  shape.spill_sums.assign(inventory_.traces.front().size(), {});
  for (const Spill& s : inventory_.spills) {
    shape.spills.push_back(next(inventory_.items[s.item].category));
    const std::uint32_t trace =
        s.place.kind == Place::layer_class ? s.place.index : inventory_.trace_of(s.place.index);
    shape.spill_sums[trace][(s.backward ? 2 : 0) + (s.late ? 1 : 0)] += shape.spills.back();
  }
  for (std::size_t i = 0; i < inventory_.shared.size(); ++i) {
    shape.shared.push_back(next(Category::activations));
    shape.shared_gradients.push_back(next(Category::activations));
  }
  for (std::size_t i = 0; i < inventory_.weight_elements.size(); ++i)
    shape.weight_elements.push_back(shape_tape_->value(root++).ceil().to_int64());
  return shape;
}

namespace {

/// Past this much on one GPU (an exbibyte) a number is a mistake, and sums may still be added up.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;

void check_bytes(const Rational& bytes, const Item& item) {
  if (bytes < Rational(0))
    throw PriceError(item.origin,
                     fmt::format("'{}' comes to {} bytes at this layout; bytes cannot be negative",
                                 item.name, bytes.str()));
  if (bytes > Rational(kMostBytes))
    throw PriceError(item.origin,
                     fmt::format("'{}' comes to more than an exbibyte on one GPU", item.name));
}

[[noreturn]] void cannot_price(const Item& item, const ArithmeticError& e) {
  throw PriceError(
      item.origin,
      fmt::format("the bytes of '{}' cannot be computed at this layout: {}", item.name, e.what()));
}

}  // namespace

std::int64_t CostModel::traced_value(const Tape& tape, std::size_t i, const Item& item) const {
  return counts(item.category) ? static_value(tape, i, item).to_int64() : 0;
}

Rational CostModel::static_value(const Tape& tape, std::size_t i, const Item& item) {
  Rational value;
  try {
    value = tape.value(i);
  } catch (const ArithmeticError& e) {
    cannot_price(item, e);
  }
  check_bytes(value, item);
  return value;
}

/// Runs through a trace once: what it leaves live after forward, and the most it holds in each
/// direction.
SegmentCost CostModel::walk(const SegmentTrace& trace,
                            const std::vector<std::int64_t>& bytes) const {
  SegmentCost result;
  Bytes live;
  const auto pass = [&](const std::vector<TraceEvent>& events, Bytes& most, std::uint32_t& at) {
    most = {-1, -1};
    for (std::uint32_t i = 0; i < events.size(); ++i) {
      const TraceEvent& e = events[i];
      if (e.kind == TraceEvent::run) {
        if (live.live > most.live) {
          most = live;
          at = i;
        }
        continue;
      }
      const Bytes size{bytes[e.index], in_blocks(bytes[e.index])};
      live = e.kind == TraceEvent::alloc ? live + size : live - size;
    }
    if (most.live < 0) most = live;
  };
  pass(trace.forward, result.forward, result.forward_at);
  result.saved = live;
  pass(trace.backward, result.backward, result.backward_at);
  return result;
}

void CostModel::price_stage_traces(const Env& env) {
  if (stage_traces_.empty()) return;
  stage_tape_->run(env);
  std::size_t root = 0;
  for (const auto& [mode, t] : stage_traces_) {
    const SegmentTrace& trace = inventory_.traces[mode][t];
    auto& [bytes, segment_cost] = per_stage_[{mode, t}];
    bytes.resize(trace.tensors.size());
    for (std::size_t k = 0; k < bytes.size(); ++k)
      bytes[k] = traced_value(*stage_tape_, root++, inventory_.items[trace.tensors[k].item]);
    segment_cost = walk(trace, bytes);
  }
}

const SegmentCost& CostModel::cost(const Run& r) const {
  if (!per_stage_.empty())
    if (const auto at = per_stage_.find({r.mode, r.trace}); at != per_stage_.end())
      return at->second.second;
  return shape_->costs[r.mode][r.trace];
}

const std::vector<std::int64_t>& CostModel::tensors(RecomputeMode mode, std::uint32_t trace) const {
  if (const auto at = per_stage_.find({mode, trace}); at != per_stage_.end())
    return at->second.first;
  return shape_->tensors[mode][trace];
}

Expr CostModel::tensor_bytes(RecomputeMode mode, std::uint32_t trace, std::uint32_t tensor) const {
  return inventory_.traces[mode][trace].tensors[tensor].bytes;
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

void CostModel::add_static(StaticSums& s, const Item& item, Bytes bytes) const {
  if (item.lifetime.kind == LifetimeKind::microbatch) {
    s.shared += bytes;
    return;
  }
  const Presence p = presence(item.lifetime);
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

std::uint32_t CostModel::sum_group(std::size_t g, const StaticValues& values,
                                   const std::vector<std::int64_t>& count, std::int64_t& total,
                                   StaticSums& s) const {
  const Group& group = groups_[g];
  std::uint32_t first = kNone;
  Int128 sum = 0;
  std::int64_t ranks = 1;
  for (const std::uint32_t i : group.statics) {
    const Static& st = statics_[i];
    const std::int64_t instances = st.trace == kNone ? 1 : count[st.trace];
    const std::int64_t bytes = values.whole[i];
    if (instances == 0 || bytes == 0 || (st.absent_with != kNone && count[st.absent_with] > 0))
      continue;
    if (group.state) {
      ranks = values.ranks[i];
      if (st.grows) s.grown[st.trace] += (bytes + ranks - 1) / ranks;
    }
    if (first == kNone) first = st.item;
    sum += Int128{bytes} * instances;
  }
  const Int128 each = ranks == 1 ? sum : (sum + ranks - 1) / ranks;
  if (each > kMostBytes)
    throw PriceError(inventory_.items[first].origin,
                     fmt::format("'{}' comes to more than an exbibyte on one GPU",
                                 inventory_.items[first].name));
  total = static_cast<std::int64_t>(each);
  return first;
}

StaticSums CostModel::sum_statics(const StaticValues& values, const StageRuns& runs,
                                  StageCost* itemised) const {
  std::vector<std::int64_t> count(inventory_.traces.front().size(), 0);
  for (const std::vector<Run>& chunk : runs)
    for (const Run& r : chunk) count[r.trace] += r.count;
  StaticSums s;
  s.grown.assign(count.size(), 0);
  if (itemised != nullptr) itemised->growing.assign(count.size(), {});
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    if (itemised == nullptr && values.is_whole[g]) {
      std::int64_t total = 0;
      const std::uint32_t row = sum_group(g, values, count, total, s);
      if (row != kNone) add_static(s, inventory_.items[row], {total, in_blocks(total)});
      continue;
    }
    Rational sum = 0, shard = 1;
    std::int64_t largest = 0;
    std::uint32_t first = kNone;
    std::vector<const std::string*> keys;
    for (std::uint32_t i : group.statics) {
      const Static& st = statics_[i];
      std::int64_t instances = st.trace == kNone ? 1 : count[st.trace];
      if (instances == 0 || (st.absent_with != kNone && count[st.absent_with] > 0)) continue;
      Rational bytes = values.bytes[i];
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
      if (first == kNone) first = st.item;
      if (item.combine == Combine::max)
        largest = std::max(largest, bytes.to_int64());
      else
        sum = sum + bytes * Rational(instances);
    }
    if (first == kNone) continue;
    const std::int64_t total = (sum / shard).ceil().to_int64() + largest;
    const Item& item = inventory_.items[first];
    const Bytes bytes{total, item.outside ? total : in_blocks(total)};
    if (itemised != nullptr) itemised->statics.push_back({first, bytes});
    if (item.outside)
      s.outside += total;
    else
      add_static(s, item, bytes);
  }
  price_shared(s, runs);
  return s;
}

void CostModel::prepare_env(std::int64_t stage, const StageRuns& runs) {
  env_ = environment(problem_, layout_, stage);
  std::int64_t params = 0, layers = 0;
  for (const std::vector<Run>& chunk : runs)
    for (const Run& r : chunk) {
      params += r.count * shape_->weight_elements[r.trace];
      if (r.trace < problem_.program->class_count) layers += r.count;
    }
  env_[Var::params_on_gpu] = params;
  env_[Var::layers_on_stage] = layers;
}

std::int64_t CostModel::role(std::int64_t stage) const {
  if ((stage_vars_ & kContent) != 0) return -1;
  if ((stage_vars_ & kOwnNumber) != 0) return stage;
  if (stage_vars_ == 0) return 0;
  return (stage == 0 ? 1 : 0) + (stage == layout_.pp - 1 ? 2 : 0);
}

const CostModel::StaticValues& CostModel::values_of(std::int64_t stage, const StageRuns& runs) {
  const std::int64_t role = this->role(stage);
  if (role >= 0)
    if (const auto at = values_.find(role); at != values_.end()) {
      if (traced_role_ != role && !stage_traces_.empty()) {
        prepare_env(stage, runs);
        price_stage_traces(env_);
        traced_role_ = role;
      }
      return at->second;
    }
  prepare_env(stage, runs);
  price_stage_traces(env_);
  traced_role_ = role;
  static_tape_->run(env_);
  StaticValues& values = role >= 0 ? values_[role] : own_values_;
  values.bytes.resize(statics_.size());
  values.shards.resize(statics_.size());
  for (std::size_t i = 0; i < statics_.size(); ++i) {
    const Item& item = inventory_.items[statics_[i].item];
    values.bytes[i] = static_value(*static_tape_, 2 * i, item);
    values.shards[i] = static_value(*static_tape_, 2 * i + 1, item);
  }
  take_whole(values);
  return values;
}

void CostModel::take_whole(StaticValues& values) const {
  values.whole.assign(statics_.size(), 0);
  values.ranks.assign(statics_.size(), 1);
  values.is_whole.assign(groups_.size(), false);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    bool whole = groups_[g].adds;
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

StaticSums CostModel::statics(std::int64_t stage, const StageRuns& runs) {
  return sum_statics(values_of(stage, runs), runs, nullptr);
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

const StageCost& CostModel::kept_stage(std::int64_t stage) {
  for (const Kept& k : kept_)
    if (k.stage == stage || alike(k.stage, stage)) return k.cost;
  const StageRuns& runs = runs_[static_cast<std::size_t>(stage)];
  StageCost s;
  static_cast<StaticSums&>(s) = sum_statics(values_of(stage, runs), runs, &s);
  for (const std::vector<Run>& chunk : runs) {
    s.chunks.emplace_back();
    s.chunks.back().runs = chunk;
    price_chunk(s, s.chunks.back());
  }
  kept_.push_back({stage, std::move(s)});
  return kept_.back().cost;
}

StageCost CostModel::stage(std::int64_t stage) {
  StageCost s = kept_stage(stage);
  const StageRuns& runs = runs_[static_cast<std::size_t>(stage)];
  values_of(stage, runs);
  prepare_env(stage, runs);
  for (std::size_t k = 0; k < s.chunks.size(); ++k) s.chunks[k].runs = runs[k];
  s.holdings = holdings_of(stage);
  return s;
}

}  // namespace plimsoll
