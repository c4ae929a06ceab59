// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "lang/inventory.hpp"

#include <algorithm>

#include "lang/diagnostics.hpp"

namespace plimsoll {

std::string_view name(Category c) {
  static constexpr std::string_view kNames[] = {
#define X(name) #name,
      PLIMSOLL_CATEGORIES(X)
#undef X
  };
  return kNames[static_cast<std::size_t>(c)];
}

std::string Lifetime::str() const {
  static constexpr std::string_view kPhases[] = {
      "forward", "backward", "update", "building the model", "loading", "saving", "evaluation"};
  const auto phase = [](Phase p) { return kPhases[static_cast<std::size_t>(p)]; };
  std::string text;
  switch (kind) {
    case LifetimeKind::always:
      text = "always";
      break;
    case LifetimeKind::from_first_step:
      text = "from the first step";
      break;
    case LifetimeKind::step:
      text = "step";
      break;
    case LifetimeKind::microbatch:
      text = "micro-batch";
      break;
    case LifetimeKind::op:
      text = "op";
      break;
    case LifetimeKind::span:
      text = from == to ? std::string(phase(from)) : fmt::format("{}..{}", phase(from), phase(to));
      break;
  }
  if (early) text += ", from the layer before";
  if (late) text += ", into the next layer";
  return text;
}

std::uint32_t Inventory::trace_of(std::uint32_t segment) const {
  const Segment& s = program->segments[segment];
  if (s.is_layer) return s.layer_class;
  const auto at = std::find(root_segments.begin(), root_segments.end(), segment);
  PLIMSOLL_ASSERT(at != root_segments.end());
  return program->class_count + static_cast<std::uint32_t>(at - root_segments.begin());
}

}  // namespace plimsoll
