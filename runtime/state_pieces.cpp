// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/state_pieces.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace plimsoll::runtime {

namespace {

/// The parameters of one segment.
void add_parameters(const Problem& p, const Layout& l, const Segment& segment, bool experts,
                    bool trained, std::vector<std::int64_t>& sizes) {
  const Flow& flow = p.inventory.flow;
  const std::vector<bool>& is_trained = p.inventory.facts.trained;
  std::map<std::pair<int, ValueId>, std::size_t> fused;  // by group and the value that they read
  for (OpId o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
    const Op& op = p.program->ops[o];
    for (const WeightId id : op.weights) {
      const Weight& w = p.program->weights[id];
      if (w.tied_to != kNone || (w.experts != kNone) != experts) continue;
      if (trained && id < is_trained.size() && !is_trained[id]) continue;
      if (experts) {
        const std::int64_t here = std::max<std::int64_t>(1, w.copies / l.ep);
        sizes.insert(sizes.end(), static_cast<std::size_t>(here), w.rows * w.cols);
        continue;
      }
      if (flow.fuse_group[o] >= 0 && w.dims == 2) {
        const auto [at, is_new] =
            fused.try_emplace({flow.fuse_group[o], flow.storage[op.inputs[0]]}, sizes.size());
        if (!is_new) {
          sizes[at->second] += w.numel();
          continue;
        }
      }
      sizes.push_back(w.numel());
    }
  }
}

/// \a bytes over the elements from \a from to \a to of parameters in a row; the sum is exact.
std::vector<std::int64_t> cut(const std::vector<std::int64_t>& sizes, Int128 from, Int128 to,
                              std::int64_t bytes) {
  std::vector<std::int64_t> pieces;
  Int128 begin = 0;
  std::int64_t given = 0;
  for (const std::int64_t size : sizes) {
    const Int128 end = begin + size;
    const Int128 passed = std::clamp<Int128>(end, from, to) - from;
    const auto until = static_cast<std::int64_t>(bytes * passed / (to - from));
    if (until > given) pieces.push_back(until - given);
    given = until;
    begin = end;
  }
  return pieces;
}

}  // namespace

std::vector<std::int64_t> parameter_sizes(const Problem& p, const Layout& l, const StageCost& cost,
                                          bool experts, bool trained) {
  std::vector<std::int64_t> sizes;
  for (const ChunkCost& chunk : cost.chunks)
    for (const Run& run : chunk.runs)
      for (std::uint32_t i = 0; i < run.count; ++i)
        add_parameters(p, l, p.program->segments[run.first_segment + i], experts, trained, sizes);
  return sizes;
}

std::vector<std::int64_t> state_pieces(const Problem& p, const Layout& l, const RankPlace& place,
                                       const StageCost& cost, const Item& item, std::int64_t bytes,
                                       const Env& env) {
  const bool optimizer = item.category == Category::master || item.category == Category::moments;
  const bool buffers = l.zero == 1 || l.zero == 2;
  const bool weights = item.category == Category::weights && !buffers;
  const std::string_view name = item.name;
  if (!p.inventory.counts_blocks || item.place.kind == Place::stage || !(optimizer || weights) ||
      name.starts_with("adapters'"))
    return {bytes};
  const bool experts = name.starts_with("experts'");
  std::vector<std::int64_t> sizes = parameter_sizes(p, l, cost, experts, optimizer);
  Int128 all = 0;
  for (const std::int64_t n : sizes) all += n;
  if (all == 0) return {bytes};
  if (!buffers) return cut(sizes, 0, all, bytes);
  // This rank's range of the reversed parameters.
  std::reverse(sizes.begin(), sizes.end());
  const Int128 shard{p.module->pool().eval(item.shard, env).ceil().to_int64()};
  const Int128 range = (all + shard - 1) / shard;
  const Int128 number = experts ? Int128{place.edp} % shard : Int128{place.shard} % shard;
  const Int128 from = std::min(number * range, all - 1);
  return cut(sizes, from, std::min(from + range, all), bytes);
}

}  // namespace plimsoll::runtime
