// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "planner/other_moments.hpp"

#include <algorithm>

#include "planner/bill_lines.hpp"

namespace plimsoll {

namespace {

using Predicate = std::function<bool(const Item&)>;

bool lives_at(const Lifetime& life, Phase phase) {
  return life.kind == LifetimeKind::span && life.from == phase;
}

class Collector {
 public:
  Collector(const Problem& p, const StageCost& s,
            const std::function<Int128(const Bytes&)>& with_segments)
      : p_(p), s_(s), with_segments_(with_segments) {}

  /// The statics of which \a live is true, with \a activations beside them.
  OtherMoment moment(std::string name, Phase own, const Predicate& live,
                     const Bytes& activations = {}) const {
    OtherMoment m;
    m.name = std::move(name);
    Bytes sum = activations;
    m.live[static_cast<std::size_t>(Category::activations)] = activations.live;
    for (const StaticBytes& st : s_.statics) {
      const Item& item = p_.inventory.items[st.item];
      const bool alone = is_beside_steps(own) && lives_at(item.lifetime, own);
      if (item.outside || st.bytes.live == 0 || !(alone || live(item))) continue;
      sum += st.bytes;
      m.live[static_cast<std::size_t>(item.category)] += st.bytes.live;
      if (alone) m.own.emplace_back(item.name, st.bytes.live);
    }
    m.bytes = with_segments_(sum);
    m.allocated = footprint(p_.inventory, sum, 0).allocated;
    return m;
  }

  /// The largest moment of a step, or one of its own.
  OtherMoment of_step(std::string name, const CostModel& model, const Moment& at) const {
    OtherMoment m;
    m.name = std::move(name);
    StageBill lines;
    itemise(p_, model, s_, at, footprint(p_.inventory, at.bytes, s_.outside), lines, false);
    for (const BillLine& line : lines.lines)
      if (line.item != kNone ? !p_.inventory.items[line.item].outside
                             : line.category != Category::fragmentation)
        m.live[static_cast<std::size_t>(line.category)] += line.bytes;
    m.bytes = with_segments_(at.bytes);
    m.allocated = footprint(p_.inventory, at.bytes, 0).allocated;
    return m;
  }

 private:
  const Problem& p_;
  const StageCost& s_;
  const std::function<Int128(const Bytes&)>& with_segments_;
};

/// Weights and gradient buffers: what is made before the optimizer is.
bool when_built(const Item& item) {
  return item.lifetime.kind == LifetimeKind::always &&
         (item.category == Category::weights || item.category == Category::gradients);
}

/// Optimizer states are there too when a run goes on from a checkpoint.
bool when_loaded(const Item& item) {
  return item.lifetime.kind == LifetimeKind::always ||
         (item.lifetime.kind == LifetimeKind::from_first_step &&
          (item.category == Category::moments || item.category == Category::master));
}

bool between_steps(const Item& item) { return presence(item.lifetime).between; }

/// No micro-batch's gradients, and none of what passes from stage to stage in training.
bool in_evaluation(const Item& item) {
  const Lifetime& life = item.lifetime;
  if (life.kind == LifetimeKind::microbatch || life.kind == LifetimeKind::op) return false;
  return between_steps(item) || presence(life).forward;
}

}  // namespace

std::vector<OtherMoment> other_moments(const Problem& p, const CostModel& model, const StageCost& s,
                                       const std::function<Int128(const Bytes&)>& with_segments) {
  const Collector collect(p, s, with_segments);
  std::vector<OtherMoment> all;
  all.push_back(collect.moment("building the model", Phase::start, when_built));
  all.push_back(collect.moment("loading a checkpoint", Phase::load, when_loaded));
  // The same moment of a later step has the lines; its bytes are those of the first.
  const Moment first_peak = model.moments(s, true).front();
  Moment later = first_peak;
  for (const Moment& m : model.moments(s, false))
    if (m.kind == first_peak.kind && m.holding == first_peak.holding) later = m;
  all.push_back(collect.of_step("first step", model, later));
  // The first step has no optimizer states that the first update makes.
  OtherMoment& first = all.back();
  first.bytes = with_segments(first_peak.bytes);
  first.allocated = footprint(p.inventory, first_peak.bytes, 0).allocated;
  const bool before = first_peak.kind == Moment::forward || first_peak.kind == Moment::backward;
  for (const StaticBytes& st : s.statics)
    if (const Item& item = p.inventory.items[st.item];
        before && item.lifetime.kind == LifetimeKind::from_first_step && !item.outside)
      first.live[static_cast<std::size_t>(item.category)] -= st.bytes.live;
  all.push_back(collect.of_step("optimizer step", model, {Moment::update, 0, s.update}));
  all.push_back(collect.moment("saving a checkpoint", Phase::save, between_steps));
  all.push_back(
      collect.moment("evaluation", Phase::evaluate, in_evaluation, model.forward_alone(s)));
  return all;
}

}  // namespace plimsoll
