// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <map>
#include <tuple>

#include "runtime/device.hpp"
#include "runtime/stage_plan.hpp"

/// What devices that compute have in common when they run an op.
namespace plimsoll::runtime::host {

/// The experts op whose routes an op reads; kNone: it reads none.
inline OpId routed_by(const Program& p, OpId id) {
  const Op& op = p.ops[id];
  if (op.kind == OpKind::experts) return id;
  if (op.kind == OpKind::combine) return p.values[op.inputs[0]].experts;
  return op.experts;
}

/// Whose saved parts an op reads: an experts op's routes are had again by the op that ends it, from
/// what the former saved.
inline OpId owner_of_parts(const Program& p, const OpRun& r) {
  return r.backward && p.ops[r.op()].kind == OpKind::combine ? routed_by(p, r.op()) : r.op();
}

/// Does the op hand its input on, so that there is nothing to compute?
inline bool hands_on(const Problem& problem, const Op& op) {
  const auto& storage = problem.inventory.flow.storage;
  return op.output != kNone && !op.inputs.empty() && storage[op.output] == storage[op.inputs[0]];
}

/// The first sequence of the data that a micro-batch of \a step (from 1) reads.
inline std::int64_t first_sequence(const StagePlan& plan, std::int64_t step, bool same_text,
                                   std::int64_t micro_batch) {
  const Layout& l = plan.layout;
  const std::int64_t text_step = same_text ? 0 : step - 1;
  return text_step * l.batch + (plan.place.dp * l.microbatches + micro_batch) * l.mbs;
}

/// After a forward: values that had no tensor (by micro-batch, value, is gradient) are gone, those
/// inside an op that accounts for everything with the op that ends it.
template <class T>
void forget_inputs(const Problem& problem, const OpRun& r,
                   std::map<std::tuple<std::int64_t, ValueId, bool>, T>& loose) {
  const Program& p = *problem.program;
  const Op& op = p.ops[r.op()];
  if (op.kind == OpKind::combine)
    std::erase_if(loose, [&, experts = routed_by(p, r.op())](const auto& l) {
      return std::get<0>(l.first) == r.at.micro_batch &&
             p.values[std::get<1>(l.first)].experts == experts;
    });
  for (const ValueId v : op.inputs)
    if (p.values[v].experts == kNone)
      loose.erase({r.at.micro_batch, problem.inventory.flow.storage[v], false});
}

}  // namespace plimsoll::runtime::host
