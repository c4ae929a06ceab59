// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/serve_cost.hpp"

#include <algorithm>
#include <array>
#include <map>

namespace plimsoll {

namespace {

/// Bits of a Mamba state's element: vLLM keeps the model's dtype unless told otherwise.
constexpr int kStateBits = 16;

std::int64_t ceil_of(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Layers of one class are alike: one stands for `count`.
struct Alike {
  std::uint32_t segment;
  std::int64_t count;
};

std::vector<Alike> distinct(const Program& program, const std::vector<std::uint32_t>& segments) {
  std::vector<Alike> list;
  std::map<std::uint32_t, std::size_t> by_class;
  for (const std::uint32_t s : segments) {
    if (program.segments[s].is_layer) {
      const auto [at, fresh] = by_class.try_emplace(program.segments[s].layer_class, list.size());
      if (!fresh) {
        ++list[at->second].count;
        continue;
      }
    }
    list.push_back({s, 1});
  }
  return list;
}

WeightId storage_of(const Program& program, WeightId w) {
  while (program.weights[w].tied_to != kNone) w = program.weights[w].tied_to;
  return w;
}

/// Pages of a sequence in a layer that keeps a window, chunks or everything.
std::int64_t pages(const ops::Rule& rule, const Serving& serving, std::int64_t block,
                   std::int64_t context) {
  const std::int64_t step = serving.batch_tokens;
  std::int64_t most = ceil_of(context, block);
  if (rule.cache_window > 0)
    most = ceil_of(std::min(rule.cache_window - 1 + step, context), block) + 1;
  if (rule.cache_chunk > 0)
    most = std::min(most, ceil_of(std::min(rule.cache_chunk + step, context), block));
  return most;
}

}  // namespace

std::vector<std::uint32_t> stage_segments(const Program& program,
                                          const std::vector<std::int64_t>& stage_layers,
                                          std::int64_t stage) {
  std::int64_t first = 0;
  for (std::int64_t s = 0; s < stage; ++s) first += stage_layers[static_cast<std::size_t>(s)];
  const std::int64_t end = first + stage_layers[static_cast<std::size_t>(stage)];
  std::vector<std::uint32_t> list;
  for (std::uint32_t s = 0; s < program.segments.size(); ++s) {
    const std::int64_t layer = program.segments[s].layer;
    if ((layer >= first && layer < end) || program.layer_count == 0) list.push_back(s);
  }
  return list;
}

ServedWeights served_weights(const ops::Shapes& shapes, const Serving& serving,
                             const std::vector<std::uint32_t>& segments) {
  ExprPool& pool = shapes.pool();
  const Program& program = shapes.program();
  std::vector<WeightId> held;  // storages of tied weights that the stage has
  std::vector<Expr> quantized, plain;
  for (const Alike& alike : distinct(program, segments)) {
    const Segment& s = program.segments[alike.segment];
    for (OpId o = s.first_op; o < s.first_op + s.op_count; ++o) {
      for (const WeightId w : program.ops[o].weights) {
        const WeightId storage = storage_of(program, w);
        if (!s.is_layer || storage != w) {
          if (std::find(held.begin(), held.end(), storage) != held.end()) continue;
          held.push_back(storage);
        }
        const bool is_quantized = serving.in_weight_bits[storage];
        const Rational bits = is_quantized ? serving.weight_bits : Rational(16);
        const Expr bytes =
            pool.mul(pool.constant(bits * alike.count / 8), shapes.weight_elements(w));
        (is_quantized ? quantized : plain).push_back(bytes);
      }
    }
  }
  return {pool.sum(quantized), pool.sum(plain)};
}

StageCache stage_cache(const ops::Shapes& shapes, const Serving& serving, std::int64_t block,
                       std::int64_t context, const std::vector<std::uint32_t>& segments) {
  ExprPool& pool = shapes.pool();
  const Program& program = shapes.program();
  StageCache cache;
  std::vector<Expr> page, sequence;
  for (const Alike& alike : distinct(program, segments)) {
    const Segment& s = program.segments[alike.segment];
    for (OpId o = s.first_op; o < s.first_op + s.op_count; ++o) {
      const Op& op = program.ops[o];
      if (op.kind != OpKind::attention && op.kind != OpKind::mamba2) continue;
      const ops::Rule rule = ops::rule(shapes, op, {});
      const Expr count = pool.constant(alike.count);
      if (op.kind == OpKind::mamba2) {
        cache.uniform = false;
        const Expr state = pool.mul(pool.constant(Rational(kStateBits) / 8), rule.cache_fixed);
        sequence.push_back(pool.mul(count, pool.ceil(state)));
        continue;
      }
      // A tower over images of a fixed size runs once; its keys and values are not kept.
      if (pool.is_constant(program.values[op.inputs[1]].tokens)) continue;
      const Expr bytes =
          pool.ceil(pool.mul(pool.constant(serving.cache_bits * block / 8), rule.cache_per_token));
      cache.has_pages = true;
      if (rule.cache_window > 0 || rule.cache_chunk > 0) cache.uniform = false;
      page.push_back(pool.mul(count, bytes));
      sequence.push_back(pool.product(
          std::array{count, pool.constant(pages(rule, serving, block, context)), bytes}));
    }
  }
  cache.page = pool.sum(page);
  cache.sequence = pool.sum(sequence);
  return cache;
}

Int128 forward_peak(const Inventory& inventory, const ExprPool& pool,
                    const std::vector<std::uint32_t>& segments, const Env& env) {
  if (inventory.traces.size() < 2) return 0;
  const auto& traces = inventory.traces[1];  // a recomputed layer's forward keeps its input alone
  std::vector<std::uint32_t> seen;
  Int128 most = 0;
  for (const std::uint32_t s : segments) {
    if (!inventory.program->segments[s].is_layer) continue;
    const std::uint32_t index = inventory.trace_of(s);
    if (std::find(seen.begin(), seen.end(), index) != seen.end()) continue;
    seen.push_back(index);
    const SegmentTrace& trace = traces[index];
    std::vector<Expr> roots;
    for (const TraceTensor& t : trace.tensors) roots.push_back(t.bytes);
    Tape tape(pool, roots);
    tape.run(env);
    Int128 live = 0;
    for (const TraceEvent& e : trace.forward) {
      if (e.kind == TraceEvent::alloc) live += tape.value(e.index).ceil().to_int64();
      if (e.kind == TraceEvent::free) live -= tape.value(e.index).ceil().to_int64();
      if (e.kind == TraceEvent::run) most = std::max(most, live);
    }
  }
  return most;
}

}  // namespace plimsoll
