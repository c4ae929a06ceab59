// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "runtime/host/host_states.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "lang/diagnostics.hpp"
#include "runtime/host/random.hpp"

namespace plimsoll::runtime::host {

namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

bool starts_with(const std::string& text, const std::string& with) {
  return text.compare(0, with.size(), with) == 0;
}

}  // namespace

std::set<WeightId> weights_on(const Program& p, const StagePlan& plan) {
  std::set<WeightId> weights;
  for (const PlannedChunk& chunk : plan.chunks)
    for (const PlannedSegment& s : chunk.segments) {
      const Segment& segment = p.segments[s.segment];
      for (OpId o = segment.first_op; o < segment.first_op + segment.op_count; ++o)
        weights.insert(p.ops[o].weights.begin(), p.ops[o].weights.end());
    }
  return weights;
}

WeightId stored_as(const Program& p, WeightId w) {
  while (p.weights[w].tied_to != kNone) w = p.weights[w].tied_to;
  return w;
}

HostStates::HostStates(HostWorld& world, std::int64_t rank)
    : world_(world),
      rank_(rank),
      plan_(world.plan(rank)),
      shapes_(world.shapes(rank)),
      groups_(world.groups(rank)) {
  families_[dense].shard = families_[tied].shard = world.group(RankGroup::shard, rank);
  families_[dense].replicas = families_[tied].replicas = world.group(RankGroup::dp_cp, rank);
  families_[experts].shard = world.expert_shard(rank);
  families_[experts].replicas = world.group(RankGroup::edp, rank);
  const Program& p = *world.problem.program;
  std::map<WeightId, std::set<std::int64_t>> on_stages;
  for (std::int64_t s = 0; s < world.layout.pp; ++s)
    for (const WeightId w : weights_on(p, world.plan(rank_in_stage(world.layout, rank, s))))
      on_stages[stored_as(p, w)].insert(s);
  const std::set<WeightId> here = weights_on(p, plan_);
  for (const PlannedChunk& chunk : plan_.chunks)
    for (const PlannedSegment& s : chunk.segments) {
      const Segment& segment = p.segments[s.segment];
      for (OpId o = segment.first_op; o < segment.first_op + segment.op_count; ++o)
        for (const WeightId w : p.ops[o].weights)
          if (const WeightId owner = stored_as(p, w); w == owner || !here.count(owner))
            add_entry(w, s.segment);
    }
  for (const auto& [w, stages] : on_stages)
    if (stages.size() > 1) ties_[w] = entry_of_.count(w) > 0;
  for (Family& f : families_)
    for (Entry& e : f.entries) e.tied_across = ties_.count(e.weight) > 0;
}

/// A weight of this stage; a copy where the owner is on another one, one for all who are tied to
/// it.
void HostStates::add_entry(WeightId w, std::uint32_t segment) {
  const Program& p = *world_.problem.program;
  const WeightId owner = stored_as(p, w);
  if (entry_of_.count(owner)) return;
  const FamilyKind kind = w != owner ? tied : p.weights[owner].experts != kNone ? experts : dense;
  Family& f = families_[kind];
  Entry e;
  e.weight = owner;
  e.segment = segment;
  e.offset = f.count;
  e.count = shapes_.weights[owner].count();
  f.count += e.count;
  if (world_.problem.inventory.facts.trained[w]) {
    e.trained = f.trained;
    f.trained += e.count;
  }
  entry_of_[owner] = {kind, f.entries.size()};
  f.entries.push_back(std::move(e));
}

HostStates::Entry* HostStates::find(WeightId w) {
  const auto at = entry_of_.find(stored_as(*world_.problem.program, w));
  PLIMSOLL_ASSERT(at != entry_of_.end());
  return &families_[static_cast<std::size_t>(at->second.first)].entries[at->second.second];
}

HostStates::Family& HostStates::family_of(WeightId w) {
  return families_[static_cast<std::size_t>(
      entry_of_.at(stored_as(*world_.problem.program, w)).first)];
}

bool HostStates::transposed(WeightId w) const {
  const Program& p = *world_.problem.program;
  const Weight &as_used = p.weights[w], &as_stored = p.weights[stored_as(p, w)];
  return as_used.role != Role::embedding && as_stored.role == Role::embedding;
}

// --- the states' memory --------------------------------------------------------------------------

/// A row of the inventory by the name that lowering gives it (lower_states.cpp); no family where it
/// is another thing.
std::pair<HostStates::Family*, std::string> HostStates::state_of(const Item& item) {
  std::string state = item.name;
  FamilyKind kind = dense;
  const std::string of_experts = "experts' ", of_copy = " of the tied copy";
  if (starts_with(state, of_experts)) {
    kind = experts;
    state.erase(0, of_experts.size());
  } else if (state.size() > of_copy.size() &&
             state.compare(state.size() - of_copy.size(), of_copy.size(), of_copy) == 0) {
    kind = tied;
    state.erase(state.size() - of_copy.size());
  }
  const std::string& optimizer = world_.problem.job->optimizer;
  if (item.category == Category::moments && starts_with(state, optimizer + " "))
    return {&families_[kind], state.substr(optimizer.size() + 1)};
  if (state == "weights" || state == "gradients" || state == "master weights")
    return {&families_[kind], state};
  return {nullptr, ""};
}

void HostStates::add(const TensorInfo& info, const Piece& piece) {
  const auto [family, state] = state_of(plan_.item(info.row));
  if (!family) return;
  // Gradients and moments begin at 0; weights are filled by start().
  if (state != "weights" && state != "master weights")
    std::memset(piece.at, 0, static_cast<std::size_t>(piece.bytes));
  State& held = family->states[state];
  const std::string& dtype = plan_.item(info.row).dtype;
  held.storage = dtype == "bf16" ? Storage::bf16 : dtype == "fp16" ? Storage::fp16 : Storage::fp32;
  held.pieces.push_back(piece);
}

void HostStates::remove(TensorId tensor) {
  for (Family& f : families_)
    for (auto& [name, state] : f.states)
      std::erase_if(state.pieces, [&](const Piece& p) { return p.tensor == tensor; });
}

void HostStates::shrink(TensorId tensor, std::int64_t bytes) {
  for (Family& f : families_)
    for (auto& [name, state] : f.states)
      for (Piece& p : state.pieces)
        if (p.tensor == tensor) p.bytes -= bytes;
}

/// A rank's elements of \a count, where the zero stage divides such states.
HostStates::Range HostStates::part(const Family& f, std::int64_t count, int rank,
                                   int from_zero) const {
  if (world_.layout.zero < from_zero) return {0, count};
  const std::int64_t first = count * rank / f.shard.size();
  return {first, count * (rank + 1) / f.shard.size() - first};
}

/// The elements lie in the pieces as one stream of bytes; what they have no room for lies beyond.
std::vector<float> HostStates::read(Family& f, const std::string& name, std::int64_t count) {
  State& state = f.states[name];
  const std::int64_t each = bytes_of(state.storage);
  std::vector<std::byte> stored(static_cast<std::size_t>(count * each));
  std::byte* to = stored.data();
  std::int64_t left = count * each;
  for (const Piece& p : state.pieces) {
    const std::int64_t bytes = std::min(left, p.bytes);
    std::memcpy(to, p.at, static_cast<std::size_t>(bytes));
    to += bytes;
    left -= bytes;
  }
  std::vector<float> values(static_cast<std::size_t>(count));
  decode(state.storage, stored.data(), count, values.data());
  const auto missing = static_cast<std::size_t>((left + each - 1) / each);
  state.beyond.resize(std::max(state.beyond.size(), missing));
  std::copy_n(state.beyond.begin(), missing, values.end() - static_cast<std::ptrdiff_t>(missing));
  return values;
}

void HostStates::write(Family& f, const std::string& name, const std::vector<float>& values) {
  State& state = f.states[name];
  const std::int64_t each = bytes_of(state.storage);
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::byte> stored(static_cast<std::size_t>(count * each));
  encode(state.storage, values.data(), count, stored.data());
  const std::byte* from = stored.data();
  std::int64_t left = count * each;
  for (const Piece& p : state.pieces) {
    const std::int64_t bytes = std::min(left, p.bytes);
    std::memcpy(p.at, from, static_cast<std::size_t>(bytes));
    from += bytes;
    left -= bytes;
  }
  const auto missing = static_cast<std::ptrdiff_t>((left + each - 1) / each);
  state.beyond.assign(values.end() - missing, values.end());
}

/// A state that is one piece of memory with all elements; nullptr where it is not.
float* HostStates::whole(Family& f, const std::string& name, std::int64_t count) {
  const auto at = f.states.find(name);
  if (at == f.states.end() || at->second.pieces.size() != 1) return nullptr;
  const Piece& p = at->second.pieces.front();
  const bool fits = at->second.storage == Storage::fp32 && p.bytes >= count * 4;
  return fits ? reinterpret_cast<float*>(p.at) : nullptr;  // NOLINT
}

// --- weights -------------------------------------------------------------------------------------

std::int64_t HostStates::place(WeightId w, std::int64_t element) const {
  const WeightShape& s = shapes_.weights[w];
  const Weight& weight = world_.problem.program->weights[w];
  const std::int64_t copy = s.first_copy + element / (s.rows * s.cols);
  const std::int64_t row = s.row_of[static_cast<std::size_t>(element / s.cols % s.rows)];
  const std::int64_t col = s.col_of[static_cast<std::size_t>(element % s.cols)];
  if (row >= weight.rows || col >= weight.cols) return -1;
  return (copy * weight.rows + row) * weight.cols + col;
}

float HostStates::initial(const Entry& e, std::int64_t element) const {
  const Program& p = *world_.problem.program;
  const Weight& w = p.weights[e.weight];
  const std::int64_t at = place(e.weight, element);
  if (at < 0) return 0;
  const double x =
      normal(mix({world_.options.seed, 0x776569676874u, e.weight, static_cast<std::uint64_t>(at)}));
  if (w.role == Role::norm) {
    for (const Op& op : p.ops)
      if (!op.weights.empty() && op.weights[0] == e.weight && op.plus_one)
        return static_cast<float>(0.1 * x);
    return static_cast<float>(1 + 0.1 * x);
  }
  if (w.name == "D") return static_cast<float>(1 + 0.1 * x);  // mamba2's
  if (w.role == Role::embedding) return static_cast<float>(x / std::sqrt(double(w.cols)));
  if (w.dims < 2) return static_cast<float>(0.1 * x);
  return static_cast<float>(x / std::sqrt(static_cast<double>(w.rows)));
}

void HostStates::start() {
  for (Family& f : families_) {
    if (f.count == 0) continue;
    const auto fill = [&](const std::string& state, const Range& range, bool trained) {
      std::vector<float> values(static_cast<std::size_t>(range.count));
      for_each(f, range, trained, [&](const Entry& e, std::int64_t element, std::size_t at) {
        values[at] = initial(e, element);
      });
      write(f, state, values);
    };
    fill("weights", mine(f, f.count, 3), false);
    if (has(f, "master weights")) fill("master weights", mine(f, f.trained, 1), true);
    if (world_.layout.zero >= 3)
      f.compute.assign(static_cast<std::size_t>(f.count), kPoison);
    else if (!whole(f, "weights", f.count))
      f.compute = read(f, "weights", f.count);
  }
}

void HostStates::begin_step() {
  for (Family& f : families_) {
    for (Entry& e : f.entries) e.gradient.clear();
    f.share.clear();
    for (const Piece& p : f.states["gradients"].pieces)
      std::memset(p.at, 0, static_cast<std::size_t>(p.bytes));
  }
}

/// All weights of the stage as ops read them.
float* HostStates::weights_of(Family& f) {
  return f.compute.empty() ? whole(f, "weights", f.count) : f.compute.data();
}

const float* HostStates::weight(WeightId w) {
  const float* base = weights_of(family_of(w));
  PLIMSOLL_ASSERT(base != nullptr);
  return base + find(w)->offset;
}

float* HostStates::gradient(WeightId w) {
  Entry& e = *find(w);
  return e.trained < 0 ? nullptr : gradient_of(family_of(w), e);
}

float* HostStates::gradient_of(Family& f, Entry& e) {
  if (world_.layout.zero < 2)
    if (float* base = whole(f, "gradients", f.trained)) return base + e.trained;
  e.gradient.resize(static_cast<std::size_t>(e.count));
  return e.gradient.data();
}

/// ZeRO 3: a segment's weights from the ranks that have pieces of them. Weights that are tied to
/// another segment's come too.
void HostStates::gather_weights(std::uint32_t segment) {
  const Program& p = *world_.problem.program;
  std::set<WeightId> wanted;
  const Segment& s = p.segments[segment];
  for (OpId o = s.first_op; o < s.first_op + s.op_count; ++o)
    for (const WeightId w : p.ops[o].weights) wanted.insert(stored_as(p, w));
  for (Family& f : families_) {
    if (f.count == 0) continue;
    const std::vector<float> own = read(f, "weights", mine(f, f.count, 3).count);
    const auto take = [&](const float* from, int rank) {
      const Range r = part(f, f.count, rank, 3);
      for (const Entry& e : f.entries) {
        if (!wanted.count(e.weight)) continue;
        const std::int64_t first = std::max(e.offset, r.first);
        const std::int64_t last = std::min(e.offset + e.count, r.first + r.count);
        if (first < last)
          std::copy(from + (first - r.first), from + (last - r.first), f.compute.begin() + first);
      }
    };
    if (f.shard.size() == 1) {
      take(own.data(), 0);
      continue;
    }
    const Meeting::Table table(*f.shard.meeting, f.shard.rank, own.data(),
                               static_cast<std::int64_t>(own.size()) * 4);
    for (int r = 0; r < f.shard.size(); ++r) take(table.of<float>(r), r);
  }
}

void HostStates::release_weights(std::uint32_t /*segment*/) {
  for (Family& f : families_) std::fill(f.compute.begin(), f.compute.end(), kPoison);
}

void HostStates::publish(std::vector<WholeTensors>& tensors, int step, const Entry& e,
                         std::int64_t element, float value) {
  const std::int64_t at = place(e.weight, element);
  if (at < 0) return;
  tensors[static_cast<std::size_t>(step) - 1][e.weight][static_cast<std::size_t>(at)] = value;
}

void HostStates::publish_parameters(int step) {
  if (!world_.options.keep_tensors) return;
  const std::lock_guard lock(world_.mutex);
  for (Family& f : families_) {
    if (f.count == 0) continue;
    const Range range = mine(f, f.count, 3);
    const std::vector<float> values = read(f, "weights", range.count);
    for_each(f, range, false, [&](const Entry& e, std::int64_t element, std::size_t at) {
      publish(world_.parameters, step, e, element, values[at]);
    });
  }
}

}  // namespace plimsoll::runtime::host
