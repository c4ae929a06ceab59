// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/thrifty.hpp"

#include <array>
#include <map>
#include <tuple>

namespace plimsoll {

void thrifty_layouts(Space& space, const std::function<bool(const Layout&)>& each) {
  std::map<std::array<std::int64_t, 9>, Point> cores;
  space.cores([&](const Layout& l, Env&) {
    const auto [at, fresh] = cores.try_emplace(
        {l.nodes, l.seq, l.batch, l.tp, l.cp, l.pp, l.ep, l.etp, l.vpp}, space.point(l));
    if (!fresh && l.mbs < at->second.mbs) at->second = space.point(l);
  });
  const auto thrift = [](const Layout& l) {
    return std::make_tuple(l.zero, l.shard, l.recompute == kFullRecompute, l.offload);
  };
  for (const auto& [key, core] : cores) {
    std::vector<Layout> leaves;
    space.leaves(core, [&](const Layout& l, Env&) {
      if (!leaves.empty() && thrift(l) < thrift(leaves.front())) return;
      if (!leaves.empty() && thrift(leaves.front()) < thrift(l)) leaves.clear();
      leaves.push_back(l);
    });
    for (const Layout& l : leaves)
      if (!each(l)) return;
  }
}

}  // namespace plimsoll
