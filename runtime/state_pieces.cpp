// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/state_pieces.hpp"

#include <algorithm>

namespace plimsoll::runtime {

namespace {

/// Elements of every trained parameter of a stage, in the model's order.
std::vector<std::int64_t> parameters(const Problem& p, const StageCost& cost) {
  std::vector<std::int64_t> sizes;
  const std::vector<bool>& trained = p.inventory.facts.trained;
  for (const ChunkCost& chunk : cost.chunks)
    for (const Run& run : chunk.runs)
      for (std::uint32_t i = 0; i < run.count; ++i) {
        const Segment& segment = p.program->segments[run.first_segment + i];
        for (OpId op = segment.first_op; op < segment.first_op + segment.op_count; ++op)
          for (const WeightId w : p.program->ops[op].weights) {
            const Weight& weight = p.program->weights[w];
            const bool frozen = w < trained.size() && !trained[w];
            if (weight.tied_to == kNone && !frozen) sizes.push_back(weight.numel());
          }
      }
  return sizes;
}

}  // namespace

std::vector<std::int64_t> state_pieces(const Problem& p, const Layout& l, const StageCost& cost,
                                       const Item& item, std::int64_t bytes, const Env& env) {
  const bool state = item.category == Category::master || item.category == Category::moments;
  const Rational shard = p.module->pool().eval(item.shard, env);
  if (!state || shard == Rational(1)) return {bytes};
  std::vector<std::int64_t> sizes = parameters(p, cost);
  Int128 all = 0;
  for (const std::int64_t n : sizes) all += n;
  if (all == 0) return {bytes};
  // This rank's range, in elements: the first 1 / shard of the reversed parameters, or all of them.
  Int128 range = all;
  if (l.zero < 3) {
    std::reverse(sizes.begin(), sizes.end());
    range = Int128{(Rational::integer(all) / shard).ceil().to_int64()};
  }
  std::vector<std::int64_t> pieces;
  Int128 passed = 0;
  std::int64_t given = 0;
  for (const std::int64_t n : sizes) {
    passed = std::min(passed + n, range);
    const auto until = static_cast<std::int64_t>(bytes * passed / range);
    if (until > given) pieces.push_back(until - given);
    given = until;
  }
  return pieces;
}

}  // namespace plimsoll::runtime
