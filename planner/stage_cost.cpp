// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "planner/stage_cost.hpp"

#include <algorithm>
#include <numeric>

namespace plimsoll {

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
        by_stage = by_stage || (pool_.depends_on(tensor.bytes) & kOfStage);
      if (by_stage) stage_traces_.push_back({mode, t});
      for (const TraceTensor& tensor : inventory_.traces[mode][t].tensors) {
        add(by_stage ? pool_.constant(0) : tensor.bytes);
        if (by_stage) stage_roots.push_back(tensor.bytes);
        stage_vars_ |= pool_.depends_on(tensor.bytes) & kOfStage;
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
  ++stamp_;
  traced_role_ = -2;
  holdings_here_.assign(static_cast<std::size_t>(layout.pp), nullptr);
  outer_env_ = environment(problem_, layout, 0);
  shape_ = &shape_for(outer_env_);
}

const CostModel::Shape& CostModel::shape_for(const Env& env) {
  shape_key_.clear();
  for (Var v : shape_vars_)
    shape_key_.push_back(env[v].is_integer() ? env[v].to_int64() : env[v].floor().to_int64());
  if (const auto at = shapes_.find(shape_key_); at != shapes_.end()) return at->second;
  Shape& shape = shapes_[shape_key_];
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

const StageCost& CostModel::kept_stage(std::int64_t stage) {
  for (const Kept& k : kept_)
    if (k.stage == stage || alike(k.stage, stage)) return k.cost;
  const StageRuns& runs = runs_[static_cast<std::size_t>(stage)];
  StageCost s;
  values_of(stage, runs, kStanding);
  const StaticValues& values = values_of(stage, runs, kPassing);
  std::vector<std::uint32_t> all(groups_.size());
  std::iota(all.begin(), all.end(), 0);
  add_statics(values, all, runs, s, &s);
  price_shared(s, runs);
  for (const std::vector<Run>& chunk : runs) {
    s.chunks.emplace_back();
    s.chunks.back().runs = chunk;
    price_chunk(s, s.chunks.back(), runs.size() == 1);
  }
  kept_.push_back({stage, std::move(s)});
  return kept_.back().cost;
}

StageCost CostModel::stage(std::int64_t stage) {
  StageCost s = kept_stage(stage);
  const StageRuns& runs = runs_[static_cast<std::size_t>(stage)];
  trace_stage(stage, runs);
  prepare_env(stage, runs);
  for (std::size_t k = 0; k < s.chunks.size(); ++k) s.chunks[k].runs = runs[k];
  s.holdings = holdings_of(stage);
  return s;
}

}  // namespace plimsoll
