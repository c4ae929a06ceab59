// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <array>
#include <bit>

#include "lang/elaborate_impl.hpp"

/// Segments of a finished program: layers and what stands beside them, what crosses between them,
/// and which layers are alike.
namespace plimsoll::elab {

namespace {

/// The last segment that reads each value, and the segment that makes it.
struct Reach {
  std::vector<std::uint32_t> made, read;
};

template <class Visit>
void for_each_read(const Op& op, Visit visit) {
  for (const ValueId id : op.inputs) visit(id);
  for (const ValueId id : op.cache) visit(id);
}

Reach reach_of(const Program& program) {
  Reach reach;
  reach.made.resize(program.values.size());
  reach.read.resize(program.values.size());
  for (const Op& op : program.ops) {
    if (op.output != kNone) {
      reach.made[op.output] = op.segment;
      reach.read[op.output] = op.segment;
    }
    for_each_read(op, [&](ValueId id) { reach.read[id] = std::max(reach.read[id], op.segment); });
  }
  return reach;
}

/// Values times the boundaries that they cross: what keeps hostile models from filling memory.
constexpr std::uint64_t kMaxCrossings = 1u << 24;

bool find_inputs_and_carried(Program& program, const Reach& reach) {
  std::uint64_t crossings = 0;
  for (ValueId id = 0; id < program.values.size(); ++id)
    crossings += reach.read[id] - reach.made[id];
  if (crossings > kMaxCrossings) return false;
  std::vector<std::uint32_t> seen(program.values.size(), kNone);
  for (const Op& op : program.ops)
    for_each_read(op, [&](ValueId id) {
      if (reach.made[id] == op.segment || seen[id] == op.segment) return;
      seen[id] = op.segment;
      program.segments[op.segment].inputs.push_back(id);
    });
  for (ValueId id = 0; id < program.values.size(); ++id)
    for (std::uint32_t s = reach.made[id]; s < reach.read[id]; ++s)
      program.segments[s].carried.push_back(id);
  return true;
}

/// A layer in words that are equal for equal layers: values by their place in the layer, those
/// from outside by how they lie and whether others read them too, shared weights by number.
class Signature {
 public:
  Signature(const Program& program, const Reach& reach) : program_(program), reach_(reach) {
    local_.resize(program.values.size(), kNone);
  }

  const std::vector<std::uint64_t>& of(const Segment& segment, std::uint32_t index) {
    words_.clear();
    next_ = 0;
    for (OpId i = segment.first_op; i < segment.first_op + segment.op_count; ++i)
      add(program_.ops[i], segment);
    for (const ValueId id : segment.carried)
      if (reach_.made[id] == index) words_.insert(words_.end(), {local_[id], shared(id)});
    return words_;
  }

 private:
  bool shared(ValueId id) const { return reach_.read[id] > reach_.made[id] + 1; }

  void add(std::string_view text) {
    std::uint64_t hash = 14695981039346656037u;  // FNV-1a
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    words_.push_back(hash);
  }

  void add_kind_of(const Value& v, const Segment& segment) {
    words_.insert(words_.end(),
                  {v.tokens.id, static_cast<std::uint64_t>(v.width),
                   static_cast<std::uint64_t>(v.split), static_cast<std::uint64_t>(v.units),
                   v.sequence_sharded, v.experts == kNone ? kNone : v.experts - segment.first_op});
  }

  void add_read(ValueId id, const Segment& segment) {
    const Value& v = program_.values[id];
    if (v.producer >= segment.first_op && v.producer < segment.first_op + segment.op_count) {
      words_.push_back(local_[id]);
      return;
    }
    const auto at = std::ranges::find(segment.inputs, id) - segment.inputs.begin();
    words_.insert(words_.end(), {kNone, static_cast<std::uint64_t>(at), shared(id)});
    add_kind_of(v, segment);
  }

  void add(const Weight& w, const Segment& segment) {
    add(w.name);
    words_.insert(words_.end(),
                  {static_cast<std::uint64_t>(w.role), static_cast<std::uint64_t>(w.rows),
                   static_cast<std::uint64_t>(w.cols), static_cast<std::uint64_t>(w.dims),
                   static_cast<std::uint64_t>(w.split), static_cast<std::uint64_t>(w.units),
                   static_cast<std::uint64_t>(w.copies), w.tied_to, w.vocabulary, w.block,
                   w.experts == kNone ? kNone : w.experts - segment.first_op});
  }

  void add(const Op& op, const Segment& segment) {
    add(op.name);
    const std::array<std::int64_t, 13> sizes = {
        op.units, op.heads,  op.kv_heads, op.q_width, op.k_width,  op.v_width, op.window,
        op.chunk, op.groups, op.last,     op.count,   op.head_dim, op.state};
    words_.insert(words_.end(), sizes.begin(), sizes.end());
    const std::array<std::uint64_t, 7> rest = {
        static_cast<std::uint64_t>(op.kind),
        static_cast<std::uint64_t>(op.split),
        static_cast<std::uint64_t>(op.activation),
        static_cast<std::uint64_t>(op.causal) | op.softcap << 1 | op.sinks << 2 | op.alibi << 3 |
            op.plus_one << 4 | op.sigmoid << 5 | op.router_bias << 6,
        static_cast<std::uint64_t>(op.top_k),
        static_cast<std::uint64_t>(op.conv),
        static_cast<std::uint64_t>(op.vocab)};
    words_.insert(words_.end(), rest.begin(), rest.end());
    for (const Rational& n : {op.capacity, op.cap})
      words_.insert(words_.end(),
                    {static_cast<std::uint64_t>(n.num()), static_cast<std::uint64_t>(n.den())});
    words_.push_back(std::bit_cast<std::uint64_t>(op.p));
    words_.push_back(op.inputs.size());
    for (const ValueId id : op.inputs) add_read(id, segment);
    words_.push_back(op.cache.size());
    for (const ValueId id : op.cache) add_read(id, segment);
    words_.push_back(op.weights.size());
    for (const WeightId id : op.weights) add(program_.weights[id], segment);
    if (op.output == kNone) return;
    local_[op.output] = next_++;
    add_kind_of(program_.values[op.output], segment);
  }

  const Program& program_;
  const Reach& reach_;
  std::vector<std::uint64_t> words_;
  std::vector<std::uint32_t> local_;  ///< a value's place in its layer
  std::uint32_t next_ = 0;
};

struct WordsHash {
  std::size_t operator()(const std::vector<std::uint64_t>& words) const {
    std::uint64_t hash = words.size();
    for (const std::uint64_t word : words) {
      hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

}  // namespace

bool cut_segments(Draft& draft) {
  Program& program = draft.program;
  const auto end = static_cast<OpId>(program.ops.size());
  const auto push = [&](OpId first, OpId last, bool is_layer, std::uint32_t layer) {
    if (first == last) return;
    Segment segment;
    segment.is_layer = is_layer;
    segment.layer = layer;
    segment.first_op = first;
    segment.op_count = last - first;
    for (OpId i = first; i < last; ++i)
      program.ops[i].segment = static_cast<std::uint32_t>(program.segments.size());
    program.segments.push_back(std::move(segment));
  };
  OpId at = 0;
  std::uint32_t layer = 0;
  for (const LayerRange& range : draft.layers) {
    push(at, range.first, false, layer == 0 ? 0 : layer - 1);
    push(range.first, range.end, true, layer++);
    at = range.end;
  }
  push(at, end, false, layer == 0 ? 0 : layer - 1);
  program.layer_count = layer;
  return find_inputs_and_carried(program, reach_of(program));
}

void classify_layers(Program& program) {
  const Reach reach = reach_of(program);
  Signature signature(program, reach);
  std::unordered_map<std::vector<std::uint64_t>, std::uint32_t, WordsHash> classes;
  for (std::uint32_t i = 0; i < program.segments.size(); ++i) {
    Segment& segment = program.segments[i];
    if (!segment.is_layer) continue;
    const auto [at, added] = classes.try_emplace(signature.of(segment, i), program.class_count);
    segment.layer_class = at->second;
    if (!added) continue;
    ++program.class_count;
    program.class_first_segment.push_back(i);
  }
}

}  // namespace plimsoll::elab
