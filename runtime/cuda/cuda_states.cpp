// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/cuda/cuda_states.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "lang/diagnostics.hpp"

namespace plimsoll::runtime::cuda {

using host::stored_as;

CudaStates::CudaStates(const RankWorld& world, Machine& machine, Scratch& scratch, Peers& peers)
    : world_(world),
      machine_(machine),
      scratch_(scratch),
      peers_(peers),
      families_(world.problem, world.plan, world.shapes, world.ties) {
  families_[host::experts].shard = Bond::expert_shard;
  families_[host::experts].replicas = Bond::expert_replicas;
  square_ = Room(scratch, (1 + Squares::kParts) * 8);
  for (Family& f : families_) {
    std::int64_t at = 0;
    std::map<std::uint32_t, std::int64_t> in_segment, shares;
    for (Entry& e : f.entries) {
      if (e.trained < 0) continue;
      e.in_segment = in_segment[e.segment];
      in_segment[e.segment] += e.count;
      e.share_at = at;
      e.share_in_segment = shares[e.segment];
      at += share(f, e).count;
      shares[e.segment] += share(f, e).count;
    }
  }
}

// --- the states' memory --------------------------------------------------------------------------

void CudaStates::add(const TensorInfo& info, TensorId tensor, void* memory) {
  const Item& item = world_.plan.item(info.row);
  const auto [kind, state] = host::state_name(world_.problem, item);
  if (state.empty()) return;
  machine_.clear(memory, info.bytes);
  State& held = families_[kind].states[state];
  held.number = item.dtype == "bf16" ? Number::bf16 : Number::fp32;
  held.pieces.push_back(
      {tensor, static_cast<char*>(memory), info.bytes, info.pieces == 0 ? info.segment : kNone});
}

void CudaStates::remove(TensorId tensor) {
  for (Family& f : families_)
    for (auto& [name, state] : f.states)
      std::erase_if(state.pieces, [&](const Piece& p) { return p.tensor == tensor; });
}

void CudaStates::move(TensorId tensor, void* memory, std::int64_t bytes) {
  for (Family& f : families_)
    for (auto& [name, state] : f.states)
      for (Piece& p : state.pieces) {
        if (p.tensor != tensor) continue;
        p.at = static_cast<char*>(memory);
        p.bytes = bytes;
      }
}

CudaStates::Range CudaStates::share(const Family& f, const Entry& e, int rank) {
  const int size = circle(f.shard).size(), zero = world_.layout.zero;
  if (e.trained < 0) return {};
  if (zero == 0 || size == 1) return {0, e.count};
  if (zero >= 3) {
    const std::int64_t first = e.count * rank / size;
    return {first, e.count * (rank + 1) / size - first};
  }
  const std::int64_t begin = f.trained * rank / size, end = f.trained * (rank + 1) / size;
  const std::int64_t first = std::clamp(begin - e.trained, std::int64_t{0}, e.count);
  return {first, std::clamp(end - e.trained, std::int64_t{0}, e.count) - first};
}

std::int64_t CudaStates::share_count(const Family& f) {
  std::int64_t count = 0;
  for (const Entry& e : f.entries) count += share(f, e).count;
  return count;
}

Array CudaStates::at(State& s, std::int64_t total, std::int64_t i, std::int64_t& count) {
  const std::int64_t each = bytes_of(s.number);
  std::int64_t begin = 0;
  for (const Piece& p : s.pieces) {
    const std::int64_t elements = p.bytes / each;
    if (i < begin + elements) {
      count = std::min(count, begin + elements - i);
      return {p.at + (i - begin) * each, s.number};
    }
    begin += elements;
  }
  PLIMSOLL_ASSERT(i < total);
  if (s.beyond_count < total - begin) {
    s.beyond_count = total - begin;
    s.beyond = Room(scratch_, s.beyond_count * each);
    machine_.clear(s.beyond.at(), s.beyond_count * each);
  }
  count = std::min(count, total - i);
  return {s.beyond.as<char>() + (i - begin) * each, s.number};
}

Array CudaStates::weights_at(Family& f, Entry& e, std::int64_t i, std::int64_t& count) {
  const bool divided = world_.layout.zero >= 3;
  const std::int64_t total = divided ? share_count(f) : f.count;
  const std::int64_t to = divided ? e.share_at + (i - share(f, e).first) : e.offset + i;
  return at(f.states["weights"], total, to, count);
}

Array CudaStates::state_share(Family& f, Entry& e, const char* state, std::int64_t i,
                              std::int64_t& count) {
  return at(f.states[state], share_count(f), e.share_at + (i - share(f, e).first), count);
}

Array CudaStates::gradient_of(Family& f, Entry& e) {
  if (world_.layout.zero < 2 && !e.gradient.at()) {
    const auto state = f.states.find("gradients");
    if (state != f.states.end()) {
      const Number number = state->second.number;
      std::int64_t begin = 0;
      for (const Piece& p : state->second.pieces) {
        const bool grown = p.segment != kNone;
        const std::int64_t first = grown ? e.in_segment : e.trained - begin;
        // A grown piece's last bytes may be given back; its block stays as large as it was.
        if ((!grown || p.segment == e.segment) && first >= 0 &&
            (first + e.count) * bytes_of(number) <= p.bytes)
          return {p.at + first * bytes_of(number), number};
        begin += p.bytes / bytes_of(number);
      }
    }
  }
  if (!e.gradient.at()) {
    e.gradient = Room(scratch_, e.count * 4);
    machine_.clear(e.gradient.at(), e.count * 4);
  }
  return {e.gradient.at(), Number::fp32};
}

Array CudaStates::gradient_share(Family& f, Entry& e, std::int64_t i, std::int64_t& count) {
  if (world_.layout.zero < 2) return gradient_of(f, e).from(i);
  const Range mine = share(f, e);
  State& s = f.states["gradients"];
  const bool grown = std::any_of(s.pieces.begin(), s.pieces.end(),
                                 [](const Piece& p) { return p.segment != kNone; });
  if (!grown && !e.share.at()) return state_share(f, e, "gradients", i, count);
  const std::int64_t each = bytes_of(s.number);
  for (const Piece& p : s.pieces)
    if (p.segment == e.segment && !e.share.at() &&
        (e.share_in_segment + mine.count) * each <= p.bytes)
      return {p.at + (e.share_in_segment + i - mine.first) * each, s.number};
  // The segment's piece is rounded otherwise, or a rank has other segments' elements.
  if (!e.share.at()) {
    e.share = Room(scratch_, mine.count * 4);
    machine_.clear(e.share.at(), mine.count * 4);
  }
  return Array{e.share.at(), Number::fp32}.from(i - mine.first);
}

// --- weights -------------------------------------------------------------------------------------

void CudaStates::fill(const Entry& e, Array to, std::int64_t first, std::int64_t count) {
  const Program& p = *world_.problem.program;
  const Weight& w = p.weights[e.weight];
  const WeightShape& s = world_.shapes.weights[e.weight];
  WeightNoise k;
  k.to = to;
  k.first = first;
  k.count = count;
  k.rows = s.rows;
  k.cols = s.cols;
  k.first_copy = s.first_copy;
  k.whole_rows = w.rows;
  k.whole_cols = w.cols;
  k.row_of = runs_of(s.row_of);
  k.col_of = runs_of(s.col_of);
  k.seed = world_.options.seed;
  k.weight = e.weight;
  const host::InitialLaw law = host::initial_law(p, e.weight);
  k.scale = law.scale;
  k.shift = law.shift;
  k.divisor = law.divisor;
  machine_.launch(k);
}

void CudaStates::start() {
  for (Family& f : families_)
    for (Entry& e : f.entries) {
      const auto put = [&](std::int64_t i, std::int64_t n, Array to) { fill(e, to, i, n); };
      in_stretches(kept(f, e), put,
                   [&](std::int64_t i, std::int64_t& n) { return weights_at(f, e, i, n); });
      if (has(f, "master weights"))
        in_stretches(share(f, e), put, [&](std::int64_t i, std::int64_t& n) {
          return state_share(f, e, "master weights", i, n);
        });
    }
}

Array CudaStates::weight(WeightId w, std::vector<Room>& rooms) {
  const WeightId owner = stored_as(*world_.problem.program, w);
  Family& f = families_.family_of(w);
  const Number number = f.states["weights"].number;
  if (const auto all = gathered_.find(owner); all != gathered_.end())
    return {all->second.at(), number};
  PLIMSOLL_ASSERT(world_.layout.zero < 3);
  Entry& e = families_.find(w);
  std::int64_t n = e.count;
  const Array in_place = weights_at(f, e, 0, n);
  if (n == e.count) return in_place;
  rooms.emplace_back(scratch_, e.count * bytes_of(number));
  const Array whole{rooms.back().at(), number};
  for (std::int64_t i = 0; i < e.count; i += n) {
    n = e.count - i;
    const Array from = weights_at(f, e, i, n);
    machine_.copy(whole.from(i).at, from.at, n * bytes_of(number));
  }
  return whole;
}

Array CudaStates::gradient(WeightId w) {
  Entry& e = families_.find(w);
  return e.trained < 0 ? Array{} : gradient_of(families_.family_of(w), e);
}

/// ZeRO 3: a segment's weights from the ranks that have pieces of them.
void CudaStates::gather_weights(std::uint32_t segment) {
  const Program& p = *world_.problem.program;
  std::set<WeightId> wanted;
  const Segment& s = p.segments[segment];
  for (OpId o = s.first_op; o < s.first_op + s.op_count; ++o)
    for (const WeightId w : p.ops[o].weights) wanted.insert(stored_as(p, w));
  for (const WeightId w : wanted) {
    Family& f = families_.family_of(w);
    Entry& e = families_.find(w);
    const Number number = f.states["weights"].number;
    Room room(scratch_, e.count * bytes_of(number));
    const Array whole{room.at(), number};
    Circle& ranks = circle(f.shard);
    in_stretches(
        kept(f, e),
        [&](std::int64_t i, std::int64_t n, Array from) {
          machine_.copy(whole.from(i).at, from.at, n * bytes_of(number));
        },
        [&](std::int64_t i, std::int64_t& n) { return weights_at(f, e, i, n); });
    for (int r = 0; r < ranks.size(); ++r) {
      const Range part = share(f, e, r);
      if (part.count > 0) ranks.broadcast(whole.from(part.first), part.count, r, true);
    }
    gathered_[w] = std::move(room);
  }
}

void CudaStates::look(Array from, std::int64_t count, const Entry& e, std::int64_t first,
                      const Look& f) {
  std::vector<char> bytes(static_cast<std::size_t>(count * bytes_of(from.number)));
  machine_.download(bytes.data(), from.at, static_cast<std::int64_t>(bytes.size()));
  const Array here{bytes.data(), from.number};
  for (std::int64_t i = 0; i < count; ++i)
    if (const std::int64_t to =
            host::whole_place(*world_.problem.program, world_.shapes, e.weight, first + i);
        to >= 0)
      f(e.weight, to, here.get(i));
}

void CudaStates::look_at_gradients(const Look& run) {
  for (Family& f : families_)
    for (Entry& e : f.entries)
      in_stretches(
          share(f, e),
          [&](std::int64_t i, std::int64_t n, Array from) { look(from, n, e, i, run); },
          [&](std::int64_t i, std::int64_t& n) { return gradient_share(f, e, i, n); });
}

void CudaStates::look_at_parameters(const Look& run) {
  for (Family& f : families_)
    for (Entry& e : f.entries)
      in_stretches(
          kept(f, e), [&](std::int64_t i, std::int64_t n, Array from) { look(from, n, e, i, run); },
          [&](std::int64_t i, std::int64_t& n) { return weights_at(f, e, i, n); });
}

}  // namespace plimsoll::runtime::cuda
