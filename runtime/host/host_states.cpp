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

}  // namespace

namespace {

std::vector<const StagePlan*> plans_of_stages(const HostWorld& world, std::int64_t rank) {
  std::vector<const StagePlan*> plans;
  for (std::int64_t s = 0; s < world.layout.pp; ++s)
    plans.push_back(&world.plan(rank_in_stage(world.layout, rank, s)));
  return plans;
}

}  // namespace

HostStates::HostStates(HostWorld& world, std::int64_t rank)
    : world_(world),
      rank_(rank),
      plan_(world.plan(rank)),
      shapes_(world.shapes(rank)),
      groups_(world.groups(rank)),
      ties_(tied_across(*world.problem.program, plans_of_stages(world, rank), plan_.place.stage)),
      families_(world.problem, plan_, shapes_, ties_) {
  families_[dense].shard = families_[tied].shard = world.group(RankGroup::shard, rank);
  families_[dense].replicas = families_[tied].replicas = world.group(RankGroup::dp_cp, rank);
  families_[experts].shard = world.expert_shard(rank);
  families_[experts].replicas = world.group(RankGroup::edp, rank);
}

// --- the states' memory --------------------------------------------------------------------------

void HostStates::add(const TensorInfo& info, const Piece& piece) {
  const auto [kind, state] = state_name(world_.problem, plan_.item(info.row));
  if (state.empty()) return;
  // Gradients and moments begin at 0; weights are filled by start().
  if (state != "weights" && state != "master weights")
    std::memset(piece.at, 0, static_cast<std::size_t>(piece.bytes));
  State& held = families_[kind].states[state];
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

float HostStates::initial(const Entry& e, std::int64_t element) const {
  const Program& p = *world_.problem.program;
  const std::int64_t at = whole_place(p, shapes_, e.weight, element);
  if (at < 0) return 0;
  const double x =
      normal(mix({world_.options.seed, 0x776569676874u, e.weight, static_cast<std::uint64_t>(at)}));
  const InitialLaw law = initial_law(p, e.weight);
  return static_cast<float>(law.shift + law.scale * x / law.divisor);
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
  const float* base = weights_of(families_.family_of(w));
  PLIMSOLL_ASSERT(base != nullptr);
  return base + families_.find(w).offset;
}

float* HostStates::gradient(WeightId w) {
  Entry& e = families_.find(w);
  return e.trained < 0 ? nullptr : gradient_of(families_.family_of(w), e);
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
  const std::int64_t at = whole_place(*world_.problem.program, shapes_, e.weight, element);
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
