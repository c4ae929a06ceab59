// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/layout.hpp"

/// Which values of a layout variable are tried. docs/planner.md lists the defaults.
namespace plimsoll {

/// The variables in the order in which they are chosen: each default domain depends on earlier ones
/// only.
enum class Knob : std::uint8_t {
  nodes,
  seq,
  batch,
  tp,
  cp,
  pp,
  ep,
  etp,
  vpp,
  mbs,
  sp,
  zero,
  shard,
  recompute,
  schedule,
  offload,
};
inline constexpr std::size_t kKnobCount = 16;
Var variable(Knob);

/// Values of offload are in thousandths, of recompute and schedule their numbers.
class Domains {
 public:
  explicit Domains(const Problem&);

  /// The values of \a knob where everything before it is set in \a layout: the job's, else the
  /// default ones. \a known: the variables set in \a env.
  std::vector<std::int64_t> values(Knob knob, const Layout& layout, const Env& env,
                                   std::uint64_t known) const;
  /// A variable to which the job gives other values than the layout has; for those whose value
  /// depends on variables that are chosen later, and for dp.
  std::optional<Var> disagrees(const Layout& layout, const Env& env) const;
  /// Can it ever? False where the job gives constants only, and not dp.
  bool settles_late() const;
  /// Does the job give it values?
  bool is_given(Knob knob) const { return choice(knob) != nullptr; }
  /// The numbers of sequences that a serve job asks for, ascending; empty where it does not.
  std::vector<std::int64_t> sequences(const Env&) const;
  /// Lists that the job pins; empty where it does not.
  std::vector<std::vector<std::int64_t>> stage_layers, recompute_layers;
  std::vector<std::vector<std::uint32_t>> stage_pool;

  std::int64_t gpus(const Layout& layout) const;  ///< of the cluster, with layout.nodes

 private:
  std::vector<std::int64_t> defaults(Knob, const Layout&) const;
  std::optional<std::int64_t> number(const eval::Value&, Knob, const Env&,
                                     std::uint64_t known) const;
  const Choice* choice(Knob knob) const { return choices_[static_cast<std::size_t>(knob)]; }

  const Problem& problem_;
  std::array<const Choice*, kKnobCount> choices_{};  ///< nullptr where the job makes none
  std::vector<std::int64_t> heads_;                  ///< of attention ops, distinct
  std::int64_t experts_ = 0;  ///< the greatest common divisor of the experts' counts
};

/// Sets \a knob of \a layout.
void set(Layout& layout, Knob knob, std::int64_t value);
/// The variables of a complete layout, and what follows from them (dp, microbatches, gpus …).
void set_variables(const Problem&, const Layout&, std::int64_t gpus, Env&);

}  // namespace plimsoll
