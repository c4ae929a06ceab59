// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "lang/trace.hpp"

#include "lang/trace_builder.hpp"

namespace plimsoll {

std::uint32_t ItemTable::row(Place place, const std::string& name, Category category,
                             LifetimeKind lifetime, Expr bytes, std::vector<Expr> shape,
                             std::string source, Span origin) {
  const auto [at, is_new] = index_.try_emplace({static_cast<int>(place.kind), place.index, name},
                                               static_cast<std::uint32_t>(items_.size()));
  if (is_new) {
    Item item;
    item.name = name;
    item.category = category;
    item.bytes = bytes;
    item.shape = std::move(shape);
    item.lifetime.kind = lifetime;
    item.place = place;
    item.source = std::move(source);
    item.origin = origin;
    item.traced = true;
    items_.push_back(std::move(item));
  }
  return at->second;
}

SegmentTrace build_trace(const TraceInput& in, std::uint32_t segment,
                         const RecomputePolicy& policy) {
  return TraceBuilder(in, segment, policy).build();
}

}  // namespace plimsoll
